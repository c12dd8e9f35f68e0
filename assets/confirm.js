// What throws a reading or a conversation away asks once more. The first click is kept from its button; the second one,
// in the dialog, goes there.
let dialog = null, allowed = null;

const name = () => document.querySelector(".od-card dd")?.textContent ?? "the document";
const hasRead = () => ["read", "stopped", "reading", "answering"].includes(document.body.dataset.state);
// For each button: whether anything would be lost, what, and the word for doing it.
const guards = [
  ["#od-read", hasRead, () => `Read ${name()} again, from its beginning? What was read is dropped; conversations stay.`, "Read again"],
  ["#od-forget", hasRead, () => `Close ${name()}? What was read and its conversations are dropped.`, "Close it"],
  ["#od-conversations .od-entry-delete", () => true, (button) => `Delete “${button.dataset.title}”? Its questions and answers are dropped.`,
    "Delete it"],
  [".od-entry-delete", () => true, (button) => `Delete ${button.dataset.title}? Its text, what was read of it and its answers go from this disk.`,
    "Delete for good"],
  [".od-forget-all", () => true, () => "Close all documents, and delete what is kept of them? Saved ones stay.", "Forget for good"],
];

od.confirm = (element) => {
  dialog = element.querySelector("dialog");
  dialog.addEventListener("close", () => {
    if (dialog.returnValue === "do") allowed?.click(); else allowed?.focus();
    allowed = null;
  });
};

document.addEventListener("click", (event) => {
  if (!dialog || !(event.target instanceof Element)) return;
  for (const [selector, wouldLose, words, act] of guards) {
    const button = event.target.closest(selector);
    if (!button || button === allowed || !wouldLose()) continue;
    event.preventDefault();
    event.stopImmediatePropagation();
    allowed = button;
    dialog.returnValue = "";
    dialog.querySelector("p").textContent = words(button);
    dialog.querySelector("[data-do]").textContent = act;
    dialog.showModal();
    return;
  }
}, true);
