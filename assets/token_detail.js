// What is said of the token or the cell that is pointed at: its words, its place, why it is there, and who holds it.
(() => {
  "use strict";
  const od = window.ondevice;
  const WAIT_MS = 120; // a pointer that only passes by asks for nothing
  const HEADS_GAP = 1;

  let tell = () => {};

  /** Shows what is known of the tokens of a span, or of none; a screen reader says it where `isSpoken`. */
  od.tellToken = (span, isSpoken = false) => tell(span, isSpoken);

  od.tokenDetail = (element) => {
    const detail = element.querySelector(".od-detail"), readout = detail.querySelector(".od-readout");
    const quote = detail.querySelector(".od-quote"), grid = detail.querySelector(".od-heads");
    const figure = detail.querySelector(".od-heads-box"), lead = detail.querySelector("[data-detail=show]");
    let span = null, timer = 0, shown = null, asked = 0;

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
      figure.hidden = !account?.holders.length;
      lead.hidden = !account;
      quote.replaceChildren();
      if (!account) {
        readout.textContent = od.tokens.summary ? "Point at a cell to see its text, and what became of it." : "";
        detail.dataset.start = "";
        return;
      }
      readout.textContent = [account.title, ...account.lines].join(". ");
      quote.append(
        od.textElement("span", account.before), od.textElement("mark", account.text), od.textElement("span", account.after));
      detail.dataset.start = account.start;
      detail.dataset.state = account.state;
      if (account.holders.length) {
        const layers = account.holders.flatMap((heads, i) => (heads.some(Boolean) ? [i + 1] : []));
        grid.setAttribute("aria-label", `Held in layers ${layers.join(", ") || "none"} of ${account.holders.length}`);
        paintHeads();
      }
    };

    const ask = async () => {
      const number = ++asked; // an answer that comes after a later one is of the past
      const response = span && await od.tokens.ask("token", span);
      const account = response && await response.json();
      if (account && number === asked && od.tokens.summary) show(account);
    };
    lead.addEventListener("click", () => span && od.showSpan(span.start, span.stop));
    const soon = (ms) => { timer ||= setTimeout(() => { timer = 0; ask(); }, ms); };

    tell = (next, isSpoken = false) => {
      span = next && { start: next.start, stop: next.stop };
      readout.ariaLive = isSpoken ? "polite" : "off";
      clearTimeout(timer);
      timer = 0;
      asked++;
      if (span) soon(WAIT_MS); else show(null);
    };
    od.tokens.listen((what) => {
      if (what === "document") tell(null);
      else if ((what === "cells" || what === "look") && span) soon(WAIT_MS * 4);
    });
    show(null);
  };
})();
