// Where all that was read is kept, cells would say nothing: the grown map shows the pages of a PDF, small and in order,
// with the passages of the last answer on them. Pictures are asked for as they come into view, few at a time.
const WIDTH = 280; // pixels of a picture, for screens that have two where others have one
const LEAST = 72, MOST = 200, GAP = 14, BELOW = 22; // pixels: a page's width, between two, the number below one
const AT_ONCE = 2; // requests: the program draws one after the other
const A4 = 210 / 297, SLIM = 1.5; // pages higher than so many widths are shown narrower
const PIN = 20; // pixels

/** Leaves over a map; gives `show()`, which brings them up to date and tells whether they are what is shown. */
od.leaves = (box, changed) => {
  const tokens = od.tokens, list = box.querySelector("ol"), pictures = od.pagePictures(Infinity, { width: WIDTH });
  let pages = null, leaves = [], aspect = 0, wanted = new Set(), running = 0, size = "", edge = 0, places = new Map();
  let framed = Promise.resolve(), isNew = false;

  const build = () => {
    [pages, leaves, aspect, wanted, size, edge, places] = [tokens.pages, [], 0, new Set(), "", 0, new Map()];
    pictures.forget();
    seen.disconnect();
    pages.numbers.forEach((number, index) => {
      const image = od.make("img", { alt: "" }), frames = od.textElement("span", "", "od-frames");
      const paper = od.make("span", { className: "od-leaf" }, image, frames), tabIndex = index ? -1 : 0; // one stop for all
      const button = od.button({ tabIndex, onclick: () => od.showPage(index) }, paper, od.textElement("b", od.number(number)));
      const item = od.make("li", { data: { index } }, button);
      leaves.push({ item, button, paper, image, frames, share: -1 });
    });
    list.replaceChildren(...leaves.map(({ item }) => item));
    leaves.forEach(({ item }) => seen.observe(item));
  };

  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      const index = Number(target.dataset.index);
      if (isIntersecting && leaves[index]?.item === target && !leaves[index].image.src) wanted.add(index);
      else wanted.delete(index);
    }
    for (let i = running; i < AT_ONCE; i++) load();
  }, { root: box, rootMargin: "150px" });

  const load = async () => {
    const [index] = wanted;
    if (index === undefined) return;
    wanted.delete(index);
    running += 1;
    const made = await pictures.get(index);
    if (made?.url) await put(leaves[index], made.url);
    running -= 1;
    load();
    changed();
  };
  const put = async ({ image, paper }, url) => {
    image.src = url;
    await image.decode().catch(() => {});
    const one = image.naturalWidth / image.naturalHeight || A4;
    paper.style.aspectRatio = one;
    paper.style.width = `${Math.min(100 * SLIM * one, 100)}%`;
    aspect ||= one; // most documents have pages of one size
  };

  /** All pages at once where that leaves them large enough to be told apart. */
  const fit = () => {
    const [width, height] = [list.clientWidth, box.clientHeight], now = [width, height, aspect].join();
    if (!width || now === size) return;
    size = now;
    const shape = Math.max(aspect || A4, 1 / SLIM);
    const rows = (wide) => Math.ceil(leaves.length / Math.max(Math.floor((width + GAP) / (wide + GAP)), 1));
    let wide = MOST;
    while (wide > LEAST && rows(wide) * (wide / shape + BELOW + GAP) > height) wide -= 2;
    box.style.setProperty("--od-wide", `${wide}px`);
    box.style.setProperty("--od-aspect", aspect || A4);
  };

  /** How far reading has come: what is after it is pale. */
  const paint = () => {
    const { num_read: read } = tokens.summary, { numbers } = pages;
    leaves.forEach((leaf, index) => {
      const [start, stop] = tokens.pageSpan(index);
      const share = stop <= read ? 1 : Math.max((read - start) / (stop - start), 0);
      if (share === leaf.share) return;
      leaf.share = share;
      leaf.paper.style.setProperty("--od-read", `${100 * share}%`);
      leaf.paper.classList.toggle("od-edge", share > 0 && share < 1);
      const name = `Page ${od.number(numbers[index])}${share === 1 ? "" : share ? ", being read" : ", not read yet"}`;
      leaf.button.setAttribute("aria-label", leaf.button.title = `${name}: show it in the document`);
    });
    const at = tokens.pageIndex(Math.max(read - 1, 0)), before = edge;
    edge = at;
    if (at !== before && isInView(before)) reveal(at);
  };
  const isInView = (index) => {
    const { offsetTop: top } = leaves[index].item;
    return top + leaves[index].item.offsetHeight > box.scrollTop && top < box.scrollTop + box.clientHeight;
  };
  const reveal = (index) => { // by itself: scrollIntoView would move the page around it, too
    const { offsetTop: top, offsetHeight: height } = leaves[index].item;
    box.scrollTop = Math.min(Math.max(box.scrollTop, top + height + GAP - box.clientHeight), Math.max(top - GAP, 0));
  };

  /** Where the pin of a source stands: at its passage, and until that is found, where it should be about. */
  const pointOf = (token, source, taken) => {
    const index = tokens.pageIndex(token), { paper } = leaves[index];
    if (!places.has(source)) {
      const mine = places.set(source, undefined);
      framed = framed.then(() => frame(source, index, mine)); // one after the other: each has its page drawn
    }
    const [begin, stop] = tokens.pageSpan(index);
    const [left, top, , bottom] = places.get(source) ?? [0.1, ...Array(3).fill((token - begin) / Math.max(stop - begin, 1))];
    let x = paper.offsetLeft + Math.min(Math.max(left * paper.offsetWidth - PIN / 3, 4), paper.offsetWidth - PIN / 2);
    const y = paper.offsetTop + ((top + bottom) / 2) * paper.offsetHeight;
    while (taken.some((other) => Math.abs(other.x - x) < PIN - 1 && Math.abs(other.y - y) < PIN - 1)) x += PIN;
    taken.push({ x, y });
    return { x, y };
  };
  /** Frames a passage; it may go on on the next page. */
  const frame = async (source, first, mine) => {
    for (let index = first; index < leaves.length && pages.starts[index] < source.stop && mine === places; index++) {
      const found = await od.passageFrames(index, source);
      if (mine !== places) return;
      leaves[index].frames.append(...od.framesOn(found));
      if (!mine.get(source) && index === first) mine.set(source, found[0]);
    }
    changed();
  };
  const placePins = od.pins(box.querySelector(".od-pins"), () => {
    places = new Map();
    isNew = true;
    leaves.forEach(({ frames }) => frames.replaceChildren());
    changed();
  });

  list.addEventListener("focusin", (event) => {
    for (const { button } of leaves) button.tabIndex = button === event.target ? 0 : -1;
  });
  list.addEventListener("keydown", (event) => {
    const across = Math.max(leaves.findIndex(({ item }) => item.offsetTop > leaves[0].item.offsetTop), 0); // 0: one row
    const jump = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -Infinity, End: Infinity }[event.key];
    if (!jump || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const from = leaves.findIndex(({ button }) => button === event.target);
    leaves[Math.min(Math.max(from + jump, 0), leaves.length - 1)].button.focus();
  });

  return () => {
    const isShown = od.isKept() && tokens.summary.has_leaves && Boolean(tokens.pages) && !od.isStrip();
    box.hidden = !isShown;
    if (!isShown) return false;
    if (pages !== tokens.pages) build();
    fit();
    paint();
    const taken = [];
    placePins((token, source) => pointOf(token, source, taken));
    if (isNew && od.pinned() !== undefined) reveal(tokens.pageIndex(od.pinned()));
    isNew = false;
    box.dataset.settled = Boolean(aspect) && !running && !wanted.size;
    return true;
  };
};
