// The fill of the pot: used slots in every layer now, and over the document so far, under the hard ceiling.
(() => {
  "use strict";
  const od = window.ondevice;
  const TOP = 20, BOTTOM = 18, SPLIT = 18, HEIGHT = 132;

  od.fill = (element, props, watch) => {
    const canvas = element.querySelector(".od-fill"), facts = element.querySelector(".od-facts");
    const output = element.querySelector(".od-readout");
    let pot = null, places = [];

    const paint = od.canvasOf(canvas, HEIGHT, (context, width, height) => {
      const floor = height - BOTTOM, half = (width - SPLIT) / 2;
      const ink = od.colour(canvas, "kept-3"), quiet = od.colour(canvas, "quiet"), line = od.colour(canvas, "line");
      const ceiling = od.colour(canvas, "ceiling");
      context.font = "11px system-ui, sans-serif";
      const axis = (left, label) => {
        context.fillStyle = line;
        context.fillRect(left, floor, half, 1);
        context.fillStyle = quiet;
        context.textAlign = "left";
        context.fillText(label, left, height - 4);
      };
      axis(0, "now, layer by layer");
      axis(half + SPLIT, "while reading");
      places = [];
      if (pot) {
        const y = (slots) => floor - ((floor - TOP) * slots) / pot.capacity;
        const pitch = half / pot.cached.length, gap = pitch > 4 ? 1 : 0;
        const recent = od.hatch(context, ink, 4), fixed = od.colour(canvas, "kept-4");
        pot.cached.forEach((slots, i) => {
          const x = i * pitch, wide = pitch - gap;
          const part = (from, to, style) => {
            context.fillStyle = style;
            context.fillRect(x, y(to), wide, Math.max(y(from) - y(to), 0));
          };
          const old = Math.max(pot.ranked[i], Math.min(pot.fixed, slots));
          part(0, Math.min(pot.fixed, slots), fixed);
          part(Math.min(pot.fixed, slots), old, ink);
          part(old, slots, recent);
          if (pot.capacities[i] < pot.capacity) { // a layer with fewer slots has a ceiling of its own
            context.fillStyle = ceiling;
            context.fillRect(x, y(pot.capacities[i]) - 1, wide, 1.5);
          }
          places.push(x);
        });
        drawHistory(context, pot.history, half + SPLIT, half, y, floor, ink);
        if (chosen.index >= 0 && chosen.index < pot.cached.length) {
          const slots = pot.cached[chosen.index];
          od.frame(context, canvas, places[chosen.index], y(slots), pitch - gap, floor - y(slots));
        }
      }
      context.strokeStyle = ceiling;
      context.lineWidth = 1.5;
      context.setLineDash([6, 3]);
      context.beginPath();
      for (const left of [0, half + SPLIT]) { context.moveTo(left, TOP); context.lineTo(left + half, TOP); }
      context.stroke();
      context.setLineDash([]);
      context.fillStyle = ceiling;
      context.textAlign = "right";
      context.fillText(pot ? `ceiling: ${od.number(pot.capacity)} slots` : "ceiling", width, TOP - 6);
    });

    const describe = (i) => {
      if (!pot) return "";
      if (i < 0) return "Point at a layer, or use the arrow keys, for its numbers.";
      const slots = pot.cached[i], fixed = Math.min(pot.fixed, slots), old = Math.max(pot.ranked[i] - fixed, 0);
      return `Layer ${i + 1} of ${pot.cached.length}: ${od.number(slots)} of ${od.number(pot.capacities[i])} slots. `
        + `${od.number(fixed)} hold the beginning, ${od.number(old)} were chosen, `
        + `${od.number(slots - fixed - old)} are recent.`;
    };
    const chosen = od.readout(canvas, output, {
      count: () => pot?.cached.length ?? 0,
      at: (x) => {
        const half = (canvas.clientWidth - SPLIT) / 2;
        return pot && x >= 0 && x < half ? Math.floor((x * pot.cached.length) / half) : -1;
      },
      describe,
      paint,
    });

    od.follow(props, watch, (value) => {
      pot = value;
      canvas.setAttribute("aria-label", pot ? `${pot.text}. ${pot.cycles}. Arrow keys read the layers.` : "The pot is empty");
      facts.replaceChildren(...(pot ? [pot.text, pot.memory, pot.cycles] : ["Empty"]).map(
        (text) => od.textElement("span", text)));
      chosen.refresh();
    });
  };

  /** A step line of the slots in use; the drops are distillations. */
  const drawHistory = (context, history, left, width, y, floor, ink) => {
    if (!history.length) return;
    const begin = history.length > 1 ? Math.min(history[0][0], 0) : 0, end = history[history.length - 1][0];
    const first = history[0][0] > end / 2 ? history[0][0] : begin; // early steps are dropped from a long history
    const x = (tokens) => left + (width * (tokens - first)) / Math.max(end - first, 1);
    context.beginPath();
    context.moveTo(x(first), floor);
    for (const [tokens, slots] of history) context.lineTo(x(tokens), y(slots));
    context.lineTo(x(end), floor);
    context.closePath();
    context.globalAlpha = 0.25;
    context.fillStyle = ink;
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = ink;
    context.lineWidth = 1.5;
    context.beginPath();
    history.forEach(([tokens, slots], i) => context[i ? "lineTo" : "moveTo"](x(tokens), y(slots)));
    context.stroke();
  };
})();
