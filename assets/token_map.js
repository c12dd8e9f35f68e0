// The token map: the document as a strip across the foot of the page, and grown as lines of cells, from all of it at once
// down to one cell for every token. What it looks like is in map_field.js, where cells lie in map_shape.js.
const TELL_MS = 80; // between two times that it is said what is in view
const LEAST = 24; // pixels: where it is lower, there is no map
const WHOLE = "Everything that was read is remembered: nothing had to be dropped.";

od.map = (element, props, watch) => {
  const find = (selector) => element.querySelector(selector);
  const canvas = find(".od-map"), place = find(".od-map-place"), tokens = od.tokens, shape = new od.MapShape();
  const buttons = { "-": find("[data-zoom=out]"), "+": find("[data-zoom=in]"), 0: find("[data-zoom=whole]") };
  const whole = find(".od-whole"), leaves = find(".od-leaves");
  let chosen = null, told = "", frame = 0, telling = 0, field = null, width = 0, height = 0;

  const soon = () => { frame ||= requestAnimationFrame(() => { frame = 0; paint(); }); };
  const layers = od.mapLayers(find(".od-layers"), soon);
  const placePins = od.pins(find(".od-map ~ .od-pins"), soon), showLeaves = od.leaves(leaves, soon);
  const isReady = () => Boolean(tokens.summary && shape.isReady);

  const paint = () => {
    whole.hidden = showLeaves() || !od.isWhole();
    if (!width) return; // hidden by another tab
    const pen = od.penOf(canvas, width, height);
    if (!isReady()) return placePins(() => null);
    // All that is in view is here and up to date.
    const isSettled = leaves.hidden ? String(field.paint(pen, chosen)) : leaves.dataset.settled;
    if (canvas.dataset.settled !== isSettled) canvas.dataset.settled = isSettled;
    placePins((token) => shape.pointOf(token));
    if (field.isFading()) soon();
    if (chosen) od.placeToken(pointOnPage(chosen.start));
    note();
    telling ||= setTimeout(() => { telling = 0; if (isReady()) tell(); }, TELL_MS);
  };

  /** Where a token's cell is in the window, or its page where pages are shown. */
  const pointOnPage = (token) => {
    const leaf = leaves.hidden ? null : leaves.querySelectorAll(".od-leaf")[tokens.pageIndex(token)]?.getBoundingClientRect();
    if (leaf) return { x: leaf.left + leaf.width / 2, y: leaf.top + leaf.height / 2, room: leaf.height / 2 };
    const box = canvas.getBoundingClientRect(), point = shape.pointOf(token);
    return point && { x: box.left + point.x, y: box.top + point.y, room: shape.zoom.tall / 2 };
  };

  /** What the map shows, for its buttons and for tests. */
  const note = () => {
    const [first, last] = shape.view, { level } = shape;
    buttons["-"].disabled = buttons[0].disabled = level === 0;
    buttons["+"].disabled = level === shape.ladder.length - 1;
    canvas.style.touchAction = level === 0 ? "pan-y" : "none";
    Object.assign(canvas.dataset, {
      size: shape.zoom.size, level, first, last, cells: shape.numCells, layers: layers().map((i) => od.LAYERS[i].name),
      chosen: chosen ? `${chosen.start}-${chosen.stop}` : "", lit: JSON.stringify(tokens.summary.lit ?? []) });
  };

  /** The same in words: seldom, and only where they are others, for they lay out the page. */
  const tell = () => {
    const { size } = shape.zoom, { summary, pages } = tokens, [first, last] = shape.view;
    const [from, to] = pages ? [first, last - 1].map((at) => od.number(pages.numbers[tokens.pageIndex(at)])) : [];
    const named = !pages ? "" : from === to ? ` · ${summary.unit} ${from}` : ` · ${summary.unit}s ${from}–${to}`;
    const each = size === 1 ? "One token a cell" : `${od.number(size)} tokens a cell`;
    const now = !leaves.hidden
        ? od.isWhole() ? WHOLE
        : `Page ${od.number(tokens.pageIndex(summary.num_read - 1) + 1)} of ${od.number(summary.num_pages)} read, nothing dropped so far`
      : shape.isStrip
      ? `${od.number(summary.num_read)} of ${od.number(summary.num_tokens)} tokens read`
      : `${each} · tokens ${od.number(first + 1)}–${od.number(last)} of ${od.number(summary.num_tokens)}${named}`;
    if (now === told) return;
    place.textContent = told = now;
    canvas.setAttribute("aria-label", `Memory map: ${now}. Arrow keys go from cell to cell, plus and minus zoom, 0 shows `
      + "the whole document, Enter shows the cell in the text.");
  };

  const reveal = (token) => {
    const y = shape.yOf(token);
    if (y < 0 || y > shape.height) shape.moveTo(shape.scroll + y - shape.height / 2);
    soon();
  };

  /** Outlines a span; `how` it came: "pointed" or "spoken" tell what is known of it, the second one aloud. */
  const choose = (span, how = "") => {
    if (span?.start === chosen?.start && span?.stop === chosen?.stop) return;
    chosen = span;
    od.tellToken(how ? span : null, how === "spoken");
    soon();
  };

  const layOut = (isNew) => {
    [width, height] = [Math.floor(canvas.clientWidth), Math.floor(canvas.clientHeight)];
    if (!isNew && !width) return; // hidden by another tab or pane: it comes back as it was
    const [token, wasStrip] = [isNew || !isReady() ? 0 : shape.view[0], shape.isStrip];
    const isStrip = od.isStrip();
    shape.fit(height < LEAST ? 0 : tokens.summary?.num_tokens ?? 0, width, height, isStrip);
    if (isReady()) shape.zoomTo(isNew || isStrip !== wasStrip ? 0 : shape.level, token, shape.zoom.tall / 2);
    soon();
  };

  field = od.mapField(canvas, shape, () => (shape.isStrip ? [] : layers()));
  od.mapMoves(canvas, buttons, { shape, isReady, choose, reveal, soon, chosen: () => chosen });
  const isSameSize = () => Math.floor(canvas.clientWidth) === width && Math.floor(canvas.clientHeight) === height
    && od.isStrip() === shape.isStrip;
  new ResizeObserver(() => { if (isSameSize()) soon(); else layOut(false); }).observe(canvas);
  od.onTheme(() => { field.forget(); soon(); });
  od.growMap(find("[data-map=grow]"));
  od.mapControls(element);
  od.film(element);
  od.tokenDetail(element);
  tokens.listen((what) => {
    if (what === "document") { chosen = null; od.tellToken(null); shape.level = shape.scroll = 0; layOut(true); }
    if (what === "tile") field.renew(); else field.stale();
    soon();
  });
  find("[data-map=experts]").addEventListener("click", (event) => {
    document.body.dataset.experts = od.isExpert() ? "off" : "on";
    event.currentTarget.setAttribute("aria-pressed", String(od.isExpert()));
    if (!od.isExpert()) tokens.lookAt({ layer: null, head: null });
    soon();
  });
  /** Outlines tokens and goes there; `how` as for what is pointed at. Also called where the text is clicked. */
  od.chooseOnMap = (start, stop, how = "") => {
    if (!isReady()) return;
    choose({ start, stop }, how);
    reveal(start);
  };
  od.follow(props, watch, (value) => {
    tokens.update(value);
    if (tokens.summary) return soon();
    place.textContent = told = "";
    Object.assign(canvas.dataset, { cells: 0, settled: true });
    canvas.setAttribute("aria-label", "No document yet");
  });
  layOut(true);
};
