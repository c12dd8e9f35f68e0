// The token map: the document as a strip across the foot of the page, and grown as lines of cells, from all of it at once
// down to one cell for every token. What it looks like is in map_field.js, where cells lie in map_shape.js.
(() => {
  "use strict";
  const od = window.ondevice;
  const LEAST = 24; // pixels: where it is lower, there is no map

  od.map = (element, props, watch) => {
    const find = (selector) => element.querySelector(selector);
    const canvas = find(".od-map"), place = find(".od-map-place"), tokens = od.tokens, shape = new od.MapShape();
    const buttons = { "-": find("[data-zoom=out]"), "+": find("[data-zoom=in]"), 0: find("[data-zoom=whole]") };
    let chosen = null, frame = 0, field = null;

    const soon = () => { frame ||= requestAnimationFrame(() => { frame = 0; paint(); }); };
    const layers = od.mapLayers(find(".od-layers"), soon);
    const placePins = od.pins(find(".od-pins"), soon);
    const isReady = () => Boolean(tokens.summary && shape.isReady);

    const paint = () => {
      const [width, height] = [Math.floor(canvas.clientWidth), Math.floor(canvas.clientHeight)];
      if (!width) return; // hidden by another tab
      const scale = window.devicePixelRatio || 1, context = canvas.getContext("2d");
      if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
        canvas.width = Math.round(width * scale);
        canvas.height = Math.round(height * scale);
      }
      context.setTransform(scale, 0, 0, scale, 0, 0);
      context.clearRect(0, 0, width, height);
      if (!isReady()) return placePins(() => null);
      canvas.dataset.settled = field.paint(context, scale, chosen); // all that is in view is here and up to date
      placePins((token) => shape.pointOf(token));
      if (chosen) od.placeToken(pointOnPage(chosen.start));
      tell();
    };

    /** Where a token's cell is in the window. */
    const pointOnPage = (token) => {
      const box = canvas.getBoundingClientRect(), point = shape.pointOf(token);
      return point && { x: box.left + point.x, y: box.top + point.y, room: shape.zoom.tall / 2 };
    };

    /** What the map shows, in words and for tests. */
    const tell = () => {
      const { size } = shape.zoom, { summary, pages } = tokens, [first, last] = shape.view;
      const [from, to] = pages ? [first, last - 1].map((at) => od.number(pages.numbers[tokens.pageIndex(at)])) : [];
      const named = !pages ? "" : from === to ? ` · ${summary.unit} ${from}` : ` · ${summary.unit}s ${from}–${to}`;
      const each = size === 1 ? "One token a cell" : `${od.number(size)} tokens a cell`;
      place.textContent = shape.isStrip
        ? `${od.number(summary.num_read)} of ${od.number(summary.num_tokens)} tokens read`
        : `${each} · tokens ${od.number(first + 1)}–${od.number(last)} of ${od.number(summary.num_tokens)}${named}`;
      Object.assign(canvas.dataset, {
        size, level: shape.level, first, last, cells: shape.numCells, layers: layers().map((i) => od.LAYERS[i].name),
        chosen: chosen ? `${chosen.start}-${chosen.stop}` : "", lit: JSON.stringify(summary.lit ?? []) });
      buttons["-"].disabled = buttons[0].disabled = shape.level === 0;
      buttons["+"].disabled = shape.level === shape.ladder.length - 1;
      canvas.style.touchAction = shape.level === 0 ? "pan-y" : "none";
      canvas.setAttribute("aria-label", `Memory map: ${each}, tokens ${od.number(first + 1)}–${od.number(last)} of `
        + `${od.number(summary.num_tokens)}${named}. Arrow keys go from cell to cell, plus and minus zoom, 0 shows the `
        + "whole document, Enter shows the cell in the text.");
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
      const [width, height] = [Math.floor(canvas.clientWidth), Math.floor(canvas.clientHeight)];
      if (!isNew && !width) return; // hidden by another tab or pane: it comes back as it was
      const [token, wasStrip] = [isNew || !isReady() ? 0 : shape.view[0], shape.isStrip];
      const isStrip = od.isStrip();
      shape.fit(height < LEAST ? 0 : tokens.summary?.num_tokens ?? 0, width, height, isStrip);
      if (isReady()) shape.zoomTo(isNew || isStrip !== wasStrip ? 0 : shape.level, token, shape.zoom.tall / 2);
      soon();
    };

    field = od.mapField(canvas, shape, () => (shape.isStrip ? [] : layers()));
    od.mapMoves(canvas, buttons, { shape, isReady, choose, reveal, soon, chosen: () => chosen });
    const isSameSize = () => Math.floor(canvas.clientWidth) === shape.width && Math.floor(canvas.clientHeight) === shape.height
      && od.isStrip() === shape.isStrip;
    new ResizeObserver(() => { if (isSameSize()) soon(); else layOut(false); }).observe(canvas);
    od.onTheme(() => { field.forget(); soon(); });
    od.growMap(find("[data-map=grow]"));
    od.scaleLegend(find(".od-scale canvas"));
    od.mapControls(element);
    od.tokenDetail(element);
    tokens.listen((what) => {
      if (what === "document") { chosen = null; od.tellToken(null); shape.level = shape.scroll = 0; layOut(true); }
      field.stale();
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
      place.textContent = "";
      Object.assign(canvas.dataset, { cells: 0, settled: true });
      canvas.setAttribute("aria-label", "No document yet");
    });
    layOut(true);
  };
})();
