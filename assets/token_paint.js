// How a cell of the token map looks: a colour and a pattern for every state, stronger where more heads keep it.
// The legend is painted by the same code as the map.
(() => {
  "use strict";
  const od = window.ondevice;
  const S = od.STATE;
  const TINTS = 24;
  // Where the colours of the legend stand on the log scale of a cell's second byte (four decades on 0..255):
  // 0.1 %, 3 %, 22 %, 75 %: the middles of their ranges.
  const ANCHORS = [64, 159, 214, 247];

  const rgb = (text) => {
    const hex = text.match(/[0-9a-f]{2}/gi);
    return hex.map((pair) => parseInt(pair, 16));
  };
  const mixed = (a, b, part) => `rgb(${a.map((value, i) => Math.round(value + (b[i] - value) * part)).join(",")})`;

  /** The colour of a strength byte, between those of the legend. */
  const tint = (inks, byte) => {
    if (byte <= ANCHORS[0]) return mixed(inks[0], inks[1], 0.4 + 0.6 * (byte / ANCHORS[0]));
    for (let i = 1; i < ANCHORS.length; i++) {
      if (byte <= ANCHORS[i]) return mixed(inks[i], inks[i + 1], (byte - ANCHORS[i - 1]) / (ANCHORS[i] - ANCHORS[i - 1]));
    }
    return mixed(inks[4], inks[4], 0);
  };

  /** Draws one cell with its top left corner at 0, 0. */
  const drawCell = (pen, side, state, byte, palette) => {
    const { inks, mark, novel, recent, sink, line } = palette;
    const thin = Math.max(Math.round(side / 8), 1), third = Math.max(Math.round(side / 3), 1);
    const isKept = state >= S.KEPT;
    if (state !== S.UNREAD) {
      pen.fillStyle = isKept ? tint(inks, byte) : mixed(inks[0], inks[0], 0);
      pen.fillRect(0, 0, side, side);
    }
    pen.strokeStyle = pen.fillStyle = mark;
    pen.lineWidth = thin;
    const stroke = (...points) => {
      pen.beginPath();
      points.forEach(([x, y], i) => pen[i % 2 ? "lineTo" : "moveTo"](x, y));
      pen.stroke();
    };
    if (state === S.UNREAD) { // an empty frame
      pen.strokeStyle = line;
      pen.strokeRect(thin / 2, thin / 2, side - thin, side - thin);
    } else if (state === S.SKIPPED) { // a cross
      stroke([0, 0], [side, side], [side, 0], [0, side]);
    } else if (state === S.PRUNED) { // a slash
      stroke([0, side], [side, 0]);
    } else if (state === S.IN_HOST) { // a point in the middle
      const size = Math.max(third, 2);
      pen.fillRect(Math.floor((side - size) / 2), Math.floor((side - size) / 2), size, size);
    } else if (state === S.NOVEL) { // underlined
      pen.fillStyle = novel;
      pen.fillRect(0, side - third, side, third);
    } else if (state === S.RECENT) { // a bar on the left
      pen.fillStyle = recent;
      pen.fillRect(0, 0, third, side);
    } else if (state === S.SINK) { // framed
      pen.strokeStyle = sink;
      pen.lineWidth = Math.max(thin, 1.5);
      pen.strokeRect(pen.lineWidth / 2, pen.lineWidth / 2, side - pen.lineWidth, side - pen.lineWidth);
    }
  };

  const paletteOf = (element) => ({
    inks: [0, 1, 2, 3, 4].map((i) => rgb(od.colour(element, `kept-${i}`))),
    mark: od.colour(element, "lost"),
    novel: od.colour(element, "novel"),
    recent: od.colour(element, "recent"),
    sink: od.colour(element, "sink"),
    line: od.colour(element, "unread"),
  });

  /** Pictures of all cells of a size, made when they are first needed: `picture(state, strength)`. */
  od.cellPictures = (element, side, scale) => {
    const palette = paletteOf(element), made = new Map();
    return (state, byte) => {
      const step = state >= od.STATE.KEPT ? Math.ceil((byte * TINTS) / 255) : 0;
      const key = state * (TINTS + 1) + step;
      let picture = made.get(key);
      if (!picture) {
        picture = document.createElement("canvas");
        picture.width = picture.height = Math.max(Math.round(side * scale), 1);
        const pen = picture.getContext("2d");
        pen.scale(picture.width / side, picture.height / side);
        drawCell(pen, side, state, (step * 255) / TINTS, palette);
        made.set(key, picture);
      }
      return picture;
    };
  };

  const LEGEND = [
    [S.KEPT, 250, "kept by over 50 % of the heads"],
    [S.KEPT, 214, "10–50 %"],
    [S.KEPT, 159, "1–10 %"],
    [S.KEPT, 64, "up to 1 %"],
    [S.NOVEL, 159, "kept because it was new"],
    [S.RECENT, 250, "recent: not selected yet"],
    [S.SINK, 250, "always kept"],
    [S.EVICTED, 0, "evicted"],
    [S.IN_HOST, 0, "evicted, waits in host memory"],
    [S.PRUNED, 0, "pruned on the way"],
    [S.SKIPPED, 0, "skipped"],
    [S.UNREAD, 0, "not read yet"],
  ];

  /** Fills the list with one entry for every state. */
  od.cellLegend = (list) => {
    const side = 13;
    const swatches = LEGEND.map(([state, byte, text]) => {
      const item = od.textElement("li", ""), swatch = document.createElement("canvas");
      swatch.setAttribute("aria-hidden", "true");
      item.append(swatch, od.textElement("span", text));
      list.append(item);
      return () => {
        const scale = window.devicePixelRatio || 1, pen = swatch.getContext("2d");
        swatch.width = swatch.height = Math.round(side * scale);
        pen.scale(swatch.width / side, swatch.height / side);
        drawCell(pen, side, state, byte, paletteOf(list));
      };
    });
    od.onTheme(() => swatches.forEach((draw) => draw()));
  };
})();
