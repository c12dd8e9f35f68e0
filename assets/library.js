// Lists of saved documents and of conversations: a click opens one; what is known of it, its name and its end are behind "⋯".
// Titles and names come from users and files; they are written with textContent only.
(() => {
  "use strict";
  const od = window.ondevice;
  const MANY = 7; // documents, from which on there is a field to find one

  const button = (text, className, type = "button") => Object.assign(od.textElement("button", text, className), { type });

  const item = (entry, send, isUnfolded) => {
    const one = od.textElement("li", "", "od-entry"), more = document.createElement("details");
    const open = button("", "od-open"), summary = od.textElement("summary", "⋯"), facts = document.createElement("dl");
    one.dataset.id = entry.id;
    open.append(od.textElement("b", entry.title), od.textElement("span", entry.line));
    open.setAttribute("aria-label", `Open ${entry.title}, ${entry.line}`);
    if (entry.is_current) open.setAttribute("aria-current", "true");
    open.disabled = Boolean(entry.reason);
    open.addEventListener("click", () => send.open_entry({ id: entry.id }));
    summary.setAttribute("aria-label", `More on ${entry.title}`);
    for (const [name, text] of entry.facts ?? []) facts.append(od.textElement("dt", name), od.textElement("dd", text));
    const form = od.textElement("form", "", "od-entry-form"), label = od.textElement("label", "Name");
    const field = document.createElement("input"), remove = button("Delete", "od-button od-entry-delete");
    Object.assign(field, { value: entry.title, maxLength: 200, disabled: entry.can_rename === false });
    label.append(field);
    const rename = button("Rename", "od-button", "submit");
    rename.disabled = field.disabled;
    form.append(label, rename, remove);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send.rename_entry({ id: entry.id, title: field.value });
    });
    remove.dataset.title = entry.title;
    remove.addEventListener("click", () => send.delete_entry({ id: entry.id }));
    more.open = isUnfolded;
    more.append(summary, facts, form);
    one.append(open, ...(entry.reason ? [od.textElement("p", entry.reason, "od-explain")] : []), more);
    return one;
  };

  /** What fills a list of entries, behind `summary`, with a field that `sift` uses from `many` on; whether there was news. */
  od.entries = (element, send, many, sift) => {
    const [find, list] = ["input", "ul"].map((selector) => element.querySelector(selector));
    let shown = "";
    find.addEventListener("input", () => sift(find, list));
    return (value) => {
      const now = JSON.stringify(value ?? {});
      if (now === shown || !value) return false; // a name that is being typed stays
      shown = now;
      const focused = list.contains(document.activeElement) && document.activeElement.closest("[data-id]").dataset.id;
      const unfolded = new Set([...list.querySelectorAll("details[open]")].map((one) => one.parentElement.dataset.id));
      element.querySelector("summary").textContent = value.head;
      find.hidden = value.entries.length < many;
      if (find.hidden) find.value = "";
      list.replaceChildren(...value.entries.map((entry) => item(entry, send, unfolded.has(entry.id))));
      sift(find, list);
      if (focused) list.querySelector(`[data-id="${CSS.escape(focused)}"] summary`)?.focus(); // else focus.js has a place
      return true;
    };
  };

  od.library = (element, props, watch, send) => {
    const box = element.querySelector("details"), [about, forget] = [...box.children].slice(-2);
    let wasOpen = null;
    const fill = od.entries(element, send, MANY, (find, list) => {
      for (const one of list.children) one.hidden = !one.textContent.toLowerCase().includes(find.value.toLowerCase());
    });
    forget.addEventListener("click", () => send.forget_all({}));
    od.follow(props, watch, (value) => {
      if (!fill(value)) return;
      box.hidden = !value.about;
      if (value.is_open !== wasOpen) box.open = wasOpen = value.is_open;
      about.textContent = value.about;
      forget.hidden = !value.is_kept;
    });
  };
})();
