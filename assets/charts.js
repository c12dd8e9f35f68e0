// The fill of the pot over the document so far, under the hard ceiling.
const TOP = 20, BOTTOM = 18, HEIGHT = 132;

od.fill = (element, props, watch) => {
  const canvas = element.querySelector(".od-fill"), facts = element.querySelector(".od-facts");
  let pot = null;
  const paint = od.canvasOf(canvas, HEIGHT, (context, width, height) => {
    const floor = height - BOTTOM, ceiling = od.colour(canvas, "ceiling");
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = od.colour(canvas, "line");
    context.fillRect(0, floor, width, 1);
    context.fillStyle = od.colour(canvas, "quiet");
    context.fillText(od.words("slots in use, while reading"), 0, height - 4);
    const y = (slots) => floor - ((floor - TOP) * slots) / pot.capacity;
    if (pot) drawHistory(context, pot.history, width, y, floor, od.colour(canvas, "kept-3"));
    od.line(context, [[0, TOP], [width, TOP]], ceiling, 1.5, [6, 3]);
    context.fillStyle = ceiling;
    context.textAlign = "right";
    context.fillText(od.words(pot ? `ceiling: ${od.number(pot.capacity)} slots` : "ceiling"), width, TOP - 6);
  });
  od.follow(props, watch, (value) => {
    pot = value;
    canvas.setAttribute("aria-label", pot ? `${pot.text}. ${pot.cycles}` : "The pot is empty");
    facts.replaceChildren(...(pot ? [pot.text, pot.memory, pot.cycles] : ["Empty"]).map(
      (text) => od.textElement("span", text)));
    paint();
  });
};

/** A step line of the slots in use; the drops are distillations. */
const drawHistory = (context, history, width, y, floor, ink) => {
  if (!history.length) return;
  const begin = history.length > 1 ? Math.min(history[0][0], 0) : 0, end = history[history.length - 1][0];
  const first = history[0][0] > end / 2 ? history[0][0] : begin; // early steps are dropped from a long history
  const x = (tokens) => (width * (tokens - first)) / Math.max(end - first, 1);
  const points = history.map(([tokens, slots]) => [x(tokens), y(slots)]);
  od.line(context, points, ink, 1.5);
  context.lineTo(x(end), floor); // on from there, around what lies under the line
  context.lineTo(x(first), floor);
  context.globalAlpha = 0.25;
  context.fillStyle = ink;
  context.fill();
  context.globalAlpha = 1;
};
