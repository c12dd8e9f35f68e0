// The time of every chunk by stage with the speed over it, and what an answer read of the pot, head by head.
(() => {
  "use strict";
  const od = window.ondevice;
  const TOP = 20, BOTTOM = 18, HEIGHT = 124;

  od.chunks = (element, props, watch) => {
    const panel = element.querySelector(".od-panel"), canvas = element.querySelector("canvas");
    const output = element.querySelector(".od-readout"), facts = element.querySelector(".od-facts");
    let value = null;
    const total = ([, , , ...stages]) => stages.reduce((sum, part) => sum + part, 0);
    const speed = (chunk) => (total(chunk) ? (1000 * (chunk[1] - chunk[0])) / total(chunk) : 0);
    const milliseconds = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

    const paint = od.canvasOf(canvas, HEIGHT, (context, width, height) => {
      if (!value) return;
      const floor = height - BOTTOM, chunks = value.chunks, pitch = Math.min(width / chunks.length, 40);
      const gap = pitch > 4 ? 1 : 0, longest = Math.max(...chunks.map(total), 1e-9);
      const fastest = Math.max(...chunks.map(speed), 1e-9);
      const inks = styles(context, canvas);
      chunks.forEach((chunk, i) => {
        let y = floor;
        chunk.slice(3).forEach((part, stage) => {
          const tall = ((floor - TOP) * part) / longest;
          context.fillStyle = inks[stage];
          context.fillRect(i * pitch, y - tall, pitch - gap, tall);
          y -= tall;
        });
        if (i === chosen.index) od.frame(context, canvas, i * pitch, y, pitch - gap, floor - y);
      });
      context.fillStyle = od.colour(canvas, "line");
      context.fillRect(0, floor, width, 1);
      context.strokeStyle = od.colour(canvas, "tick");
      context.lineWidth = 1.5;
      context.setLineDash([4, 2]);
      context.beginPath();
      chunks.forEach((chunk, i) => {
        const y = floor - ((floor - TOP) * speed(chunk)) / fastest;
        context[i ? "lineTo" : "moveTo"]((i + 0.5) * pitch - gap / 2, y);
      });
      context.stroke();
      context.setLineDash([]);
      context.font = "11px system-ui, sans-serif";
      context.fillStyle = od.colour(canvas, "quiet");
      context.textAlign = "left";
      context.fillText(`longest: ${milliseconds(longest)}`, 0, TOP - 7);
      context.fillText("chunk by chunk", 0, height - 4);
      context.textAlign = "right";
      context.fillText(`dashed: speed, up to ${od.number(Math.round(fastest))} tokens/s`, width, TOP - 7);
    });

    const describe = (i) => {
      if (!value) return "";
      if (i < 0) return "Point at a bar, or use the arrow keys, for its numbers.";
      const chunk = value.chunks[i], [start, stop, count, ...stages] = chunk;
      const times = value.stages.map((label, stage) => `${label.toLowerCase()} ${milliseconds(stages[stage])}`);
      return `Tokens ${od.number(start + 1)}–${od.number(stop)}${count > 1 ? ` (${count} chunks)` : ""}: `
        + `${times.filter((_, stage) => stages[stage] > 0).join(", ")}; ${od.number(Math.round(speed(chunk)))} tokens/s.`;
    };
    const chosen = od.readout(canvas, output, {
      count: () => value?.chunks.length ?? 0,
      at: (x) => {
        if (!value) return -1;
        const i = Math.floor(x / Math.min(canvas.clientWidth / value.chunks.length, 40));
        return i >= 0 && i < value.chunks.length ? i : -1;
      },
      describe,
      paint,
    });

    od.follow(props, watch, (now) => {
      value = now?.chunks ? now : null;
      panel.hidden = !value;
      canvas.setAttribute("aria-label", value ? `${value.facts.join(". ")}. Arrow keys read the bars.` : "Nothing read");
      facts.replaceChildren(...(value?.facts ?? []).map((text) => od.textElement("span", text)));
      chosen.refresh();
    });
  };

  /** A colour or a pattern for each stage, as in the legend. */
  const styles = (context, canvas) => [
    od.colour(canvas, "kept-3"), od.hatch(context, od.colour(canvas, "novel"), 4), od.colour(canvas, "kept-4"),
    od.hatch(context, od.colour(canvas, "quiet"), 3), od.colour(canvas, "kept-2"),
  ];

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
