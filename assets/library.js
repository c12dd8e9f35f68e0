// Lists of saved documents and of conversations: a click opens one; what is known of it, its name and its end are behind "⋯".
// Titles and names come from users and files; they are written with textContent only.
const MANY = 7; // documents, from which on there is a field to find one

const item = (entry, send, isUnfolded) => {
  const { id, title, line, reason, facts = [] } = entry, disabled = entry.can_rename === false;
  const field = od.make("input", { value: title, maxLength: 200, disabled });
  const form = od.make("form", { className: "od-entry-form" },
    od.make("label", {}, "Name", field),
    od.make("button", { type: "submit", className: "od-button", disabled }, "Rename"),
    od.button({ className: "od-button od-entry-delete", data: { title }, onclick: () => send.delete_entry({ id }) }, "Delete"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send.rename_entry({ id, title: field.value });
  });
  const open = od.button({
    className: "od-open", ariaLabel: `Open ${title}, ${line}`, ariaCurrent: entry.is_current ? "true" : null,
    disabled: Boolean(reason), onclick: () => send.open_entry({ id }),
  }, od.textElement("b", title), od.textElement("span", line));
  const more = od.make("details", { open: isUnfolded },
    od.make("summary", { ariaLabel: `More on ${title}` }, "⋯"), od.make("dl", {}, ...od.terms(facts)), form);
  const why = reason ? [od.textElement("p", reason, "od-explain")] : [];
  return od.make("li", { className: "od-entry", data: { id } }, open, ...why, more);
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
