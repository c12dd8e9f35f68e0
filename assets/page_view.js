// A PDF's pages as pictures, in place of the text: one at a time, with the passage framed that was asked for. Pictures
// come from this program's own route, are drawn when they are looked at, and the last few stay here.
const KEPT = 8; // pictures
const UNITS = 10_000; // as in ondevice/documents/formats/pdf_picture.py

/** Pictures of pages, asked for with `values`; the last `most` of them stay here. */
od.pagePictures = (most, values = {}) => {
  const tokens = od.tokens, pictures = new Map(); // index -> { url }
  let generation = 0; // raised by another document: what was asked for before is of the one before
  return {
    has: (index) => pictures.has(index),
    forget: () => {
      generation += 1;
      pictures.forEach(({ url }) => URL.revokeObjectURL(url));
      pictures.clear();
    },
    /** The picture of a page as { url }, or { why } there is none; null where the document is another one by now. */
    get: async (index) => {
      const known = pictures.get(index), before = generation;
      if (known) return known;
      const response = await tokens.ask("picture", { index, ...values });
      const isPicture = response?.headers.get("content-type").startsWith("image/");
      const found = isPicture ? await response.blob() : await response?.json();
      if (before !== generation) return null;
      // A reason may pass, and is asked for again; the program itself remembers pages that cannot be drawn.
      if (!isPicture) return found ?? { why: "This page could not be had. Turn to it once more." };
      const made = { url: URL.createObjectURL(found) };
      pictures.set(index, made);
      if (pictures.size > most) {
        const [oldest, { url }] = pictures.entries().next().value;
        URL.revokeObjectURL(url);
        pictures.delete(oldest);
      }
      return made;
    },
  };
};

/** Where a passage stands on a page: frames of left, top, right and bottom in shares of the page's size. */
od.passageFrames = async (index, { start, stop }) => {
  const response = await od.tokens.ask("passage", { index, from: start, to: stop });
  const found = (await response?.json())?.frames ?? [];
  return found.map((frame) => frame.map((value) => value / UNITS));
};

/** Frames as elements, for a box that covers a picture of the page. */
od.framesOn = (found) => found.map(([left, top, right, bottom]) => {
  const inset = [top, 1 - right, 1 - bottom, left].map((share) => `${100 * share}%`).join(" ");
  return od.make("i", { style: `inset: ${inset}` });
});

/** The page view in the document pane.
 * `here()` is the index of the page that the text shows; `leave(index, span)` brings the text to a page or passage. */
od.sheet = (element, { here, leave, told }) => {
  const find = (selector) => element.querySelector(selector), tokens = od.tokens;
  const views = find(".od-views"), box = find(".od-sheet"), paper = find(".od-paper"), image = find(".od-paper img");
  const frames = find(".od-frames"), said = find(".od-sheet-said"), zoom = find("[data-sheet=zoom]");
  const pictures = od.pagePictures(KEPT);
  let isOpen = false, at = 0, span = null, asked = 0;

  const say = (text) => od.say(said, text);
  const isOn = (index) => {
    if (!span || !tokens.pages) return false;
    const [start, stop] = tokens.pageSpan(index);
    return span.start < stop && span.stop > start;
  };

  /** Shows the page at `at`, and the frames of the passage on it. */
  const draw = async () => {
    if (!isOpen || !tokens.pages) return;
    const mine = ++asked, index = at;
    told(index);
    box.dataset.settled = "false";
    box.dataset.page = tokens.pages.numbers[index];
    if (!pictures.has(index)) say(`${tokens.pageName(index)} is being drawn.`);
    const made = await pictures.get(index);
    if (!made || mine !== asked || !tokens.pages) return;
    frames.replaceChildren();
    paper.hidden = !made.url;
    if (made.why) say(made.why);
    else {
      image.src = made.url;
      image.alt = `${tokens.pageName(index)} as a picture; its words are under “Text”`;
      await image.decode().catch(() => {});
      if (mine !== asked) return;
      say("");
      if (isOn(index)) await frame(index, mine);
      else box.scrollTop = 0;
    }
    if (mine === asked) box.dataset.settled = "true";
  };

  const frame = async (index, mine) => {
    const found = await od.passageFrames(index, span);
    if (mine !== asked) return;
    frames.replaceChildren(...od.framesOn(found));
    if (!found.length) return say("The passage was not found on this picture: see it in the text.");
    box.scrollTop = found[0][1] * paper.clientHeight - box.clientHeight / 3;
    box.scrollLeft = found[0][0] * paper.clientWidth - box.clientWidth / 4;
  };

  const open = (isNow, index = span ? tokens.pageIndex(span.start) : here()) => {
    if (isNow === isOpen) return;
    isOpen = isNow;
    element.querySelector(".od-reader").dataset.view = isNow ? "page" : "text";
    for (const button of views.querySelectorAll("button")) {
      button.ariaPressed = (button.dataset.view === "page") === isNow;
    }
    if (isNow) { at = index; draw(); } else leave(at, isOn(at) ? span : null);
  };

  const turn = (by) => {
    if (!tokens.pages) return;
    const to = Math.min(Math.max(at + by, 0), tokens.pages.numbers.length - 1);
    if (to === at) return;
    at = to;
    draw();
  };
  const enlarge = (isLarge) => {
    const share = (box.scrollTop + box.clientHeight / 2) / Math.max(paper.clientHeight, 1);
    box.classList.toggle("od-enlarged", isLarge);
    zoom.ariaPressed = isLarge;
    box.scrollTop = share * paper.clientHeight - box.clientHeight / 2;
  };

  views.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-view]");
    if (button && tokens.pages) open(button.dataset.view === "page");
  });
  zoom.addEventListener("click", () => enlarge(!box.classList.contains("od-enlarged")));
  image.addEventListener("dblclick", () => enlarge(!box.classList.contains("od-enlarged")));
  const keys = {
    ArrowRight: () => turn(1), PageDown: () => turn(1), ArrowLeft: () => turn(-1), PageUp: () => turn(-1),
    "+": () => enlarge(true), "-": () => enlarge(false),
  };
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    if (event.key.startsWith("Arrow") && box.classList.contains("od-enlarged")) return; // they scroll
    event.preventDefault();
    keys[event.key]();
  });
  tokens.listen((what) => {
    if (what !== "document") return;
    pictures.forget();
    span = null;
    open(false);
    views.hidden = !tokens.summary?.has_pages;
    say("");
  });

  return {
    get isOpen() { return isOpen; },
    get at() { return at; },
    turn,
    /** Shows the page at an index, where it is open. */
    show: (index) => { at = index; draw(); },
    /** Opens it at the page. */
    openAt: (index) => { if (isOpen) { at = index; draw(); } else open(true, index); },
    /** Frames this passage wherever it is shown; null: none. */
    mark: (passage) => {
      span = passage;
      if (isOpen && passage) { at = tokens.pageIndex(passage.start); draw(); }
    },
  };
};
