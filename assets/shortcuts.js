// Keys of the page, as the sheet lists them that "?" opens.
const question = () => document.querySelector("#od-question textarea");
const isTyped = (target) => target.matches("input, textarea, select, [contenteditable=true]");

const focusQuestion = (event) => {
  const field = question();
  if (isTyped(event.target) || !field || field.disabled) return;
  event.preventDefault(); // the key itself must not be written
  field.focus();
};

const bringBack = (event) => {
  const field = question(), last = document.querySelector(".od-answers .od-asked")?.textContent; // the newest is first
  if (event.target !== field || field.value || !last) return;
  event.preventDefault();
  field.value = last;
  field.dispatchEvent(new Event("input", { bubbles: true }));
};

const press = (selector) => (event) => {
  const button = document.querySelector(selector);
  if (document.querySelector("dialog[open]") || !button?.checkVisibility()) return;
  event.preventDefault();
  button.click();
};
// A list that is open in a drawer has the key for itself.
const leave = (event) => {
  if (document.querySelector("dialog[open]") || event.target.matches("input[aria-expanded=true]")) return;
  if (od.closeDrawer()) event.preventDefault(); else press("#od-stop-answer")(event);
};
const unlessTyped = (action) => (event) => { if (!isTyped(event.target)) action(event); };
od.keys = () => {}; // the sheet is a dialog, which needs no script of its own
const showKeys = (event) => { event.preventDefault(); document.querySelector(".od-keys")?.showModal(); };

const keys = {
  "/": focusQuestion, ArrowUp: bringBack, Escape: leave, "?": unlessTyped(showKeys),
  m: unlessTyped(press("[data-map=grow]")),
};
document.addEventListener("keydown", (event) => {
  const isOther = event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey;
  if (!isOther && event.target instanceof Element) keys[event.key]?.(event);
});
