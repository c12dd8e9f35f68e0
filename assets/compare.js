// The comparison: one column for each way of reading, and the buttons that ask for it as a file. Answers are written with textContent only.
(() => {
  "use strict";
  const od = window.ondevice;

  od.compare_head = () => {}; // a heading; nothing in it changes

  const newColumn = () => {
    const column = od.textElement("article", "", "od-column");
    const bar = od.textElement("div", "", "od-track");
    bar.setAttribute("role", "progressbar");
    bar.setAttribute("aria-valuemin", "0");
    bar.append(od.textElement("div", "", "od-thumb"));
    column.append(od.textElement("h3", ""), od.textElement("p", "", "od-differs"), od.textElement("p", "", "od-settings"),
      od.textElement("p", "", "od-column-stage"), bar, od.textElement("p", "", "od-reason"),
      od.textElement("p", "", "od-problem"), od.textElement("p", "", "od-answer"), od.textElement("dl", ""),
      od.textElement("p", "", "od-column-ledger"));
    return column;
  };

  const set = (element, text) => { if (element.textContent !== text) element.textContent = text; };

  const fill = (column, value) => {
    const find = (selector) => column.querySelector(selector);
    column.dataset.stage = value.stage;
    set(find("h3"), value.label);
    set(find(".od-differs"), value.differs);
    set(find(".od-column-stage"), value.stage_text);
    const bar = find(".od-track");
    bar.setAttribute("aria-label", `${value.label}: tokens read`);
    bar.setAttribute("aria-valuemax", value.total);
    bar.setAttribute("aria-valuenow", Math.min(value.done, value.total));
    bar.firstChild.style.width = `${Math.min((100 * value.done) / value.total, 100)}%`;
    for (const [selector, text] of [[".od-settings", value.settings], [".od-reason", value.warning], [".od-problem", value.problem],
      [".od-answer", value.answer], [".od-column-ledger", value.ledger]]) {
      set(find(selector), text);
      find(selector).hidden = !text;
    }
    const facts = find("dl");
    while (facts.children.length > 2 * value.facts.length) facts.lastChild.remove();
    value.facts.forEach(([name, text], i) => {
      if (!facts.children[2 * i]) facts.append(od.textElement("dt", ""), od.textElement("dd", ""));
      set(facts.children[2 * i], name);
      set(facts.children[2 * i + 1], text);
    });
  };

  od.compare = (element, props, watch, send) => {
    const list = element.querySelector(".od-columns"), exports = element.querySelector(".od-exports");
    for (const [button, kind] of [[".od-save-markdown", "md"], [".od-save-json", "json"]]) {
      element.querySelector(button).addEventListener("click", () => send.export({ kind }));
    }
    od.follow(props, watch, (value) => {
      exports.hidden = !value?.can_be_saved;
      set(element.querySelector(".od-subject"), value?.subject ?? "");
      set(element.querySelector(".od-same"), value?.same ?? "");
      set(element.querySelector(".od-compare-status"), value?.status ?? "");
      const problem = element.querySelector(".od-compare-problem");
      problem.hidden = !value?.problem;
      set(problem, value?.problem ?? "");
      const columns = value?.columns ?? [];
      while (list.children.length > columns.length) list.lastChild.remove();
      columns.forEach((column, i) => {
        if (!list.children[i]) list.append(newColumn());
        fill(list.children[i], column);
      });
      list.setAttribute("aria-busy", String(Boolean(value?.is_busy)));
    });
  };
})();
