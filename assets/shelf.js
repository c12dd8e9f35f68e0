// Several documents: questions with what they said, together or as a table, and the way from a passage to its document.
// Names, answers and passages are somebody else's: textContent only.
(() => {
  "use strict";
  const od = window.ondevice;
  const PATIENCE_MS = 20_000, LOOK_MS = 80;

  od.shelf_head = () => {}; // a heading; nothing in it changes

  const placeButton = (passage, text, send) => {
    const button = od.textElement("button", text, "od-place");
    button.type = "button";
    button.title = passage.text;
    button.setAttribute("aria-label", `${passage.place}: open the document there`);
    button.addEventListener("click", () => send.open_passage({ document: passage.document, start: passage.start, stop: passage.stop }));
    return button;
  };

  const together = (answer, send) => {
    const passages = od.textElement("ol", "");
    passages.append(...answer.passages.map((passage) => {
      const item = document.createElement("li");
      item.append(placeButton(passage, passage.place, send), od.textElement("q", passage.text));
      return item;
    }));
    const account = od.textElement("p", answer.account, "od-shelf-account");
    account.hidden = !answer.account;
    return [od.textElement("p", answer.text, "od-answer"), passages, account];
  };

  const table = (answers, send) => {
    const box = od.textElement("div", "", "od-rows"), made = document.createElement("table");
    const head = made.createTHead().insertRow(), body = made.createTBody();
    for (const name of ["Document", "Answer", "Where it looked"]) {
      const cell = od.textElement("th", name);
      cell.scope = "col";
      head.append(cell);
    }
    for (const answer of answers) {
      const row = body.insertRow(), name = od.textElement("th", answer.name), places = document.createElement("td");
      name.scope = "row";
      places.append(...answer.passages.map((passage) => placeButton(passage, passage.where, send)));
      row.append(name, od.textElement("td", answer.problem || answer.text || "…", answer.problem ? "od-lost" : ""), places);
    }
    box.append(made);
    return box;
  };

  const turnOf = (turn, send) => {
    const article = od.textElement("article", "", "od-column od-shelf-turn");
    article.append(od.textElement("h3", turn.question));
    if (turn.note) article.append(od.textElement("p", turn.note, "od-settings"));
    if (turn.problem) article.append(od.textElement("p", turn.problem, "od-problem"));
    if (turn.is_each) article.append(table(turn.answers, send));
    else for (const answer of turn.answers) article.append(...together(answer, send));
    return article;
  };

  od.shelf = (element, props, watch, send) => {
    const find = (selector) => element.querySelector(selector);
    const list = find(".od-turns"), problem = find(".od-problem"), status = find("[role=status]");
    let drawn = [];
    find(".od-save-markdown").addEventListener("click", () => send.export({ kind: "md" }));
    find(".od-save-csv").addEventListener("click", () => send.export({ kind: "csv" }));
    find(".od-clear-turns").addEventListener("click", () => send.clear_turns({}));
    od.follow(props, watch, (value) => {
      problem.hidden = !value?.problem;
      problem.textContent = value?.problem ?? "";
      if (status.textContent !== (value?.status ?? "")) status.textContent = value?.status ?? "";
      find(".od-exports").hidden = !value?.can_be_saved;
      const turns = value?.turns ?? [], now = turns.map((turn) => JSON.stringify(turn)), added = now.length - drawn.length;
      for (let i = 0; i < added; i++) list.prepend(document.createElement("article"));
      while (list.children.length > now.length) list.lastChild.remove();
      now.forEach((text, i) => { // those that stay keep their place, and the keyboard's
        if (drawn[i - Math.max(added, 0)] !== text) list.children[i].replaceWith(turnOf(turns[i], send));
      });
      drawn = now;
      list.setAttribute("aria-busy", String(Boolean(value?.is_busy)));
    });
  };

  // The way into another document: its text may still be on its way here.
  od.jump = (element, props, watch) => {
    let last = props.value?.id;
    od.follow(props, watch, (place) => {
      if (!place?.id || place.id === last) return;
      last = place.id;
      const end = performance.now() + PATIENCE_MS;
      const look = () => {
        if (last !== place.id || performance.now() > end) return;
        const isHere = od.tokens.summary?.workspace === place.workspace && od.tokens.pages;
        if (isHere && document.querySelector(".od-text")?.offsetParent) od.showSpan(place.start, place.stop);
        else if (isHere && od.isNarrow()) { od.openPane("document"); setTimeout(look, LOOK_MS); }
        else setTimeout(look, LOOK_MS);
      };
      look();
    });
  };
})();
