// Colours of the token map: a smooth field of three states, remembered, outside, dropped; for experts one scale of how
// many heads still hold a cell, and layers that are laid over it.
// Cells are painted as pixels of a small picture, one each, which the map enlarges: thousands of them in a millisecond.
const S = od.STATE;
const STOPS = 6, WEAKEST = 64; // colours of the scale; the byte of 0.1 % of the heads, four decades being 0..255
const BYTES = 2, KEPT = 2, HOST = 4; // of a cell, before one of what is kept, and one for every layer

/** What can be laid over the field, in the order of the bytes of ondevice/serving/token_map.py. */
od.LAYERS = [
  { name: "novel", text: "kept for being new", most: 1 },
  { name: "host", text: "waits in host memory", most: 0.5 },
  { name: "pruned", text: "pruned on the way", most: 0.7 },
  { name: "skipped", text: "skipped", most: 0.7 },
]; // `most` of its colour: what covers most of a document is only tinted
od.CELL_BYTES = BYTES + 1 + od.LAYERS.length;

const rgb = (text) => text.match(/[0-9a-f]{2}/gi).map((pair) => parseInt(pair, 16));
const packed = ([red, green, blue], alpha = 255) => ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0;
const between = (a, b, part) => a.map((value, i) => Math.round(value + (b[i] - value) * part));

/** The palette of an element: `scale` has a colour for every strength, `lost` that of what nothing holds. */
od.heatOf = (element) => {
  const stops = Array.from({ length: STOPS }, (_, i) => rgb(od.colour(element, `heat-${i}`)));
  const scale = new Uint32Array(256);
  for (let byte = 0; byte < 256; byte++) {
    const at = (Math.max(byte - WEAKEST, 0) / (255 - WEAKEST)) * (STOPS - 1), low = Math.min(Math.floor(at), STOPS - 2);
    scale[byte] = packed(between(stops[low], stops[low + 1], at - low));
  }
  const layers = od.LAYERS.map(({ name, most }) => ({ ink: rgb(od.colour(element, `layer-${name}`)), most }));
  const states = ["remembered", "outside", "lost-cell"].map((name) => rgb(od.colour(element, name)));
  return { scale, lost: packed(states[2]), layers, states, lit: rgb(od.colour(element, "lit")) };
};

/** The field's own colour of a cell; 0, which is nothing, where it was not read. */
const fieldColour = (heat, state, byte) => {
  if (state >= S.KEPT) return heat.scale[byte];
  return state === S.UNREAD || state === S.SKIPPED ? 0 : heat.lost;
};

/** A colour with some of a layer's over it: the more, the larger the part of its tokens (0..255) that are in it. */
const covered = (colour, { ink, most }, part) => {
  const weight = most * (0.25 + 0.75 * Math.sqrt(part / 255));
  if (!colour) return packed(ink, Math.round(255 * weight));
  const under = [colour & 255, (colour >> 8) & 255, (colour >> 16) & 255];
  return packed(between(under, ink, weight));
};

/** Paints `count` cells into `pixels` from `to` on, as those of a tile from its cell `from` on.
 *  The tile may be coarser: each of its cells then stands for `ratio` of them. */
od.paintCells = (pixels, to, count, tile, from, ratio, heat, layers) => {
  const held = Math.floor(tile.length / od.CELL_BYTES);
  for (let cell = 0; cell < count; cell++) {
    const at = Math.floor((from + cell) / ratio);
    if (at >= held) return;
    let colour = fieldColour(heat, tile[BYTES * at] & 15, tile[BYTES * at + 1]);
    for (const layer of layers) {
      const part = tile[(BYTES + 1 + layer) * held + at];
      if (part) colour = covered(colour, heat.layers[layer], part);
    }
    pixels[to + cell] = colour;
  }
};

/** As `paintCells`, in three states: each cell with half of its neighbours', so that what stands alone is no noise.
 *  With `flashes` only what is remembered is painted, in the colour of a flash. */
od.paintStates = (pixels, to, count, tile, from, ratio, heat, flashes) => {
  const held = Math.floor(tile.length / od.CELL_BYTES), [remembered, outside, dropped] = heat.states;
  const isRead = (at) => at >= 0 && at < held && (tile[BYTES * at] & 15) !== S.UNREAD;
  const smooth = (plane, at) => {
    let sum = 2 * tile[plane * held + at], weight = 2;
    for (let near = at - 1; near <= at + 1; near += 2) {
      if (isRead(near)) { sum += tile[plane * held + near]; weight++; }
    }
    return Math.sqrt(sum / (255 * weight)); // a few tokens of many are to be seen
  };
  const mixed = (host, kept) => {
    let colour = 255 << 24;
    for (let i = 0; i < 3; i++) {
      const under = dropped[i] + (outside[i] - dropped[i]) * host;
      colour |= Math.round(under + (remembered[i] - under) * kept) << (8 * i);
    }
    return colour;
  };
  for (let cell = 0; cell < count; cell++) {
    const at = Math.floor((from + cell) / ratio);
    if (at >= held) return;
    if (!isRead(at)) continue;
    const kept = smooth(KEPT, at);
    pixels[to + cell] = flashes ? packed(heat.lit, Math.round(255 * kept))
      : mixed(smooth(HOST, at), kept);
  }
};

/** A picture of lines of cells, one pixel each: `paint(pixels)` fills it. */
od.cellPicture = (across, lines, paint) => {
  const picture = document.createElement("canvas"), pen = picture.getContext("2d");
  [picture.width, picture.height] = [across, lines];
  const image = pen.createImageData(across, lines);
  paint(new Uint32Array(image.data.buffer));
  pen.putImageData(image, 0, 0);
  return picture;
};
