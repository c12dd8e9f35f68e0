// The card of the token or the cell that is pointed at: its words, its place, why it is there, and who holds it. It stands
// at the cell, and on a narrow screen has a button that leads into the text.
const WAIT_MS = 120; // a pointer that only passes by asks for nothing
const HEADS_GAP = 1, AWAY = 14, EDGE = 8; // pixels: between heads, from the cell, from the window

od.tokenDetail = (element) => {
  const find = (selector) => element.querySelector(selector), detail = find(".od-detail"), readout = find(".od-readout");
  const quote = find(".od-quote"), grid = find(".od-heads"), figure = find(".od-heads-box"), spoken = find(".od-spoken");
  let span = null, timer = 0, shown = null, asked = 0, isLoud = false, at = null;

  const paintHeads = od.canvasOf(grid, () => (shown?.holders.length ? shown.holders[0].length * pitch() + 1 : 1),
    (context) => {
      const inks = ["kept-0", "kept-3", "novel"].map((name) => od.colour(grid, name)), line = od.colour(grid, "unread");
      shown?.holders.forEach((heads, layer) => heads.forEach((held, head) => {
        const x = layer * pitch(), y = head * pitch(), side = pitch() - HEADS_GAP;
        context.fillStyle = inks[held];
        context.fillRect(x, y, side, side);
        context.strokeStyle = line;
        if (!held) context.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
      }));
    });
  const pitch = () => Math.max(Math.min(Math.floor(grid.clientWidth / shown.holders.length), 12), 3);

  const show = (account) => {
    shown = account;
    detail.hidden = !account;
    figure.hidden = !account?.holders.length;
    quote.replaceChildren();
    spoken.textContent = "";
    if (!account) {
      readout.replaceChildren();
      detail.dataset.start = "";
      return;
    }
    readout.replaceChildren(
      od.textElement("b", account.title), ...account.lines.map((line) => od.textElement("span", line)));
    quote.append(
      od.textElement("span", account.before), od.textElement("mark", account.text), od.textElement("span", account.after));
    if (isLoud) spoken.textContent = [account.title, ...account.lines, account.text].join(". ");
    detail.dataset.start = account.start;
    detail.dataset.state = account.state;
    if (account.holders.length) {
      const layers = account.holders.flatMap((heads, i) => (heads.some(Boolean) ? [i + 1] : []));
      grid.setAttribute("aria-label", `Held in layers ${layers.join(", ") || "none"} of ${account.holders.length}`);
      paintHeads();
    }
    place();
  };

  const place = () => {
    if (detail.hidden) return;
    detail.style.visibility = at ? "" : "hidden";
    if (!at) return;
    const { offsetWidth: width, offsetHeight: height } = detail, { clientWidth, clientHeight } = document.documentElement;
    const below = at.y + at.room + AWAY, above = at.y - at.room - AWAY - height;
    const x = at.x + AWAY + width + EDGE > clientWidth ? at.x - AWAY - width : at.x + AWAY;
    const y = below + height + EDGE > clientHeight ? above : below;
    detail.style.left = `${Math.max(Math.min(x, clientWidth - width - EDGE), EDGE)}px`;
    detail.style.top = `${Math.max(y, EDGE)}px`;
  };
  /** Puts the card at a point of the window, { x, y, room: pixels up and down to keep free }; null: out of view. */
  od.placeToken = (point) => { at = point; place(); };

  const ask = async () => {
    const number = ++asked; // an answer that comes after a later one is of the past
    const response = span && await od.tokens.ask("token", span);
    const account = response && await response.json();
    if (account && number === asked && od.tokens.summary) show(account);
  };
  find("[data-detail=show]").addEventListener("click", () => span && od.showSpan(span.start, span.stop));
  const soon = (ms) => { timer ||= setTimeout(() => { timer = 0; ask(); }, ms); };

  /** Shows what is known of the tokens of a span, or of none; a screen reader says it where `isSpoken`. */
  od.tellToken = (next, isSpoken = false) => {
    span = next && { start: next.start, stop: next.stop };
    isLoud = isSpoken;
    clearTimeout(timer);
    timer = 0;
    asked++;
    if (span) soon(WAIT_MS); else show(null);
  };
  od.tokens.listen((what) => {
    if (what === "document") od.tellToken(null);
    else if ((what === "cells" || what === "look") && span) soon(WAIT_MS * 4);
  });
  show(null);
};
