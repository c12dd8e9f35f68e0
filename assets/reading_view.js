// The document's text, with what was forgotten of it faded where that is wished. Only what is in view is in the page: pieces of a few hundred
// tokens come and go as one scrolls, so that a million tokens scroll like a page. Text is written with textContent.
const PIECE = 384; // tokens of a piece, as in ondevice/ui/map/reading_view.py
const LINE = 23, HEADING = 34, CHARS = 4.2; // pixels, pixels, characters of a token: only a first guess
const AHEAD = 500, KEPT = 80, WAIT_MS = 60, NEWS_MS = 1000, FLASH_MS = 2600;

od.text = (element) => {
  const find = (selector) => element.querySelector(selector), tokens = od.tokens;
  const box = find(".od-text"), inner = find(".od-text-inner"), field = find(".od-page input");
  const of = find(".od-page-of"), folder = find("details");
  // For every piece: index of its page, its number there, height in pixels; `tops` are the sums of heights.
  let pages = [], parts = [], heights = [], tops = [], firstPiece = [];
  let shown = new Map(), cache = new Map(), flash = null, goal = null, frame = 0, timer = 0, newsTimer = 0, flashTimer = 0, asked = 0;

  const soon = () => { frame ||= requestAnimationFrame(() => { frame = 0; draw(); }); };

  /** Lays out all pieces by guessed heights; those that have been seen are measured. */
  const layOut = () => {
    [pages, parts, firstPiece] = [[], [], []];
    shown.forEach(({ node }) => node.remove());
    shown.clear();
    cache.clear();
    flash = goal = null;
    for (let index = 0; index < (tokens.pages?.starts.length ?? 0); index++) {
      const [start, stop] = tokens.pageSpan(index), count = Math.max(Math.ceil((stop - start) / PIECE), 1);
      firstPiece.push(pages.length);
      for (let part = 0; part < count; part++) {
        pages.push(index);
        parts.push(part);
      }
    }
    guess();
    box.scrollTop = 0;
    field.max = tokens.pages?.numbers.at(-1) ?? 1;
    of.textContent = tokens.pages ? `of ${od.number(tokens.pages.numbers.at(-1) ?? 0)}` : "";
    soon();
  };

  const guess = () => {
    const charsPerLine = Math.max(Math.min(box.clientWidth - 30, 900) / 7.6, 20);
    heights = pages.map((index, number) => {
      const [start, stop] = tokens.pageSpan(index), size = Math.min(stop - start - parts[number] * PIECE, PIECE);
      return Math.ceil((size * CHARS) / charsPerLine) * LINE + (parts[number] ? 0 : HEADING);
    });
    addUp();
  };

  const addUp = () => {
    let top = 0;
    tops = heights.map((height) => { const here = top; top += height; return here; });
    inner.style.height = `${top}px`;
  };
  const pieceAt = (y) => od.lastUpTo(tops, y);
  const pieceOf = (token) => {
    const index = tokens.pageIndex(token);
    const last = (firstPiece[index + 1] ?? pages.length) - 1;
    return Math.min(firstPiece[index] + Math.floor((token - tokens.pages.starts[index]) / PIECE), last);
  };

  /** Puts what is in view into the page and takes everything else out. */
  const draw = () => {
    if (!folder.open || !box.clientWidth || !tokens.summary || !tokens.pages || !pages.length) return;
    const first = pieceAt(box.scrollTop - AHEAD), last = pieceAt(box.scrollTop + box.clientHeight + AHEAD);
    for (const [number, piece] of shown) {
      if (number < first || number > last) { piece.node.remove(); shown.delete(number); }
    }
    for (let number = first; number <= last; number++) {
      if (!shown.has(number)) shown.set(number, newPiece(number));
      shown.get(number).node.style.top = `${tops[number]}px`;
    }
    clearTimeout(timer);
    timer = setTimeout(fill, WAIT_MS);
    const here = pages[pieceAt(box.scrollTop + 8)];
    if (document.activeElement !== field) field.value = tokens.pages.numbers[here];
    tellSettled();
    box.dataset.page = tokens.pages.numbers[here];
    if (goal !== null) reach(); // here, where every piece has its place
  };

  const newPiece = (number) => {
    const body = od.make("p"), heading = parts[number] ? [] : [od.textElement("h3", tokens.pageName(pages[number]))];
    body.style.minHeight = `${heights[number] - (parts[number] ? 0 : HEADING)}px`;
    const node = od.make("div", { className: "od-piece" }, ...heading, body);
    inner.append(node);
    const piece = { node, body, stamp: "", asked: 0 };
    const known = cache.get(number);
    if (known) write(number, piece, known);
    return piece;
  };

  /** Asks for the text that is in view and not here, or not as it is now. */
  const fill = async () => {
    for (const [number, piece] of [...shown].sort(([a], [b]) => a - b)) {
      const stamp = tokens.summary && stampNow(number);
      if (!stamp || piece.stamp === stamp || shown.get(number) !== piece) continue;
      const mine = ++asked; // an answer that comes after a later one is of the past
      const cut = flash ? { from: flash.start, to: flash.stop } : {};
      const response = await tokens.ask("text", { index: pages[number], part: parts[number], ...cut });
      if (!response) return;
      const value = { stamp, asked: mine, ...await response.json() };
      if (!tokens.summary) return; // closed meanwhile
      if (piece.asked > mine) continue;
      cache.delete(number);
      cache.set(number, value);
      if (cache.size > KEPT) cache.delete(cache.keys().next().value);
      if (shown.get(number) === piece) write(number, piece, value);
    }
    tellSettled();
  };
  /** Resolves for all that wait for it once all that is in view is here and up to date. */
  const tellSettled = () => {
    box.dataset.settled = [...shown].every(([number, piece]) => tokens.summary && piece.stamp === stampNow(number));
  };
  const stampNow = (number) => {
    const isCut = flash && [pieceOf(flash.start), pieceOf(flash.stop - 1)].some((at) => Math.abs(at - number) <= 1);
    return tokens.stamp() + (isCut ? `!${flash.start}-${flash.stop}` : "");
  };

  const mark = (run) => run.classList.add("od-flash", ...(flash.isOver ? ["od-flashed"] : []));

  const write = (number, piece, value) => {
    [piece.stamp, piece.asked] = [value.stamp, value.asked];
    let token = value.start;
    const runs = value.runs.map(([count, text, state]) => {
      const run = od.textElement("span", text, `od-t od-t-${state}`);
      run.dataset.start = token;
      run.dataset.stop = token += count;
      if (flash && token > flash.start && token - count < flash.stop) mark(run);
      return run;
    });
    const heading = piece.node.querySelector("h3");
    if (heading) heading.textContent = value.heading;
    if (!runs.length) runs.push(od.textElement("em", "There is no text here."));
    piece.body.replaceChildren(...runs);
    piece.body.style.minHeight = "";
    measure(number, piece);
    if (goal !== null) soon();
  };

  /** The true height of a piece; what is in view stays where it is when one above it grows. */
  const measure = (number, piece) => {
      if (!box.clientWidth) { piece.stamp = ""; return; } // in a pane that is not in view: it is written again there
    const height = piece.node.offsetHeight, more = height - heights[number];
    if (Math.abs(more) < 1) return;
    const isAbove = tops[number] + heights[number] <= box.scrollTop + 1;
    heights[number] = height;
    addUp();
    if (isAbove) {
      box.scrollTop += more;
      if (flash) flash.top += more;
    }
    soon();
  };

  /** Scrolls to the token that was asked for, once its text is here. */
  const reach = () => {
    const run = [...inner.querySelectorAll(".od-flash")].find((run) => Number(run.dataset.stop) > goal);
    if (!run) {
      // A piece may end a little before the token that it was guessed to hold.
      const piece = shown.get(pieceOf(goal));
      const last = piece?.stamp && piece.body.lastElementChild;
      if (last && Number(last.dataset.stop) <= goal) box.scrollTop = tops[pieceOf(goal) + 1] ?? box.scrollTop;
      return;
    }
    const move = run.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
    const before = box.scrollTop;
    box.scrollTop += move;
    if (Math.abs(move) < 2 || box.scrollTop === before) goal = null; // what is above it may still find its height
    flash.top = box.scrollTop;
    soon();
  };

  /** Shows the tokens [start, stop) in the text, and marks them. Anybody may call it; there is a way back then, unless
   *  `isQuiet`: nobody has asked for it, and what else is in view stays. */
  od.showSpan = (start, stop, isQuiet = false) => {
    if (!tokens.summary || !tokens.pages || !(start >= 0) || start >= tokens.summary.num_tokens) return;
    if (!isQuiet) steps.jumps({ start, stop });
    goTo({ start, stop }, isQuiet);
  };

  const goTo = ({ start, stop }, isQuiet = false) => {
    folder.open = true;
    if (!isQuiet) od.openPane("document");
    if (!pages.length) layOut();
    flash = { start, stop: Math.min(Math.max(stop, start + 1), tokens.summary.num_tokens) };
    goal = start;
    for (const run of inner.querySelectorAll(".od-t")) { // the mark of the last goal would be taken for this one's
      run.classList.remove("od-flash", "od-flashed");
      if (Number(run.dataset.start) >= start && Number(run.dataset.stop) <= stop) mark(run);
    }
    box.scrollTop = tops[pieceOf(start)];
    const mine = flash;
    clearTimeout(flashTimer);
    flashTimer = setTimeout(() => {
      mine.isOver = true;
      if (flash === mine) inner.querySelectorAll(".od-flash").forEach((run) => run.classList.add("od-flashed"));
    }, FLASH_MS);
    if (!isQuiet) od.chooseOnMap?.(flash.start, flash.stop);
    sheet.mark({ start, stop: flash.stop });
    draw();
    clearTimeout(timer);
    fill();
  };

  /** Shows a page as a picture, with a way back to where one was. */
  od.showPage = (index) => {
    const [start, stop] = tokens.pageSpan(index);
    steps.jumps({ start, stop });
    folder.open = true;
    od.openPane("document");
    sheet.openAt(index);
  };

  const goToPage = (number) => {
    if (!tokens.pages || !pages.length) return;
    const { numbers } = tokens.pages;
    let index = numbers.findIndex((other) => other >= number);
    if (index < 0) index = numbers.length - 1;
    goal = null;
    field.value = numbers[index];
    if (sheet.isOpen) return sheet.show(index);
    box.scrollTop = tops[firstPiece[index]];
    soon();
  };
  const sheet = od.sheet(element, {
    here: () => pages[pieceAt(box.scrollTop + 8)] ?? 0,
    leave: (index, span) => { if (span) goTo(span); else if (tokens.pages) goToPage(tokens.pages.numbers[index]); },
    told: (index) => { if (document.activeElement !== field) field.value = tokens.pages.numbers[index]; },
  });
  const steps = od.sourceSteps(element, {
    here: () => {
      const piece = pieceAt(box.scrollTop);
      const page = sheet.isOpen ? sheet.at : pages[piece];
      return { piece, by: box.scrollTop - (tops[piece] ?? 0), page, pane: document.body.dataset.pane };
    },
    leave: ({ piece, by, page, pane }) => {
      od.openPane(pane);
      goal = null;
      if (sheet.isOpen) return sheet.show(page);
      box.scrollTop = tops[piece] + by;
      soon();
    },
    show: goTo,
  });
  const turn = (by) => {
    if (!tokens.pages || !pages.length) return;
    if (sheet.isOpen) return sheet.turn(by);
    const here = pages[pieceAt(box.scrollTop + 8)];
    goToPage(tokens.pages.numbers[Math.min(Math.max(here + by, 0), tokens.pages.numbers.length - 1)]);
  };
  field.addEventListener("change", () => goToPage(Number(field.value) || 1));
  find("[data-page=back]").addEventListener("click", () => turn(-1));
  find("[data-page=on]").addEventListener("click", () => turn(1));
  const remember = find("[data-text=memory]");
  remember.addEventListener("click", () => {
    const isOn = box.classList.toggle("od-remembers");
    remember.setAttribute("aria-pressed", String(isOn));
    find(".od-faded").hidden = !isOn;
  });
  box.addEventListener("scroll", soon, { passive: true });
  folder.addEventListener("toggle", () => { if (folder.open && !pages.length) layOut(); else soon(); });
  inner.addEventListener("click", (event) => {
    const run = event.target.closest?.(".od-t");
    if (run && !String(getSelection())) od.chooseOnMap?.(Number(run.dataset.start), Number(run.dataset.stop), "pointed");
  });
  let width = 0;
  new ResizeObserver(() => {
    if (!box.clientWidth || !tokens.pages || !pages.length) return;
    if (flash && Math.abs(box.scrollTop - flash.top) < 2) goal = flash.start; // nobody has scrolled on meanwhile
    if (Math.abs(box.clientWidth - width) < 2) return soon();
    width = box.clientWidth;
    // Lines break elsewhere now: what is at the top stays there.
    const top = pieceAt(box.scrollTop), part = (box.scrollTop - tops[top]) / Math.max(heights[top], 1);
    guess();
    for (const [number, piece] of shown) if (piece.stamp) heights[number] = piece.node.offsetHeight;
    addUp();
    box.scrollTop = tops[top] + part * heights[top];
    soon();
  }).observe(box);

  /** News do not take away what somebody is about to copy. */
  const isSelecting = () => {
    const selection = getSelection();
    return !selection.isCollapsed && inner.contains(selection.anchorNode);
  };
  const news = () => {
    newsTimer ||= setTimeout(() => { newsTimer = 0; if (isSelecting()) news(); else fill(); }, NEWS_MS);
  };
  tokens.listen((what) => {
    if (what === "document") steps.forget();
    if (what === "document" || what === "pages") layOut();
    else if (what === "look") { cache.clear(); soon(); }
    else if (what === "cells" && tokens.look.cycle === null) {
      cache.clear();
      tellSettled();
      if (folder.open && box.clientWidth && shown.size) news();
    }
    element.querySelector(".od-text-empty").hidden = Boolean(tokens.summary);
  });
};
