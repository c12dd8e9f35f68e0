// Evidence: passages of the document with the way to them, copying, and files made in the browser.
// What the document says is written with textContent only.
let send = null, element = null;

od.sources = (panel, props, watch, senders) => {
  [element, send] = [panel, senders];
  const section = element.querySelector(".od-sources"), list = element.querySelector(".od-answers");
  let shown = "";
  od.follow(props, watch, (value) => {
    const answers = value?.answers ?? [], now = JSON.stringify(answers), before = shown;
    if (now === shown) return; // what somebody has unfolded or focused stays
    shown = now;
    section.hidden = !answers.length;
    list.replaceChildren(...answers.map((answer, i) => entry(answer, i === 0)));
    od.setAnswers(answers);
    const first = answers[0]?.sources[0];
    if (before && first && !od.isNarrow()) od.showSpan?.(first.start, first.stop, true); // the reading view may be absent
  });
};

const entry = ({ question, about, sources }, isLatest) => od.make("details", { open: isLatest },
  od.textElement("summary", question, "od-asked"), od.textElement("p", about, "od-explain"),
  ...(sources.length ? [od.make("ol", {}, ...sources.map(passage))] : []));

/** What the icons under an answer do. */
od.answerTool = async (link, name, at) => {
  const answer = od.answers.find((one) => one.at === at), said = element.querySelector(".od-said");
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
const reword = ({ at, question }, link) => {
  const field = od.make("textarea", { rows: 2, value: question, ariaLabel: "The question in other words" });
  const keep = od.button({ className: "od-button", onclick: () => dialog.close() }, "Cancel");
  const ask = od.make("button", { type: "submit", className: "od-button od-primary" }, "Ask");
  const tools = od.make("div", { className: "od-tools" }, ask, keep);
  if (at !== od.answers[0].at) tools.append(od.textElement("span", "The answers after it are dropped.", "od-explain"));
  const form = od.make("form", { className: "od-rewording" }, field, tools);
  const dialog = od.make("dialog", { className: "od-dialog" }, form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const words = field.value.trim();
    if (!words) return;
    send.reword({ at, question, words });
    dialog.close();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) form.requestSubmit();
    else if (event.key === "Escape") dialog.close();
    else return;
    event.preventDefault(); // the page has other uses for both
  });
  dialog.addEventListener("close", () => { dialog.remove(); if (link.isConnected) link.focus(); });
  document.querySelector("#od-confirm").append(dialog);
  dialog.showModal();
};

const passage = ({ start, stop, where, text, bar }, i) => {
  const share = od.textElement("i", "", "od-share");
  share.style.width = `${Math.min(100, 100 * bar)}%`;
  const onclick = () => od.showSpan?.(start, stop); // the reading view may be absent
  return od.make("li", {}, od.button({ className: "od-source", title: "Show it in the document", onclick },
    od.textElement("b", `[${i + 1}] ${where}`), od.textElement("q", text), share));
};

// The quotation at a number in an answer, for pointer and keyboard.
const card = od.make("p", { className: "od-dialog od-quotation", popover: "manual", role: "tooltip" });
const quote = (event) => {
  const link = event.target instanceof Element && event.target.closest("#od-chat a[href^='#passage-']");
  const source = link && od.answers.flatMap((answer) => answer.sources)
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

const copied = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { // not over plain http from another machine, and not without leave
    const area = od.make("textarea", { value: text });
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
