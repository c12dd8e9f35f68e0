// Evidence: passages of the document with the way to them, copying, and files made in the browser.
// What the document says is written with textContent only.
(() => {
  "use strict";
  const od = window.ondevice;
  const GO_ON = "Go on where your last answer was cut off.";

  od.sources = (element, props, watch) => {
    const section = element.querySelector(".od-sources"), list = element.querySelector(".od-answers");
    const said = element.querySelector(".od-said");
    let shown = "";
    od.follow(props, watch, (value) => {
      const answers = value?.answers ?? [], now = JSON.stringify(answers);
      if (now === shown) return; // what somebody has unfolded or focused stays
      shown = now;
      section.hidden = !answers.length;
      said.textContent = "";
      list.replaceChildren(...answers.map((answer, i) => entry(answer, i === 0, said)));
      od.markUnfounded(answers);
      od.setPins(answers[0]?.sources ?? []);
    });
  };

  const entry = (answer, isLatest, said) => {
    const details = document.createElement("details");
    details.open = isLatest;
    details.append(od.textElement("summary", answer.question, "od-asked"));
    if (answer.note) details.append(od.textElement("p", `Sources ${answer.note}.`, "od-explain"));
    if (answer.unfounded.length) {
      const line = od.textElement("p", "Not found in the document: ", "od-unfounded");
      line.append(od.textElement("b", answer.unfounded.join(", ")));
      line.title = "Numbers, names and quotations of the answer that stand nowhere in the text. They may still be right.";
      details.append(line);
    }
    const passages = document.createElement("ol");
    passages.append(...answer.sources.map((source, i) => passage(source, i + 1)));
    details.append(answer.sources.length ? passages : od.textElement("p", "No sources for this answer.", "od-explain"));
    const copy = button("Copy with sources", "od-copy");
    const again = button("Ask again", "od-again");
    again.title = "Puts the question back into its field, to be changed or sent again";
    again.addEventListener("click", () => fill(answer.question));
    const tools = od.textElement("div", "", "od-answer-tools");
    tools.append(copy, again);
    if (isLatest && answer.is_cut) {
      const more = button("Continue", "od-continue");
      more.title = "The answer reached its longest length: ask for the rest of it";
      more.addEventListener("click", () => { fill(GO_ON); requestAnimationFrame(() => document.querySelector("#od-ask")?.click()); });
      tools.append(more);
    }
    copy.addEventListener("click", async () => {
      said.textContent = (await copied(answer.copy)) ? "Copied." : "The browser does not let this page copy.";
    });
    details.append(tools);
    return details;
  };

  /** Puts a question into its field. */
  const fill = (text) => {
    const field = document.querySelector("#od-question textarea");
    if (!field) return;
    od.openPane("chat");
    field.value = text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.focus();
  };

  const passage = (source, number) => {
    const item = document.createElement("li");
    const jump = button("", "od-source");
    const share = document.createElement("i");
    share.className = "od-share";
    share.style.width = `${Math.min(100, 100 * source.bar)}%`;
    jump.append(
      od.textElement("b", `[${number}] ${source.where}`),
      od.textElement("span", `${source.share} of its extra attention`, "od-share-text"),
      od.textElement("q", source.text),
      share,
    );
    jump.title = "Show it in the document";
    jump.addEventListener("click", () => od.showSpan?.(source.start, source.stop)); // the reading view may be absent
    item.append(jump);
    return item;
  };

  const button = (text, className) => {
    const made = od.textElement("button", text, className);
    made.type = "button";
    return made;
  };

  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch { // not over plain http from another machine, and not without leave
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };

  od.download = (element, props, watch) => {
    let last = props.value?.id;
    od.follow(props, watch, (file) => {
      if (!file?.id || file.id === last) return;
      last = file.id;
      od.saveFile(file.name, file.mime, file.text);
    });
  };
})();
