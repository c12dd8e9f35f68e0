// Evidence: passages of the document with the way to them, copying, and files made in the browser.
// What the document says is written with textContent only.
(() => {
  "use strict";
  const od = window.ondevice;

  od.sources = (element, props, watch, send) => {
    const section = element.querySelector(".od-sources"), list = element.querySelector(".od-answers");
    const said = element.querySelector(".od-said");
    let shown = "";
    od.follow(props, watch, (value) => {
      const answers = value?.answers ?? [], now = JSON.stringify(answers);
      if (now === shown) return; // what somebody has unfolded or focused stays
      shown = now;
      section.hidden = !answers.length;
      said.textContent = "";
      list.replaceChildren(...answers.map((answer, i) => entry(answer, i === 0, said, send)));
      od.markUnfounded(answers);
      od.setAnswers(answers);
      od.setPins(answers[0]?.sources ?? []);
    });
  };

  const entry = (answer, isLatest, said, send) => {
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
    const tools = od.textElement("div", "", "od-answer-tools"), { at, question } = answer;
    const tool = (text, className, title, act) => {
      const made = button(text, className);
      made.title = title;
      made.addEventListener("click", act);
      tools.append(made);
      return made;
    };
    if (isLatest && answer.is_cut) {
      tool("Continue", "od-continue", "The answer was cut off: let it go on from there", () => send.go_on({ at, question }));
    }
    tool("Copy with sources", "od-copy", "Question, answer, account and passages", async () => {
      said.textContent = (await copied(answer.copy)) ? "Copied." : "The browser does not let this page copy.";
    });
    if (isLatest) {
      tool("Write again", "od-anew", "Another answer to the same question, in place of this one", () => send.anew({ at, question }));
    }
    const edit = tool("Edit question", "od-edit", "Ask in other words, in place of this question", () => {
      const form = rewording(answer, isLatest, send, () => { form.replaceWith(tools); edit.focus(); });
      tools.replaceWith(form);
      form.querySelector("textarea").focus();
    });
    details.append(tools);
    return details;
  };

  /** In place of the buttons: the question in a field, to be asked from there in other words. */
  const rewording = (answer, isLatest, send, close) => {
    const form = od.textElement("form", "", "od-rewording"), field = document.createElement("textarea");
    const ask = button("Ask", "od-button od-primary"), keep = button("Cancel", "od-button"), tools = od.textElement("div", "", "od-tools");
    field.rows = 2;
    field.value = answer.question;
    field.setAttribute("aria-label", "The question in other words");
    ask.type = "submit";
    tools.append(ask, keep);
    form.append(field, tools);
    if (!isLatest) tools.append(od.textElement("span", "The answers after it are dropped.", "od-explain"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const words = field.value.trim();
      if (words) send.reword({ at: answer.at, question: answer.question, words });
    });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) form.requestSubmit();
      else if (event.key === "Escape") close();
      else return;
      event.preventDefault(); // the page has other uses for both
    });
    keep.addEventListener("click", close);
    return form;
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
