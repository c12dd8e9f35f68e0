// Reading numbers off a drawing: with the pointer, or with the arrow keys. Shared by all charts.
(() => {
  "use strict";
  const od = window.ondevice;

  // Where something scrolls, a browser tells of a pointer that moves and leaves though it lies still.
  let place = "", isMoved = false;
  document.addEventListener("pointermove", (event) => {
    const now = `${event.clientX} ${event.clientY}`;
    isMoved = now !== place;
    place = now;
  }, true);

  /**
   * Lets one of the things drawn on a canvas be chosen, and says in words what it is.
   *
   * `count()` things; `at(x, y)` is the one at a place, -1 for none; `describe(i)` is its text, of -1 the general one.
   * `paint` draws again. Gives back an object whose `index` is the chosen one, and `refresh` for new numbers.
   */
  od.readout = (canvas, output, { count, at, describe, paint }) => {
    let byKey = false;
    const chosen = { index: -1, refresh: () => choose(Math.min(chosen.index, count() - 1), true, byKey) };
    const choose = (index, isNew, isSpoken = false) => {
      byKey = isSpoken && index >= 0;
      if (index === chosen.index && !isNew) return;
      output.ariaLive = isSpoken ? "polite" : "off"; // what the pointer passes over is not said aloud
      chosen.index = index;
      const text = describe(index);
      if (output.textContent !== text) output.textContent = text;
      paint();
    };
    canvas.addEventListener("pointermove", (event) => {
      if (byKey && !isMoved) return;
      const box = canvas.getBoundingClientRect();
      choose(at(event.clientX - box.left, event.clientY - box.top));
    });
    canvas.addEventListener("pointerleave", () => { if (!byKey) choose(-1); });
    canvas.addEventListener("blur", () => choose(-1));
    canvas.addEventListener("keydown", (event) => {
      const last = count() - 1, index = chosen.index;
      const next = {
        ArrowRight: Math.min(index + 1, last), ArrowDown: Math.min(index + 1, last),
        ArrowLeft: Math.max(index - 1, 0), ArrowUp: Math.max(index - 1, 0), Home: 0, End: last, Escape: -1,
      }[event.key];
      if (next === undefined || last < 0 || (next < 0 && index < 0)) return; // Esc then closes what it stands in
      event.preventDefault();
      choose(next, false, true);
    });
    return chosen;
  };

  /** A frame around what is chosen. */
  od.frame = (context, canvas, x, y, width, height) => {
    context.strokeStyle = od.colour(canvas, "tick");
    context.lineWidth = 1.5;
    context.strokeRect(x - 1, y - 1, width + 2, height + 2);
  };
})();
