// The token map: the document as lines of cells, from all of it at once down to one cell for every token.
// Bands of lines are painted once and then only moved, so that it pans at the speed of the screen however long the
// document is. Zooming changes how many tokens a cell stands for; the lines are laid out again around one of them.
(() => {
  "use strict";
  const od = window.ondevice;
  const LEFT = 46, RIGHT = 12, BAND = 16; // the numbers of pages, the bar that shows where one is, lines of a band
  const DOUBLE_MS = 250; // between the two clicks of a double click
  const PITCHES = [16, 14, 12, 11, 10, 9, 8, 7, 6], FINE = 8, CLOSER = [14, 24];

  const columnsOf = (width, pitch) => Math.max(Math.floor((width - LEFT - RIGHT) / pitch), 1);

  /** The ladder of zooms for a document, from all of it to single tokens: { size: tokens of a cell, pitch: pixels }. */
  const zoomsFor = (numTokens, width, height) => {
    const fits = (size, pitch) => {
      return Math.ceil(Math.ceil(numTokens / size) / columnsOf(width, pitch)) * pitch <= height;
    };
    let size = 1;
    while (!fits(size, PITCHES.at(-1))) size *= 2;
    const whole = { size, pitch: PITCHES.find((pitch) => fits(size, pitch)) };
    const ladder = [whole];
    for (size /= 2; size >= 1; size /= 2) ladder.push({ size, pitch: FINE });
    return ladder.concat(CLOSER.filter((pitch) => ladder.at(-1).pitch < pitch).map((pitch) => ({ size: 1, pitch })));
  };

  od.map = (element, props, watch) => {
    const find = (selector) => element.querySelector(selector);
    const canvas = find(".od-map"), place = find(".od-map-place"), tokens = od.tokens;
    const buttons = { "-": find("[data-zoom=out]"), "+": find("[data-zoom=in]"), 0: find("[data-zoom=whole]") };
    let width = 0, height = 0, ladder = [], level = 0, scroll = 0, chosen = null, frame = 0;
    let bands = new Map(), picture = null, bandStamp = "";

    const zoom = () => ladder[level];
    const columns = () => columnsOf(width, zoom().pitch);
    const numCells = () => Math.ceil(tokens.summary.num_tokens / zoom().size);
    const contentHeight = () => Math.ceil(numCells() / columns()) * zoom().pitch;
    const limit = (y) => Math.min(Math.max(y, 0), Math.max(contentHeight() - height, 0));
    const isReady = () => Boolean(tokens.summary && width && ladder.length);
    const placePins = od.pins(find(".od-pins"), () => soon());
    const soon = () => { frame ||= requestAnimationFrame(() => { frame = 0; paint(); }); };
    const forget = () => { bands.clear(); picture = null; soon(); };

    // -- painting ---------------------------------------------------------------------------------

    const paint = () => {
      if (!canvas.clientWidth) return; // hidden by another tab
      const scale = window.devicePixelRatio || 1, context = canvas.getContext("2d");
      if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
        canvas.width = Math.round(width * scale);
        canvas.height = Math.round(height * scale);
        forget();
      }
      context.setTransform(scale, 0, 0, scale, 0, 0);
      context.clearRect(0, 0, width, height);
      if (!isReady()) {
        placePins(() => null);
        context.strokeStyle = od.colour(canvas, "line");
        context.setLineDash([4, 4]);
        context.strokeRect(0.5, 0.5, width - 1, height - 1);
        context.setLineDash([]);
        return;
      }
      const { size, pitch } = zoom(), across = columns(), total = numCells();
      const stamp = [size, pitch, across, scale, tokens.summary.document].join();
      if (stamp !== bandStamp) { bands.clear(); picture = null; bandStamp = stamp; }
      picture ??= od.cellPictures(canvas, pitch - (pitch > 12 ? 2 : 1), scale);
      const first = Math.floor(scroll / pitch / BAND), last = Math.floor((scroll + height) / pitch / BAND);
      for (const index of bands.keys()) if (index < first - 4 || index > last + 4) bands.delete(index);
      for (let index = first; index <= last; index++) {
        if (index * BAND * across >= total) break;
        let band = bands.get(index);
        if (!band) bands.set(index, band = paintBand(index, across, scale));
        context.drawImage(band, LEFT, index * BAND * pitch - scroll, across * pitch, BAND * pitch);
      }
      paintPages(context, across, pitch, total);
      paintPlace(context);
      if (chosen) paintChosen(context, across, pitch);
      placePins(pointOf);
      const end = Math.min((last + 1) * BAND * across, total) - 1, { TILE } = tokens;
      let isSettled = Boolean(tokens.pages);
      for (let tile = Math.floor((first * BAND * across) / TILE); tile * TILE <= end; tile++) {
        isSettled &&= tokens.isCurrent(size, tile);
      }
      canvas.dataset.settled = isSettled; // all that is in view is here and up to date
      tell();
    };

    const paintBand = (index, across, scale) => {
      const { size, pitch } = zoom(), total = numCells(), side = pitch - (pitch > 12 ? 2 : 1);
      const band = document.createElement("canvas");
      band.width = Math.round(across * pitch * scale);
      band.height = Math.round(BAND * pitch * scale);
      const pen = band.getContext("2d");
      pen.scale(scale, scale);
      const begin = index * BAND * across, end = Math.min(begin + BAND * across, total);
      let tile = null, tileIndex = -1;
      for (let cell = begin; cell < end; cell++) {
        const wanted = Math.floor(cell / tokens.TILE);
        if (wanted !== tileIndex) [tileIndex, tile] = [wanted, tokens.tile(size, wanted)];
        const at = 2 * (cell - wanted * tokens.TILE);
        if (!tile || at >= tile.length) continue;
        const row = Math.floor((cell - begin) / across), column = (cell - begin) % across;
        pen.drawImage(picture(tile[at] & 15, tile[at + 1]), column * pitch, row * pitch, side, side);
      }
      paintTicks(pen, begin, end, across, pitch);
      return band;
    };

    /** Where pages begin: a line before the cell. Left out where there would be one before nearly every cell. */
    const paintTicks = (pen, begin, end, across, pitch) => {
      if (!tokens.pages) return;
      const { starts } = tokens.pages, { size } = zoom();
      const firstPage = tokens.pageIndex(begin * size), lastPage = tokens.pageIndex(Math.min(end * size, tokens.summary.num_tokens) - 1);
      if ((lastPage - firstPage) * 8 > end - begin) return;
      pen.fillStyle = od.colour(canvas, "tick");
      for (let page = firstPage; page <= lastPage; page++) {
        const cell = Math.floor(starts[page] / size);
        if (cell <= 0 || cell < begin || cell >= end) continue;
        const row = Math.floor((cell - begin) / across), column = (cell - begin) % across;
        pen.fillRect(Math.max(column * pitch - 1.5, 0), row * pitch - 0.5, 1.5, pitch);
      }
    };

    /** The number of the page that a line begins on, where it is another than above. */
    const paintPages = (context, across, pitch, total) => {
      if (!tokens.pages) return;
      context.fillStyle = od.colour(canvas, "quiet");
      context.font = "10.5px system-ui, sans-serif";
      context.textAlign = "right";
      context.textBaseline = "middle";
      const rows = Math.ceil(total / across);
      let shown = -1, free = -99;
      for (let row = Math.floor(scroll / pitch); row < rows && row * pitch < scroll + height; row++) {
        const page = tokens.pageIndex(row * across * zoom().size), y = row * pitch - scroll + pitch / 2;
        if (page === shown || y < free || y < 0 || y > height - 4) continue;
        // A row may be lower than its number: the topmost would lose its upper half.
        context.fillText(od.number(tokens.pages.numbers[page]), LEFT - 7, Math.max(y, 6));
        [shown, free] = [page, y + 13];
      }
    };

    /** Which part of the document is in view. */
    const paintPlace = (context) => {
      const whole = contentHeight();
      if (whole <= height) return;
      const thumb = Math.max((height * height) / whole, 12), y = (scroll / (whole - height)) * (height - thumb);
      context.fillStyle = od.colour(canvas, "line");
      context.fillRect(width - 7, 0, 5, height);
      context.fillStyle = od.colour(canvas, "quiet");
      context.fillRect(width - 7, y, 5, thumb);
    };

    const paintChosen = (context, across, pitch) => {
      context.strokeStyle = od.colour(canvas, "ceiling");
      context.lineWidth = 2;
      const first = Math.floor(chosen.start / zoom().size), last = Math.floor((chosen.stop - 1) / zoom().size);
      for (let cell = first; cell <= last && cell < first + 4 * across; cell++) {
        const y = Math.floor(cell / across) * pitch - scroll;
        if (y > -pitch && y < height) context.strokeRect(LEFT + (cell % across) * pitch - 1, y - 1, pitch + 1, pitch + 1);
      }
    };

    /** What the map shows, in words and for tests. */
    const tell = () => {
      const { size, pitch } = zoom(), { summary, pages } = tokens, perRow = columns() * size;
      const first = Math.floor(scroll / pitch) * perRow;
      const last = Math.min(Math.ceil((scroll + height) / pitch) * perRow, summary.num_tokens);
      const [from, to] = pages ? [first, last - 1].map((at) => od.number(pages.numbers[tokens.pageIndex(at)])) : [];
      const named = !pages ? "" : from === to ? ` · ${summary.unit} ${from}` : ` · ${summary.unit}s ${from}–${to}`;
      place.textContent = `${size === 1 ? "One token a cell" : `${od.number(size)} tokens a cell`} · `
        + `tokens ${od.number(first + 1)}–${od.number(last)} of ${od.number(summary.num_tokens)}${named}`;
      Object.assign(canvas.dataset, { size, level, first, last, cells: numCells() });
      buttons["-"].disabled = buttons[0].disabled = level === 0;
      buttons["+"].disabled = level === ladder.length - 1;
      canvas.style.touchAction = level === 0 ? "pan-y" : "none";
      canvas.setAttribute("aria-label", `Token map: ${place.textContent}. Arrow keys go from cell to cell, plus and `
        + "minus zoom, 0 shows the whole document, Enter shows the cell in the text.");
    };

    // -- moving -----------------------------------------------------------------------------------

    const cellAt = (x, y) => {
      const column = Math.floor((x - LEFT) / zoom().pitch), row = Math.floor((y + scroll) / zoom().pitch);
      const cell = row * columns() + column;
      return column >= 0 && column < columns() && row >= 0 && cell < numCells() ? cell : -1;
    };
    const spanOf = (cell) => ({
      start: cell * zoom().size, stop: Math.min((cell + 1) * zoom().size, tokens.summary.num_tokens),
    });
    /** Zooms so that a token stays at a height. */
    const zoomTo = (wanted, token, y) => {
      if (!isReady()) return;
      level = Math.min(Math.max(wanted, 0), ladder.length - 1);
      scroll = limit(Math.floor(token / zoom().size / columns()) * zoom().pitch - y + zoom().pitch / 2);
      soon();
    };
    const middle = () => {
      const cell = Math.floor((scroll + height / 2) / zoom().pitch) * columns() + Math.floor(columns() / 2);
      return Math.min(cell * zoom().size, tokens.summary.num_tokens - 1);
    };
    const zoomBy = (steps, x = null, y = height / 2) => {
      if (!isReady()) return;
      const cell = x === null ? -1 : cellAt(x, y);
      const token = cell >= 0 ? cell * zoom().size : chosen && x === null ? chosen.start : middle();
      const at = x === null && chosen ? Math.min(Math.max(yOf(token), 0), height) : y;
      zoomTo(level + steps, token, at);
    };
    const yOf = (token) => Math.floor(token / zoom().size / columns()) * zoom().pitch - scroll + zoom().pitch / 2;
    /** The middle of a token's cell; null where that is out of view. */
    const pointOf = (token) => {
      const x = LEFT + ((Math.floor(token / zoom().size) % columns()) + 0.5) * zoom().pitch, y = yOf(token);
      return token < tokens.summary.num_tokens && y >= 0 && y <= height ? { x, y } : null;
    };
    const panBy = (dy) => { scroll = limit(scroll + dy); soon(); };
    const reveal = (token) => {
      const y = yOf(token);
      if (y < 0 || y > height) scroll = limit(scroll + y - height / 2);
      soon();
    };

    /** Outlines a span and tells what is known of it, aloud where it was chosen with a key. */
    const choose = (span, isSpoken = false) => {
      if (span?.start === chosen?.start && span?.stop === chosen?.stop) return;
      chosen = span;
      od.tellToken(span, isSpoken);
      soon();
    };

    for (const [key, button] of Object.entries(buttons)) {
      button.addEventListener("click", () => (key === "0" ? zoomTo(0, 0, 0) : zoomBy(key === "+" ? 1 : -1)));
    }

    let wheeled = 0;
    canvas.addEventListener("wheel", (event) => {
      if (!isReady()) return;
      if (event.ctrlKey || event.metaKey) { // also what a pinch on a touchpad arrives as
        event.preventDefault();
        wheeled -= event.deltaY * (event.deltaMode ? 30 : 1);
        const steps = Math.trunc(wheeled / 40);
        if (steps) { wheeled -= 40 * steps; zoomBy(Math.sign(steps), event.offsetX, event.offsetY); }
        return;
      }
      const before = scroll;
      panBy(event.deltaY * (event.deltaMode ? 30 : 1));
      if (scroll !== before) event.preventDefault(); // at the end of the map the page goes on
    }, { passive: false });

    const fingers = new Map();
    let dragged = 0, pinched = 0, clicked = 0;
    const distance = () => {
      const [a, b] = [...fingers.values()];
      return Math.hypot(a.x - b.x, a.y - b.y);
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (!isReady() || event.button > 0) return;
      fingers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      if (fingers.size === 1) dragged = 0;
      if (fingers.size === 2) pinched = distance();
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!isReady()) return;
      const finger = fingers.get(event.pointerId);
      if (!finger) {
        const cell = cellAt(event.offsetX, event.offsetY);
        choose(cell < 0 ? null : spanOf(cell));
        return;
      }
      const dy = finger.y - event.offsetY;
      dragged += Math.abs(dy) + Math.abs(finger.x - event.offsetX);
      [finger.x, finger.y] = [event.offsetX, event.offsetY];
      if (fingers.size === 1 && dragged > 4) panBy(dy);
      if (fingers.size === 2) {
        const ratio = distance() / Math.max(pinched, 1);
        if (ratio > 1.35 || ratio < 0.74) {
          const [a, b] = [...fingers.values()];
          zoomBy(ratio > 1 ? 1 : -1, (a.x + b.x) / 2, (a.y + b.y) / 2);
          pinched = distance();
        }
      }
    });
    const lift = (event) => {
      const wasOne = fingers.size === 1 && fingers.delete(event.pointerId);
      fingers.delete(event.pointerId);
      if (event.type !== "pointerup" || !wasOne || dragged > 4 || !isReady()) return;
      const cell = cellAt(event.offsetX, event.offsetY);
      if (cell < 0) return;
      choose(spanOf(cell));
      const { start, stop } = chosen;
      clearTimeout(clicked);
      // Where the text would take the map's place, a button beside what is said of the cell leads there.
      clicked = od.isNarrow() ? 0 : setTimeout(() => od.showSpan(start, stop), DOUBLE_MS);
    };
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("pointerleave", () => { if (!fingers.size && document.activeElement !== canvas) choose(null); });
    canvas.addEventListener("dblclick", (event) => {
      clearTimeout(clicked);
      zoomBy(1, event.offsetX, event.offsetY);
    });

    canvas.addEventListener("keydown", (event) => {
      if (!isReady() || event.ctrlKey || event.metaKey || event.altKey) return;
      const across = columns(), cell = chosen ? Math.floor(chosen.start / zoom().size) : -1;
      const page = Math.max(Math.floor(height / zoom().pitch) - 1, 1) * across;
      const jump = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, PageDown: page, PageUp: -page,
        Home: -Infinity, End: Infinity }[event.key];
      if (jump !== undefined) {
        const from = cell < 0 ? Math.floor(scroll / zoom().pitch) * across - (jump > 0 ? 1 : 0) : cell;
        const to = Math.min(Math.max(from + jump, 0), numCells() - 1);
        choose(spanOf(to), true);
        reveal(chosen.start);
      } else if (event.key === "+" || event.key === "=") zoomBy(1);
      else if (event.key === "-") zoomBy(-1);
      else if (event.key === "0") zoomTo(0, 0, 0);
      else if (event.key === "Enter" && chosen) od.showSpan(chosen.start, chosen.stop);
      else if (event.key === "Escape") choose(null);
      else return;
      event.preventDefault();
    });

    // -- what changes -----------------------------------------------------------------------------

    const layOut = (isNew) => {
      if (!isNew && !canvas.clientWidth) return; // hidden by another tab or pane: it comes back as it was
      const token = isNew || !isReady() ? 0 : Math.floor(scroll / zoom().pitch) * columns() * zoom().size;
      const wanted = isNew ? 0 : level;
      [width, height] = [Math.floor(canvas.clientWidth), Math.floor(canvas.clientHeight)];
      if (!width || height < PITCHES.at(-1)) return; // no room for one line of cells
      ladder = tokens.summary ? zoomsFor(tokens.summary.num_tokens, width, height) : [];
      if (ladder.length) zoomTo(wanted, token, zoomTopOf(wanted));
      soon();
    };
    const zoomTopOf = (wanted) => ladder[Math.min(Math.max(wanted, 0), ladder.length - 1)].pitch / 2;

    const isSameSize = () => Math.floor(canvas.clientWidth) === width && Math.floor(canvas.clientHeight) === height;
    new ResizeObserver(() => { if (isSameSize()) soon(); else layOut(false); }).observe(canvas);
    od.onTheme(forget);
    od.growMap(find("[data-map=grow]"));
    od.cellLegend(find(".od-key"));
    od.mapControls(element);
    od.tokenDetail(element);
    tokens.listen((what) => {
      if (what === "document") { chosen = null; od.tellToken(null); level = scroll = 0; layOut(true); }
      if (!tokens.summary) return forget();
      if (what === "tile" || what === "pages" || what === "look" || what === "cells") {
        bands.clear();
        soon();
      }
    });
    /** Outlines tokens and goes there: also called where the text is clicked. */
    od.chooseOnMap = (start, stop) => {
      if (!isReady()) return;
      choose({ start, stop });
      reveal(start);
    };
    od.follow(props, watch, (value) => {
      tokens.update(value);
      if (!tokens.summary) { place.textContent = ""; canvas.dataset.cells = 0; canvas.dataset.settled = true; canvas.setAttribute("aria-label", "No document yet"); }
    });
    layOut(true);
  };
})();
