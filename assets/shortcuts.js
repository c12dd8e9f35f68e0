// Keys of the page: "/" goes to the question, arrow up in an empty question brings the last one back.
(() => {
  "use strict";

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

  const keys = { "/": focusQuestion, ArrowUp: bringBack };
  document.addEventListener("keydown", (event) => {
    const isOther = event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey;
    if (!isOther && event.target instanceof Element) keys[event.key]?.(event);
  });
})();
