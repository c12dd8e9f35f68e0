// Where the cells of a map lie: as one line across its strip, or as lines of a grid below each other. Zooming changes how
// many tokens a cell stands for; the lines are laid out again around one of them. No drawing, no events.
const LEFT = 46, RIGHT = 12, BELOW = 15; // numbers of pages and the bar that shows where one is; below a strip, numbers
const PITCHES = [16, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4], FINE = 8, CLOSER = [14, 24];
const TALLEST = 2; // times as high as wide, for the cells of all of the document

class Shape {
  constructor() { Object.assign(this, { width: 0, height: 0, numTokens: 0, isStrip: true, ladder: [], level: 0, scroll: 0 }); }

  /** Lays out a document in a box. */
  fit(numTokens, width, height, isStrip) {
    Object.assign(this, { numTokens, width, height, isStrip, left: isStrip ? 1 : LEFT });
    this.ladder = !numTokens || width < 2 * LEFT ? [] : isStrip ? [this.#line()] : this.#zooms();
    this.level = Math.min(this.level, Math.max(this.ladder.length - 1, 0));
  }

  /** The one zoom of a strip: all of the document, no more cells than pixels. */
  #line() {
    let size = 1;
    const width = this.width - 2 * this.left;
    while (Math.ceil(this.numTokens / size) > width) size *= 2;
    return { size, pitch: width / Math.ceil(this.numTokens / size), tall: Math.max(this.height - BELOW, 8) };
  }

  /** The ladder of zooms of a grid, from all of the document to single tokens. */
  #zooms() {
    const fits = (size, pitch) => Math.ceil(Math.ceil(this.numTokens / size) / this.#across(pitch)) * pitch <= this.height;
    let size = 1;
    while (!fits(size, PITCHES.at(-1)) && size < this.numTokens) size *= 2;
    const pitch = PITCHES.find((one) => fits(size, one)) ?? PITCHES.at(-1);
    const lines = Math.ceil(Math.ceil(this.numTokens / size) / this.#across(pitch));
    // Whole pixels would leave the foot of the box blank: these lines are as high as fills it.
    const tall = Math.max(Math.min(Math.floor((100 * this.height) / lines) / 100, TALLEST * pitch), pitch);
    const ladder = [{ size, pitch, tall }];
    for (size /= 2; size >= 1; size /= 2) ladder.push({ size, pitch: FINE });
    ladder.push(...[FINE, ...CLOSER].filter((pitch) => ladder.at(-1).size === 1 && pitch > ladder.at(-1).pitch)
      .map((pitch) => ({ size: 1, pitch })));
    return ladder.map((zoom) => ({ tall: zoom.pitch, ...zoom }));
  }

  #across(pitch) { return Math.max(Math.floor((this.width - LEFT - RIGHT) / pitch), 1); }

  get isReady() { return this.ladder.length > 0; }
  get zoom() { return this.ladder[this.level]; }
  get numCells() { return Math.ceil(this.numTokens / this.zoom.size); }
  get columns() { return this.isStrip ? this.numCells : this.#across(this.zoom.pitch); }
  get whole() { return Math.ceil(this.numCells / this.columns) * this.zoom.tall; } // pixels from top to foot
  get page() { return Math.max(Math.floor(this.height / this.zoom.tall) - 1, 1) * this.columns; } // cells of a screenful

  moveTo(y) { this.scroll = Math.min(Math.max(y, 0), Math.max(this.whole - this.height, 0)); }
  rowOf(token) { return Math.floor(token / this.zoom.size / this.columns); }
  /** Height of the middle of a token's line. */
  yOf(token) { return this.rowOf(token) * this.zoom.tall - this.scroll + this.zoom.tall / 2; }
  /** The middle of a token's cell, within the box; null where all of the cell is out of view. */
  pointOf(token) {
    const { size, pitch, tall } = this.zoom, y = this.yOf(token);
    const x = this.left + ((Math.floor(token / size) % this.columns) + 0.5) * pitch;
    if (token >= this.numTokens || y <= -tall / 2 || y >= this.height + tall / 2) return null;
    return { x, y: Math.min(Math.max(y, 0), this.height) };
  }
  /** The cell at a point, or -1. */
  cellAt(x, y) {
    const column = Math.floor((x - this.left) / this.zoom.pitch), row = Math.floor((y + this.scroll) / this.zoom.tall);
    const cell = row * this.columns + column;
    return column >= 0 && column < this.columns && row >= 0 && cell < this.numCells ? cell : -1;
  }
  spanOf(cell) {
    return { start: cell * this.zoom.size, stop: Math.min((cell + 1) * this.zoom.size, this.numTokens) };
  }
  /** Zooms so that a token stays at a height. */
  zoomTo(level, token, y) {
    this.level = Math.min(Math.max(level, 0), this.ladder.length - 1);
    this.moveTo(this.rowOf(token) * this.zoom.tall - y + this.zoom.tall / 2);
  }
  /** The token in the middle of what is in view. */
  get middle() {
    const row = Math.floor((this.scroll + Math.min(this.height, this.whole) / 2) / this.zoom.tall);
    return Math.min((row * this.columns + Math.floor(this.columns / 2)) * this.zoom.size, this.numTokens - 1);
  }
  /** The first and the last token in view, [first, last). */
  get view() {
    const { size, tall } = this.zoom, line = this.columns * size;
    const last = Math.min(Math.ceil((this.scroll + this.height) / tall) * line, this.numTokens);
    return [Math.min(Math.floor(this.scroll / tall) * line, last), last];
  }
  /** Rectangles of the tokens [start, stop), one a line, as far as they are in view: `draw(x, y, width)`. */
  eachLine(start, stop, draw) {
    const { size, pitch, tall } = this.zoom, across = this.columns;
    const first = Math.floor(start / size), last = Math.floor((stop - 1) / size);
    const from = Math.max(Math.floor(first / across), Math.floor(this.scroll / tall));
    const to = Math.min(Math.floor(last / across), Math.floor((this.scroll + this.height) / tall));
    for (let row = from; row <= to; row++) {
      const begin = Math.max(first - row * across, 0), end = Math.min(last - row * across, across - 1);
      draw(this.left + begin * pitch, row * tall - this.scroll, (end - begin + 1) * pitch);
    }
  }
}
od.MapShape = Shape;
