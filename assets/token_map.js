// The token map: the document as lines of cells, dark where many (layer, head) pairs of the model still keep it.
// Cells come as bytes (see ondevice/ui/token_map.py); nothing of the document's text is here.
(() => {
  "use strict";
  const od = window.ondevice;
  const NOVEL = 1, UNREAD = 2, SKIPPED = 4, FULL = 65535;
  const GUTTER = 34, GAP = 1, MAX_HEIGHT = 262, SMALLEST = 4, LARGEST = 14;

  /** Which of the five steps of the legend a share (0..FULL) is. */
  const step = (share) => {
    if (!share) return 0;
    const part = share / FULL;
    return part <= 0.01 ? 1 : part <= 0.1 ? 2 : part <= 0.5 ? 3 : 4;
  };

  const decode = (value) => ({
    numTokens: value.num_tokens,
    size: value.tokens_per_cell,
    unit: value.unit,
    firstPages: new Uint32Array(od.bytesOf(value.first_pages).buffer),
    lastPages: new Uint32Array(od.bytesOf(value.last_pages).buffer),
    shares: new Uint16Array(od.bytesOf(value.shares).buffer),
    flags: od.bytesOf(value.flags),
  });

  /** The largest square cells with which all of them fit into the panel. */
  const gridFor = (numCells, width) => {
    for (let side = LARGEST; side >= SMALLEST; side--) {
      const columns = Math.floor((width - GUTTER) / (side + GAP));
      const rows = Math.ceil(numCells / columns);
      if (rows * (side + GAP) <= MAX_HEIGHT || side === SMALLEST) return { side, columns, rows };
    }
    return null;
  };

  const describe = (cells, i) => {
    const first = i * cells.size, last = Math.min(first + cells.size, cells.numTokens) - 1;
    const pages = cells.firstPages[i] === cells.lastPages[i]
      ? `${cells.unit} ${od.number(cells.firstPages[i])}`
      : `${cells.unit}s ${od.number(cells.firstPages[i])}–${od.number(cells.lastPages[i])}`;
    const tokens = first === last ? `Token ${od.number(first + 1)}`
      : `Tokens ${od.number(first + 1)}–${od.number(last + 1)}`;
    const flags = cells.flags[i], percent = (100 * cells.shares[i]) / FULL;
    const share = flags & UNREAD ? "not read yet"
      : flags & SKIPPED ? "skipped"
      : !cells.shares[i] ? "evicted everywhere"
      : `${percent < 0.1 ? "under 0.1" : percent < 10 ? percent.toFixed(1) : Math.floor(percent)} % still kept`;
    return `${tokens} · ${pages} · ${share}${flags & NOVEL ? ", some because they were new" : ""}`;
  };

  od.map = (element, props, watch) => {
    const canvas = element.querySelector(".od-map"), readout = element.querySelector(".od-readout");
    let cells = null, grid = null, chosen = -1;

    const paint = od.canvasOf(canvas, (width) => {
      grid = cells && gridFor(cells.flags.length, width);
      return grid ? grid.rows * (grid.side + GAP) + 2 : 120;
    }, (context, width, height) => {
      if (!grid) {
        context.strokeStyle = od.colour(canvas, "line");
        context.setLineDash([4, 4]);
        context.strokeRect(0.5, 0.5, width - 1, height - 1);
        return;
      }
      const inks = [0, 1, 2, 3, 4].map((i) => od.colour(canvas, `kept-${i}`));
      const unread = od.hatch(context, od.colour(canvas, "unread"), 4);
      const novel = od.colour(canvas, "novel"), quiet = od.colour(canvas, "quiet"), line = od.colour(canvas, "line");
      const { side, columns } = grid, pitch = side + GAP;
      context.font = "10px system-ui, sans-serif";
      context.textBaseline = "middle";
      context.textAlign = "right";
      let labelled = -1, labelBottom = -99;
      for (let i = 0; i < cells.flags.length; i++) {
        const column = i % columns, row = Math.floor(i / columns);
        const x = GUTTER + column * pitch, y = row * pitch + 1;
        const flags = cells.flags[i];
        context.fillStyle = flags & UNREAD ? unread : flags & SKIPPED ? line : inks[step(cells.shares[i])];
        context.fillRect(x, y, side, side);
        if (flags & SKIPPED) { // a cross
          context.strokeStyle = quiet;
          context.beginPath();
          context.moveTo(x, y); context.lineTo(x + side, y + side);
          context.moveTo(x + side, y); context.lineTo(x, y + side);
          context.stroke();
        }
        if (flags & NOVEL) { // underlined
          const thick = Math.max(Math.round(side / 3), 1);
          context.fillStyle = novel;
          context.fillRect(x, y + side - thick, side, thick);
        }
        const page = cells.firstPages[i];
        if (column === 0 && page !== labelled && y > labelBottom) { // the page that the line begins on
          context.fillStyle = quiet;
          context.fillText(od.number(page), GUTTER - 7, y + Math.max(side, 10) / 2);
          [labelled, labelBottom] = [page, y + 11];
        }
        if (i && (page !== cells.firstPages[i - 1] || page !== cells.lastPages[i - 1])) { // a page begins
          context.fillStyle = od.colour(canvas, "tick");
          context.fillRect(x - GAP, y - 1, Math.max(GAP, 1.5), side + 2);
        }
      }
      if (chosen >= 0 && chosen < cells.flags.length) {
        context.strokeStyle = od.colour(canvas, "ceiling");
        context.lineWidth = 2;
        context.strokeRect(
          GUTTER + (chosen % columns) * pitch - 1, Math.floor(chosen / columns) * pitch, side + 2, side + 2);
      }
    });

    const choose = (i) => {
      if (!cells || i === chosen) return;
      chosen = i;
      showReadout();
      paint();
    };
    const showReadout = () => {
      readout.textContent = !cells ? ""
        : chosen >= 0 && chosen < cells.flags.length ? describe(cells, chosen)
        : `${od.number(cells.size)} token${cells.size === 1 ? "" : "s"} a cell; the numbers count ${cells.unit}s. `
          + "Point at a cell for more.";
    };
    const cellAt = (event) => {
      const box = canvas.getBoundingClientRect(), pitch = grid.side + GAP;
      const column = Math.floor((event.clientX - box.left - GUTTER) / pitch);
      const i = Math.floor((event.clientY - box.top - 1) / pitch) * grid.columns + column;
      return column >= 0 && column < grid.columns && i < cells.flags.length ? i : -1;
    };
    canvas.addEventListener("pointermove", (event) => grid && choose(cellAt(event)));
    canvas.addEventListener("pointerleave", () => choose(-1));
    canvas.addEventListener("keydown", (event) => {
      if (!grid) return;
      const jump = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: grid.columns, ArrowUp: -grid.columns }[event.key];
      if (!jump) return;
      event.preventDefault();
      choose(Math.min(Math.max(chosen + jump, 0), cells.flags.length - 1));
    });

    od.follow(props, watch, (value) => {
      cells = value && decode(value);
      const numKept = cells ? cells.shares.reduce((sum, share) => sum + (share > 0), 0) : 0;
      canvas.setAttribute("aria-label", cells
        ? `${od.number(cells.flags.length)} cells; tokens of ${od.number(numKept)} of them are still kept. `
          + "Arrow keys move from cell to cell."
        : "No document yet");
      canvas.dataset.cells = cells ? cells.flags.length : 0;
      canvas.dataset.kept = numKept;
      showReadout();
      paint();
    });
  };
})();
