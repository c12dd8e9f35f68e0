// Where the focus goes when the button that was pressed is gone: what takes its place, or else the question. Gradio takes
// buttons out of the page and puts others in, and the focus would fall to the beginning of the page.
const QUESTION = "#od-question textarea", FIELD = /textarea$/;
const after = [
  ["#od-read, #od-resume", ["#od-pause", "#od-stop", "#od-read"]],
  ["#od-pause", ["#od-resume", "#od-read"]],
  ["#od-stop", ["#od-resume", "#od-read", "#od-sample"]],
  ["#od-save", ["#od-save"]],
  ["#od-forget", ["#od-documents input:checked", "#od-sample"]],
  ["#od-conversations .od-entry-delete", ["#od-conversations summary", QUESTION]],
  [".od-entry-delete", [".od-library > summary", "#od-sample"]],
  [".od-forget-all", [".od-library > summary", "#od-sample"]],
  ["[href^='#answer-go']", ["[href^='#answer-go']", "[href^='#answer-anew']"]],
  ["[href^='#answer-anew']", ["[href^='#answer-anew']"]],
  [".od-rewording [type=submit]", ["[href^='#answer-edit']"]],
  ["#od-sample, [data-sample], .od-entry .od-open, #od-ask, #od-stop-answer, #od-chat .examples button, "
    + "#od-password button", ["#od-password input", QUESTION]],
];
let awaited = [], placed = null;

// Gradio shows one part after the other: what comes later may be what the focus is meant for.
const place = () => {
  const active = document.activeElement;
  if (!awaited.length || active !== document.body && active !== placed) return;
  const found = awaited.map((selector) => document.querySelector(selector))
    .find((one) => one && !one.disabled && one.checkVisibility());
  if (!found || found === active) return;
  placed = found;
  found.focus({ preventScroll: true });
};

document.addEventListener("click", (event) => {
  const pressed = event.target instanceof Element ? after.find(([selector]) => event.target.closest(selector)) : null;
  placed = null;
  awaited = (pressed?.[1] ?? []).filter((selector) => od.hasKeys.matches || !FIELD.test(selector));
}, true);
// Whoever goes elsewhere meanwhile stays there.
document.addEventListener("focusin", (event) => {
  if (awaited.length && !after.some(([selector]) => event.target.closest(selector))) awaited = [];
});
new MutationObserver(place).observe(document.documentElement,
  { childList: true, subtree: true, attributeFilter: ["class", "disabled", "hidden", "style"] });
