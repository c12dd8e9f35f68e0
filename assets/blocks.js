// What an answer read of the pot, head by head.
(() => {
  "use strict";
  const od = window.ondevice;

  od.blocks = (element, props, watch) => {
    const panel = element.querySelector(".od-panel"), canvas = element.querySelector("canvas");
    const output = element.querySelector(".od-readout"), facts = element.querySelector(".od-facts");
    let value = null;
    const heads = () => value?.layers[0]?.length ?? 0;
    const side = () => Math.max(Math.min(Math.floor(canvas.clientWidth / (value?.layers.length ?? 1)), 18), 3);

    const paint = od.canvasOf(canvas, () => heads() * side() + 2, (context) => {
      if (!value) return;
      const size = side();
      value.layers.forEach((layer, i) => layer.forEach((share, head) => {
        const x = i * size, y = head * size + 1, tall = (size - 1) * share;
        context.fillStyle = od.colour(canvas, "kept-0");
        context.fillRect(x, y, size - 1, size - 1);
        context.fillStyle = od.colour(canvas, "kept-3"); // as high as the share that was read
        context.fillRect(x, y + size - 1 - tall, size - 1, tall);
        if (chosen.index === i * heads() + head) od.frame(context, canvas, x, y, size - 1, size - 1);
      }));
    });

    const describe = (i) => {
      if (!value) return "";
      if (i < 0) return "A column for each layer, a row for each head. The fuller a cell, the more of the pot was read.";
      const layer = Math.floor(i / heads()), head = i % heads();
      return `Layer ${layer + 1}, head ${head + 1}: ${Math.round(100 * value.layers[layer][head])} % of its blocks read.`;
    };
    const chosen = od.readout(canvas, output, {
      count: () => (value?.layers.length ?? 0) * heads(),
      at: (x, y) => {
        const layer = Math.floor(x / side()), head = Math.floor(y / side());
        return value && layer >= 0 && layer < value.layers.length && head >= 0 && head < heads()
          ? layer * heads() + head : -1;
      },
      describe,
      paint,
    });

    od.follow(props, watch, (now) => {
      value = now?.layers ? now : null;
      panel.hidden = !value;
      canvas.setAttribute("aria-label", value ? `${value.text}. Arrow keys read the heads.` : "");
      facts.replaceChildren(...(value ? [od.textElement("span", value.text)] : []));
      chosen.refresh();
    });
  };
})();
