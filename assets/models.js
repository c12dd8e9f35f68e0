// The header: which model is in use, and the list from which another is fetched or used.
// Names and reasons are written with textContent only.
const button = (text, ariaLabel, onclick, kind = "", disabled = false) =>
  od.button({ className: `od-button ${kind}`, ariaLabel, onclick, disabled }, text);

// One model, with what can be done with it. Using another one asks first where documents are open.
const item = ({ name, title, facts, reason, state }, { busy, fetching, question }, send) => {
  const act = od.make("div"), use = () => send.use_model({ name });
  const offers = {
    current: () => od.textElement("span", "in use", "od-in-use"),
    here: () => button("Use", `Use ${title}`, question ? ask : use, "od-primary", Boolean(busy)),
    away: () => button("Download", `Download ${title}`, () => send.download_model({ name }), "", Boolean(busy || fetching)),
  };
  const offer = () => act.replaceChildren(offers[state]?.() ?? "");
  const ask = () => {
    const keep = button("Keep", "Keep the model that is in use", offer);
    act.replaceChildren(od.make("div", { className: "od-entry-form", role: "group", ariaLabel: `Use ${title}?` },
      od.textElement("span", question), button("Use it", `Use ${title} now`, use, "od-primary"), keep));
    keep.focus();
  };
  offer();
  const words = od.make("div", {}, od.textElement("b", title), od.textElement("span", facts));
  if (reason) words.append(od.textElement("span", `Too large for this machine: ${reason}.`));
  return od.make("li", { data: { state } }, words, act);
};

od.header = (element, props, watch, send) => {
  const find = (selector) => element.querySelector(selector), dialog = find("dialog"), list = find(".od-model-list");
  const problem = dialog.querySelector(".od-problem"), said = find(".od-models-state span");
  const cancel = button("Cancel", "Cancel the download", () => send.cancel_download({}), "od-stop");
  said.parentElement.append(cancel); // for good: the keyboard's place is not lost while the download goes on
  let rows = [], shown = "", wasFetching = false;
  find(".od-badge-model").addEventListener("click", () => { dialog.showModal(); send.models({}); });
  od.follow(props, watch, (value) => {
    find("[data-field=model]").textContent = value?.model ?? "";
    const notice = find(".od-notice");
    notice.hidden = !value?.notice;
    // Commands stand between backticks.
    notice.replaceChildren(...(value?.notice ?? "").split("`").map(
      (text, i) => od.textElement(i % 2 ? "code" : "span", text)));
    const { fetching, busy, question } = value ?? {}, state = { fetching, busy, question };
    rows = value?.models ?? rows;
    od.say(problem, value?.problem);
    said.textContent = busy || fetching || "";
    said.parentElement.hidden = !said.textContent;
    cancel.hidden = !fetching;
    if (wasFetching && !fetching && dialog.open) send.models({}); // one more is here now, or it failed
    wasFetching = Boolean(fetching);
    const next = JSON.stringify([rows, Boolean(fetching), Boolean(busy), question]);
    if (next === shown) return; // a question that is being answered stays
    shown = next;
    const hadFocus = list.contains(document.activeElement);
    list.replaceChildren(...rows.map((row) => item(row, state, send)));
    if (hadFocus) dialog.querySelector("form button").focus(); // never drop the keyboard's place
  });
};
