// Wheel, pointer, fingers and keys on a map.
const DOUBLE_MS = 250; // between the two clicks of a double click
const STEP = 40; // pixels of a wheel for a zoom

/** `map` has: shape, isReady(), choose(span, how), reveal(token), soon(), chosen(). */
od.mapMoves = (canvas, buttons, map) => {
  const { shape, isReady, choose, reveal, soon, chosen } = map;

  const zoomTo = (level, token, y) => { if (isReady()) { shape.zoomTo(level, token, y); soon(); } };
  const inView = (token) => (shape.pointOf(token ?? Infinity) ? token : undefined);
  /** The last token that was read, while there are more. */
  const edge = () => {
    const { num_read: read, num_tokens: total } = od.tokens.summary;
    return read < total ? Math.max(read - 1, 0) : undefined;
  };
  const zoomBy = (steps, x = null, y = shape.height / 2) => {
    if (!isReady()) return;
    const cell = x === null ? -1 : shape.cellAt(x, y), held = chosen();
    const aim = x === null ? held?.start ?? inView(od.pinned()) ?? inView(edge()) : undefined;
    const token = cell >= 0 ? shape.spanOf(cell).start : aim ?? shape.middle;
    const at = held && x === null ? Math.min(Math.max(shape.yOf(token), 0), shape.height) : y;
    zoomTo(shape.level + steps, token, at);
  };
  const panBy = (dy) => { shape.moveTo(shape.scroll + dy); soon(); };
  const spanAt = (event) => {
    const cell = shape.cellAt(event.offsetX, event.offsetY);
    return cell < 0 ? null : shape.spanOf(cell);
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
      const steps = Math.trunc(wheeled / STEP);
      if (steps) { wheeled -= STEP * steps; zoomBy(Math.sign(steps), event.offsetX, event.offsetY); }
      return;
    }
    const before = shape.scroll;
    panBy(event.deltaY * (event.deltaMode ? 30 : 1));
    if (shape.scroll !== before) event.preventDefault();
  }, { passive: false });

  const fingers = new Map();
  let dragged = 0, pinched = 0, clicked = 0, byKey = false;
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
    byKey = false;
    if (!finger) return choose(spanAt(event), "pointed");
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
    const span = spanAt(event);
    if (!span) return;
    choose(span, "pointed");
    clearTimeout(clicked);
    // Where the text would take the map's place, a button beside what is said of the cell leads there.
    clicked = od.isNarrow() ? 0 : setTimeout(() => od.showSpan(span.start, span.stop), DOUBLE_MS);
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  const isOurs = (element) => element === canvas || Boolean(element?.closest?.(".od-detail, .od-t"));
  canvas.addEventListener("pointerleave", (event) => {
    if (!fingers.size && !byKey && event.pointerType === "mouse") choose(null);
  });
  canvas.addEventListener("blur", (event) => {
    if (event.relatedTarget && !isOurs(event.relatedTarget)) choose(null);
  });
  document.addEventListener("pointerdown", (event) => { if (chosen() && !isOurs(event.target)) choose(null); });
  canvas.addEventListener("dblclick", (event) => {
    clearTimeout(clicked);
    zoomBy(1, event.offsetX, event.offsetY);
  });

  canvas.addEventListener("keydown", (event) => {
    if (!isReady() || event.ctrlKey || event.metaKey || event.altKey) return;
    const across = shape.isStrip ? Math.ceil(shape.columns / 40) : shape.columns, held = chosen();
    const page = shape.isStrip ? Math.ceil(shape.columns / 10) : shape.page;
    const jump = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, PageDown: page, PageUp: -page,
      Home: -Infinity, End: Infinity }[event.key];
    if (jump !== undefined) {
      const top = Math.floor(shape.view[0] / shape.zoom.size) - (jump > 0 ? 1 : 0);
      const from = held ? Math.floor(held.start / shape.zoom.size) : top;
      byKey = true;
      choose(shape.spanOf(Math.min(Math.max(from + jump, 0), shape.numCells - 1)), "spoken");
      reveal(chosen().start);
    } else if (event.key === "+" || event.key === "=") zoomBy(1);
    else if (event.key === "-") zoomBy(-1);
    else if (event.key === "0") zoomTo(0, 0, 0);
    else if (event.key === "Enter" && held) od.showSpan(held.start, held.stop);
    else if (event.key === "Escape" && held) choose(null);
    else return;
    event.preventDefault();
  });
};
