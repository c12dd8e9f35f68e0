// Evidence: passages of the document with the way to them, copying, and files made in the browser.
// What the document says is written with textContent only.
(() => {
  "use strict";
  const od = window.ondevice;

  let answers = [], send = null, element = null;

  od.sources = (panel, props, watch, senders) => {
    [element, send] = [panel, senders];
    const section = element.querySelector(".od-sources"), list = element.querySelector(".od-answers");
    let shown = "";
    od.follow(props, watch, (value) => {
      answers = value?.answers ?? [];
      const now = JSON.stringify(answers), before = shown;
      if (now === shown) return; // what somebody has unfolded or focused stays
      shown = now;
      section.hidden = !answers.length;
      list.replaceChildren(...answers.map((answer, i) => entry(answer, i === 0)));
      od.setAnswers(answers);
      const first = answers[0]?.sources[0];
      od.setPins(answers[0]?.sources ?? []);
      if (before && first && !od.isNarrow()) od.showSpan?.(first.start, first.stop, true); // the reading view may be absent
    });
  };

  const entry = (answer, isLatest) => {
    const details = document.createElement("details"), passages = document.createElement("ol");
    details.open = isLatest;
    details.append(od.textElement("summary", answer.question, "od-asked"));
    passages.append(...answer.sources.map((source, i) => passage(source, i + 1)));
    details.append(od.textElement("p", answer.about, "od-explain"), ...(answer.sources.length ? [passages] : []));
    return details;
  };

  /** What the icons under an answer do. */
  od.answerTool = async (link, name, at) => {
    const answer = answers.find((one) => one.at === at), said = element.querySelector(".od-said");
    if (name === "stop") return document.querySelector("#od-stop-answer").click();
    if (!answer) return; // an older one, of which the page knows no more
    const { question } = answer;
    if (name === "go") send.go_on({ at, question });
    else if (name === "anew") send.anew({ at, question });
    else if (name === "edit") reword(answer, link);
    else {
      said.textContent = (await copied(answer.copy)) ? "Copied." : "The browser does not let this page copy.";
      link.dataset.said = said.textContent;
    }
  };

  /** The question in a field, to be asked from there in other words. */
  const reword = (answer, link) => {
    const dialog = od.textElement("dialog", "", "od-dialog"), close = () => dialog.close();
    dialog.append(rewording(answer, answer === answers[0], send, close));
    dialog.addEventListener("close", () => { dialog.remove(); if (link.isConnected) link.focus(); });
    document.querySelector(".gradio-container").append(dialog);
    dialog.showModal();
  };

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
      if (!words) return;
      send.reword({ at: answer.at, question: answer.question, words });
      close();
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
    const jump = button("", "od-source"), share = od.textElement("i", "", "od-share");
    share.style.width = `${Math.min(100, 100 * source.bar)}%`;
    jump.append(od.textElement("b", `[${number}] ${source.where}`), od.textElement("q", source.text), share);
    jump.title = "Show it in the document";
    jump.addEventListener("click", () => od.showSpan?.(source.start, source.stop)); // the reading view may be absent
    item.append(jump);
    return item;
  };

  // The quotation at a number in an answer, for pointer and keyboard.
  const card = od.textElement("p", "", "od-dialog od-quotation");
  card.popover = "manual";
  card.role = "tooltip";
  const quote = (event) => {
    const link = event.target instanceof Element && event.target.closest("#od-chat a[href^='#passage-']");
    const source = link && answers.flatMap((answer) => answer.sources)
      .find(({ start, stop }) => link.getAttribute("href") === `#passage-${start}-${stop}`);
    if (!source) return card.isConnected && card.hidePopover();
    card.textContent = `${source.where}: ${source.text}`;
    document.body.append(card);
    card.showPopover();
    const at = link.getBoundingClientRect(), left = Math.min(at.left, innerWidth - card.offsetWidth - 8);
    const isBelow = at.bottom + card.offsetHeight + 8 < innerHeight;
    Object.assign(card.style, {
      left: `${Math.max(left, 8)}px`, top: `${isBelow ? at.bottom + 4 : at.top - card.offsetHeight - 4}px` });
  };
  for (const kind of ["pointerover", "focusin", "click"]) document.addEventListener(kind, quote);

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
