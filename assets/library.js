// The library: one card for each saved document, with its buttons. Renaming and deleting ask first, in place.
// Titles and names come from users and files; they are written with textContent only.
(() => {
  "use strict";
  const od = window.ondevice;

  const button = (text, label, act, className) => {
    const element = od.textElement("button", text, `od-button ${className ?? ""}`);
    element.type = "button";
    if (label) element.setAttribute("aria-label", label);
    element.addEventListener("click", act);
    return element;
  };

  const card = (entry, send, focusTitle) => {
    const article = od.textElement("article", "", "od-entry");
    const title = od.textElement("h3", entry.title);
    title.tabIndex = -1;
    const facts = od.textElement("dl", "");
    for (const [name, text] of entry.facts) facts.append(od.textElement("dt", name), od.textElement("dd", text));
    const row = od.textElement("div", "", "od-entry-buttons");
    const rest = () => {
      const open = button("Open", `Open ${entry.title}`, () => send.open_entry({ id: entry.id }), "od-primary");
      const rename = button("Rename", `Rename ${entry.title}`, askName);
      const remove = button("Delete", `Delete ${entry.title}`, askDelete);
      open.disabled = Boolean(entry.reason);
      rename.disabled = !entry.can_rename;
      row.replaceChildren(open, rename, remove);
    };
    const back = () => { rest(); focusTitle(entry.id); };
    const askName = () => {
      const form = od.textElement("form", "", "od-entry-form"), field = document.createElement("input");
      const label = od.textElement("label", "New name");
      field.value = entry.title;
      field.maxLength = 200;
      label.append(field);
      const keep = button("Rename", "", () => {}, "od-primary");
      keep.type = "submit";
      form.append(label, keep, button("Cancel", "", back));
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        if (field.value.trim() === entry.title) back();
        else send.rename_entry({ id: entry.id, title: field.value });
      });
      form.addEventListener("keydown", (event) => { if (event.key === "Escape") back(); });
      row.replaceChildren(form);
      field.focus();
      field.select();
    };
    const askDelete = () => {
      const group = od.textElement("div", "", "od-entry-form");
      group.setAttribute("role", "group");
      group.setAttribute("aria-label", `Delete ${entry.title}?`);
      const keep = button("Keep", "", back);
      const remove = button("Delete for good", "", () => send.delete_entry({ id: entry.id }), "od-stop");
      group.append(od.textElement("span", "Delete its pot, text and conversation from this disk?"), remove, keep);
      group.addEventListener("keydown", (event) => { if (event.key === "Escape") back(); });
      row.replaceChildren(group);
      keep.focus();
    };
    rest();
    article.dataset.id = entry.id;
    article.append(title);
    if (entry.reason) article.append(od.textElement("p", entry.reason, "od-reason"));
    article.append(facts, row);
    return article;
  };

  // What is kept of open documents, with a button that asks first.
  const keptLine = (line, send) => {
    const [text, row] = line.children;
    const rest = (hasFocus) => {
      const forget = button("Forget everything", "", ask);
      row.replaceChildren(forget);
      if (hasFocus) forget.focus();
    };
    const ask = () => {
      const group = od.textElement("div", "", "od-entry-form"), keep = button("Keep", "", () => rest(true));
      group.setAttribute("role", "group");
      group.setAttribute("aria-label", "Forget everything?");
      const forget = button("Forget for good", "", () => { rest(false); send.forget_all({}); }, "od-stop");
      group.append(od.textElement("span", "Close all documents and delete what is kept of them? The library stays."),
        forget, keep);
      group.addEventListener("keydown", (event) => { if (event.key === "Escape") rest(true); });
      row.replaceChildren(group);
      keep.focus();
    };
    rest(false);
    return (said) => {
      line.hidden = !said;
      text.textContent = said;
    };
  };

  od.library = (element, props, watch, send) => {
    const list = element.querySelector(".od-entries"), problem = element.querySelector(".od-problem");
    const sayKept = keptLine(element.querySelector(".od-kept"), send);
    let shown = "";
    const focusTitle = (id) => list.querySelector(`[data-id="${CSS.escape(id)}"] h3`)?.focus();
    od.follow(props, watch, (value) => {
      problem.hidden = !value?.problem;
      problem.textContent = value?.problem ?? "";
      element.querySelector(".od-total").textContent = value?.text ?? "";
      sayKept(value?.kept ?? "");
      element.querySelector(".od-nothing").hidden = Boolean(value?.entries?.length);
      const next = JSON.stringify(value?.entries ?? []);
      if (next === shown) return; // a form that is being filled in stays
      shown = next;
      const hadFocus = list.contains(document.activeElement)
        ? document.activeElement.closest("[data-id]")?.dataset.id : null;
      list.replaceChildren(...(value?.entries ?? []).map((entry) => card(entry, send, focusTitle)));
      if (hadFocus) { // never drop the keyboard's place
        focusTitle(hadFocus);
        if (!list.contains(document.activeElement)) element.querySelector("h2").focus();
      }
    });
  };
})();
