// The header: which model is in use, and the list from which another is fetched or used.
// Names and reasons are written with textContent only.
(() => {
  "use strict";
  const od = window.ondevice;

  const button = (text, label, act, className) => {
    const element = od.textElement("button", text, `od-button ${className ?? ""}`);
    element.type = "button";
    element.setAttribute("aria-label", label);
    element.addEventListener("click", act);
    return element;
  };

  // One model, with what can be done with it. Using another one asks first where documents are open.
  const item = (row, state, send) => {
    const line = od.textElement("li", ""), words = od.textElement("div", ""), act = od.textElement("div", "");
    line.dataset.state = row.state;
    words.append(od.textElement("b", row.title), od.textElement("span", row.facts));
    if (row.reason) words.append(od.textElement("span", `Too large for this machine: ${row.reason}.`, "od-reason"));
    const use = () => send.use_model({ name: row.name });
    const rest = () => {
      const isBusy = Boolean(state.busy);
      if (row.state === "current") act.replaceChildren(od.textElement("span", "in use", "od-in-use"));
      if (row.state === "here") {
        const choose = button("Use", `Use ${row.title}`, state.question ? ask : use, "od-primary");
        choose.disabled = isBusy;
        act.replaceChildren(choose);
      }
      if (row.state === "away") {
        const download = button("Download", `Download ${row.title}`, () => send.download_model({ name: row.name }));
        download.disabled = isBusy || Boolean(state.fetching);
        act.replaceChildren(download);
      }
    };
    const ask = () => {
      const group = od.textElement("div", "", "od-entry-form");
      const keep = button("Keep", "Keep the model that is in use", rest);
      group.setAttribute("role", "group");
      group.setAttribute("aria-label", `Use ${row.title}?`);
      group.append(od.textElement("span", state.question), button("Use it", `Use ${row.title} now`, use, "od-primary"), keep);
      act.replaceChildren(group);
      keep.focus();
    };
    rest();
    line.append(words, act);
    return line;
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
      problem.hidden = !value?.problem;
      problem.textContent = value?.problem ?? "";
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
})();
