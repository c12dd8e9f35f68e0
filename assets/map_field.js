// Draws a map of a given shape: bands of lines are painted once and then only moved, so that it pans at the speed of the
// screen however long the document is. Over them: pages, the edge of reading, what was recalled, what is chosen.
const BAND = 16; // lines of a band
const KEPT_BANDS = 4; // before and after those in view
const LABEL = 30, FEW = 8; // pixels between two numbers of pages; cells of a page, at least, where its beginning is drawn
const GLOW = 26; // pixels before the edge of reading
const FONT = "11px system-ui, sans-serif";
const FADE_MS = 700; // in which what was dropped fades, and what was kept flashes

od.mapField = (canvas, shape, shownLayers) => {
  const { tokens } = od;
  let bands = new Map(), heat = null, inks = {}, stamp = "", shown = "", faded = null, cycle = 0;

  /** Paints all; tells whether everything that is in view is here and up to date. */
  const paint = (context, chosen) => {
    const { size, pitch, tall } = shape.zoom, across = shape.columns, total = shape.numCells, layers = shownLayers();
    const now = [size, pitch, tall, across, tokens.summary.document, layers, od.isExpert()].join();
    if (now !== stamp) { bands.clear(); stamp = now; }
    heat ??= od.heatOf(canvas);
    const first = Math.floor(shape.scroll / tall / BAND), last = Math.floor((shape.scroll + shape.height - 1) / tall / BAND);
    for (const index of bands.keys()) if (index < first - KEPT_BANDS || index > last + KEPT_BANDS) bands.delete(index);
    context.imageSmoothingEnabled = false;
    const paintBands = (bandAt) => {
      for (let index = first; index <= last && index * BAND * across < total; index++) {
        const band = bandAt(index), y = Math.round(index * BAND * tall - shape.scroll); // whole pixels: no seams
        const foot = Math.round((index * BAND + band.height) * tall - shape.scroll);
        context.drawImage(band, shape.left, y, across * pitch, foot - y);
      }
    };
    if (od.isWhole()) context.globalAlpha = 0.25; // one rectangle would say nothing: the words and pins over it do
    paintBands((index) => {
      if (!bands.has(index)) bands.set(index, bandOf(index, across, total, layers));
      return bands.get(index);
    });
    context.globalAlpha = 1;
    const place = `${stamp}@${shape.scroll}`, left = faded ? 1 - (performance.now() - faded.since) / FADE_MS : 0;
    if (left <= 0 || shown !== place) faded = null;
    else {
      context.globalAlpha = left;
      context.drawImage(faded.picture, 0, 0, shape.width, shape.height);
      context.globalAlpha = 0.8 * left;
      paintBands((index) => faded.flashes.get(index) ?? bandOf(index, across, total, layers, faded));
      context.globalAlpha = 1;
    }
    shown = place;
    paintPages(context);
    paintFrame(context);
    paintLit(context);
    paintEdge(context);
    paintPlace(context);
    if (chosen) paintChosen(context, chosen);
    const end = Math.min((last + 1) * BAND * across, total) - 1, { TILE } = tokens;
    let isSettled = Boolean(tokens.pages);
    for (let tile = Math.floor((first * BAND * across) / TILE); tile * TILE <= end; tile++) {
      isSettled &&= tokens.isCurrent(size, tile);
    }
    return isSettled;
  };

  /** Lines of cells as a picture of one pixel a cell. What is not here yet is taken from a coarser zoom. */
  const bandOf = (index, across, total, layers, flash = null) => {
    const begin = index * BAND * across, end = Math.min(begin + BAND * across, total), { TILE } = tokens;
    const picture = od.cellPicture(across, Math.ceil((end - begin) / across), (pixels) => {
      for (let cell = begin; cell < end;) {
        const tile = Math.floor(cell / TILE), count = Math.min((tile + 1) * TILE, end) - cell;
        const found = tokens.nearest(shape.zoom.size, tile), style = od.isExpert() ? layers : Boolean(flash);
        const paintAll = od.isExpert() && !flash ? od.paintCells : od.paintStates;
        if (found) paintAll(pixels, cell - begin, count, found.bytes, cell - found.first, found.ratio, heat, style);
        cell += count;
      }
    });
    flash?.flashes.set(index, picture);
    return picture;
  };

  /** New bytes have come. Where the pot was thinned out meanwhile, what is gone fades, and what was kept flashes. */
  const renew = () => {
    bands.clear();
    const now = tokens.look.cycle ?? tokens.summary?.last_cycle, isNew = now !== cycle;
    cycle = now;
    if (!isNew || !tokens.summary || od.calm.matches || !shown || !canvas.width || !canvas.height) return;
    const picture = document.createElement("canvas");
    [picture.width, picture.height] = [canvas.width, canvas.height];
    picture.getContext("2d").drawImage(canvas, 0, 0);
    faded = { picture, since: performance.now(), flashes: new Map() };
    canvas.dataset.flashed = cycle;
  };

  // Asking for a style lays out the page: once for each colour, until the theme changes.
  const ink = (name) => inks[name] ??= od.colour(canvas, name);

  /** How far the document goes, also where it is not read yet. */
  const paintFrame = (context) => {
    const { pitch, tall } = shape.zoom, lines = Math.ceil(shape.numCells / shape.columns);
    context.strokeStyle = ink("line");
    context.lineWidth = 1;
    context.strokeRect(shape.left - 0.5, 0.5 - shape.scroll, shape.columns * pitch + 1, lines * tall - 1);
  };

  const paintPages = (context) => {
    if (!tokens.pages) return;
    context.font = FONT;
    context.fillStyle = ink("quiet");
    context.textBaseline = "middle";
    const { starts, numbers } = tokens.pages, { size, tall } = shape.zoom, [from, to] = shape.view;
    const first = tokens.pageIndex(from), last = tokens.pageIndex(to - 1);
    const isDrawn = (last - first) * FEW * size <= to - from;
    let free = -Infinity, shown = -1;
    context.textAlign = shape.isStrip ? "left" : "right";
    if (shape.isStrip) {
      for (let page = first; page <= last; page++) {
          const { x } = shape.pointOf(starts[page]) ?? {}, text = od.words(od.number(numbers[page]));
        if (x === undefined || x < free || x + context.measureText(text).width > shape.width) continue;
        context.fillText(text, Math.floor(x), tall + 8);
        free = x + Math.max(context.measureText(text).width + 12, LABEL);
      }
    } else {
      for (let row = Math.floor(shape.scroll / tall); row * shape.columns < shape.numCells; row++) {
        const y = row * tall - shape.scroll + tall / 2, page = tokens.pageIndex(row * shape.columns * size);
        if (y > shape.height - 4) break;
        if (page === shown || y < free || y < 0) continue;
        // A line may be lower than its number: the topmost would lose its upper half.
        context.fillText(od.words(od.number(numbers[page])), shape.left - 8, Math.max(y, 6));
        [shown, free] = [page, y + 14];
      }
    }
    if (!isDrawn) return;
    context.fillStyle = ink("page");
    for (let page = Math.max(first, 1); page <= last; page++) {
      shape.eachLine(starts[page], starts[page] + 1, (x, y) => context.fillRect(Math.floor(x) - 1, y, 2, tall));
    }
  };

  /** Where reading stands: a bright edge, and blank after it. */
  const paintEdge = (context) => {
    const { num_read: read, num_tokens: total } = tokens.summary, { tall } = shape.zoom;
    if (!read || read >= total || tokens.look.cycle !== null) return;
    shape.eachLine(read, read + 1, (x, y) => {
      const ahead = Math.min(GLOW, shape.left + shape.columns * shape.zoom.pitch - x);
      const glow = context.createLinearGradient(x, 0, x + GLOW, 0);
      glow.addColorStop(0, `${ink("lit")}c0`);
      glow.addColorStop(1, `${ink("lit")}00`);
      context.fillStyle = glow;
      context.fillRect(x, y, ahead, tall);
      context.fillStyle = ink("lit");
      context.fillRect(x, y, 3, tall);
    });
  };

  /** What came back into the pot for the answer that is being written. */
  const paintLit = (context) => {
    const { tall } = shape.zoom;
    context.lineWidth = 2;
    for (const [start, stop] of tokens.summary.lit ?? []) {
      shape.eachLine(start, stop, (x, y, width) => {
        const wide = Math.max(width, 4);
        context.fillStyle = `${ink("lit")}80`;
        context.fillRect(x, y, wide, tall);
        context.strokeStyle = ink("lit");
        context.strokeRect(x + 0.5, y + 1, wide - 1, tall - 2);
      });
    }
  };

  /** Which part of the document is in view. */
  const paintPlace = (context) => {
    const { whole, height, width, scroll } = shape;
    if (shape.isStrip || whole <= height) return;
    const thumb = Math.max((height * height) / whole, 12), y = (scroll / (whole - height)) * (height - thumb);
    context.fillStyle = ink("line");
    context.fillRect(width - 7, 0, 5, height);
    context.fillStyle = ink("quiet");
    context.fillRect(width - 7, y, 5, thumb);
  };

  const paintChosen = (context, { start, stop }) => {
    const { tall } = shape.zoom;
    shape.eachLine(start, stop, (x, y, width) => {
      for (const [colour, thick] of [["ground", 4], ["ceiling", 2]]) { // an edge that is seen on every colour
        context.strokeStyle = ink(colour);
        context.lineWidth = thick;
        context.strokeRect(x - 1, Math.max(y - 1, 1), Math.max(width, 2) + 2, tall + (y < 1 ? 0 : 2));
      }
    });
  };

  return { paint, renew, forget: () => { bands.clear(); heat = null; inks = {}; }, isFading: () => Boolean(faded),
    stale: () => bands.clear() };
};
