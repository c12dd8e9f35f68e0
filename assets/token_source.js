// What the token map and the reading view have in common: what is known of the document's tokens, which moment and
// which part of the model is looked at, and the requests for what is not here yet. Only what is visible is asked for.
const TILE = 8192; // cells of one request: 57 kB
const KEPT_TILES = 48, PAUSE_MS = 110; // between two requests for the same tile: below ten a second
const RETRY_MS = 1000, LONGEST_MS = 30_000; // a request that failed is made again, later each time

// The numbers of ondevice/serving/token_map.py.
od.STATE = { UNREAD: 0, SKIPPED: 1, EVICTED: 2, PRUNED: 3, IN_HOST: 4, KEPT: 5, NOVEL: 6, RECENT: 7, SINK: 8 };

const listeners = new Set();
const tell = (what) => listeners.forEach((listener) => listener(what));
const nothing = () => ({ cycle: null, layer: null, head: null });
const tiles = new Map();

const tokens = {
  summary: null, // see TokenView.summary
  look: nothing(),
  pages: null, // { numbers, starts }: typed arrays, once they are here
  TILE,
};

/** Calls `listener(what)` when "document", "reading", "cells", "look", "pages" or "tile" changed. */
tokens.listen = (listener) => listeners.add(listener);

/** A text that stays the same as long as what is shown does: while the past is looked at, news change nothing. */
tokens.stamp = () => {
  const { summary, look } = tokens;
  return look.cycle === null ? `${summary.revision}/${look.layer}/${look.head}` : `${summary.reading}@${look.cycle}`;
};

/** Asks this program for something about the document, as it is looked at or by another `look`; gives the response, or
 *  null where there is none. */
tokens.ask = async (name, values, look = tokens.look) => {
  const { summary } = tokens;
  if (!summary) return null;
  const query = new URLSearchParams(values);
  for (const part of ["cycle", "layer", "head"]) if (look[part] !== null) query.set(part, look[part]);
  try {
    const response = await od.request(`${name}?${query}`, { headers: { "x-ondevice-workspace": summary.workspace } });
    return response.status === 200 && tokens.summary?.document === summary.document ? response : null;
  } catch {
    return null; // the program was stopped: the page keeps what it has
  }
};

/** The newest bytes that are here of a tile of cells of `size` tokens, or null; asks for newer ones if there are. */
tokens.tile = (size, index) => {
  const key = `${size}:${index}`, stamp = tokens.stamp();
  const tile = tiles.get(key) ?? { bytes: null, stamp: "", isAsked: false, asked: -PAUSE_MS, failures: 0 };
  tiles.delete(key);
  tiles.set(key, tile); // the last used come last
  if (tiles.size > KEPT_TILES) tiles.delete(tiles.keys().next().value);
  if (tile.stamp !== stamp && !tile.isAsked) {
    tile.isAsked = true;
    const pause = tile.failures ? retryAfter(tile.failures) : PAUSE_MS;
    setTimeout(() => load(tile, size, index), Math.max(tile.asked + pause - performance.now(), 0));
  }
  return tile.bytes;
};

/** What is here of a tile, or, until that comes, of the finest coarser zoom: bytes that begin with the cell `first`,
 *  each of which stands for `ratio` cells of the tile; null where there is nothing. */
tokens.nearest = (size, index) => {
  let bytes = tokens.tile(size, index), ratio = 1, at = index;
  const most = tokens.summary.num_tokens / size;
  while (!bytes && ratio < most) {
    [ratio, at] = [2 * ratio, at >> 1];
    bytes = tiles.get(`${size * ratio}:${at}`)?.bytes ?? null;
  }
  return bytes && { bytes, ratio, first: at * TILE * ratio };
};
const retryAfter = (failures) => Math.min(RETRY_MS * 2 ** (failures - 1), LONGEST_MS);

/** Whether the bytes that are here of a tile are the newest. */
tokens.isCurrent = (size, index) => tiles.get(`${size}:${index}`)?.stamp === tokens.stamp();

const load = async (tile, size, index) => {
  const stamp = tokens.summary ? tokens.stamp() : "";
  tile.asked = performance.now();
  const start = index * TILE * size, total = tokens.summary?.num_tokens ?? 0;
  const response = start < total && await tokens.ask("cells", { start, stop: Math.min(start + TILE * size, total), size });
  if (response) {
    tile.bytes = new Uint8Array(await response.arrayBuffer());
    tile.stamp = stamp;
  }
  tile.isAsked = false;
  tile.failures = response ? 0 : tile.failures + 1;
  if (start < total) tell("tile"); // a view that still needs a tile that failed asks for it again
};

const loadPages = async (failures = 0) => {
  const { document, num_pages } = tokens.summary;
  const numbers = new Uint32Array(num_pages), starts = new Uint32Array(num_pages);
  for (let first = 0; first < num_pages;) {
    const response = await tokens.ask("pages", { first });
    const pairs = new Uint32Array(response ? await response.arrayBuffer() : 0);
    if (tokens.summary?.document !== document) return; // closed meanwhile
    if (!pairs.length) {
      const again = () => { if (tokens.summary?.document === document && !tokens.pages) loadPages(failures + 1); };
      return setTimeout(again, retryAfter(failures + 1));
    }
    for (let i = 0; i < pairs.length / 2; i++) [numbers[first + i], starts[first + i]] = [pairs[2 * i], pairs[2 * i + 1]];
    first += pairs.length / 2;
  }
  tokens.pages = { numbers, starts };
  tell("pages");
};

/** Index of the page that a token is on. */
tokens.pageIndex = (token) => od.lastUpTo(tokens.pages.starts, token);

/** The first token of the page at an index, and the one after its last. */
tokens.pageSpan = (index) => [tokens.pages.starts[index], tokens.pages.starts[index + 1] ?? tokens.summary.num_tokens];

/** What the page at an index is called, as "Page 1,204". */
tokens.pageName = (index) => {
  const { unit } = tokens.summary;
  return `${unit[0].toUpperCase()}${unit.slice(1)} ${od.number(tokens.pages.numbers[index])}`;
};

/** Looks at another moment or another part of the model; `change` has some of cycle, layer, head. */
tokens.lookAt = (change) => {
  const before = JSON.stringify(tokens.look);
  Object.assign(tokens.look, change);
  if (JSON.stringify(tokens.look) !== before) tell("look");
};

/** Takes in what the server says of the document; null: there is none. */
tokens.update = (summary) => {
  const old = tokens.summary;
  const now = tokens.summary = summary?.num_tokens ? summary : null;
  if (old?.document !== now?.document || old?.workspace !== now?.workspace) {
    tiles.clear();
    tokens.pages = null;
    tokens.look = nothing();
    tell("document");
    if (now) loadPages();
  } else if (old?.reading !== now?.reading) {
    tokens.look = nothing();
    tell("look");
  }
  if (now && old?.revision !== now.revision) tell("cells");
};

/** Whether nothing was dropped of what was read. */
od.isKept = () => {
  const { num_read: read, num_held: held } = tokens.summary ?? {};
  return Boolean(read) && held >= read && tokens.look.cycle === null && !od.isExpert();
};
/** Whether all of the document was read besides. */
od.isWhole = () => od.isKept() && tokens.summary.num_read === tokens.summary.num_tokens;

od.tokens = tokens;
