// Roles of Gradio's own parts for screen readers, where they are wrong or missing; found by axe-core, held by a test. And
// its toasts, where they say over the page what stands on it, and the focus, where it is asked for something.
const words = (element) => element.textContent.replace(/\s+/g, " ").trim();
const withoutRole = (element) => {
  element.removeAttribute("role");
  element.removeAttribute("tabindex");
};
let groups = 0;
const asked = new WeakSet();
const mends = [
  // Buttons that are no list.
  [".examples[role=list]", withoutRole],
  // A button in a button: the inner one does what both do, for its click arrives at the outer one.
  ["#od-chat .title[role=button], .toast-header[role=button]", withoutRole],
  ["#od-chat .title button[aria-label='']", (button) => { button.ariaLabel = "Show or hide the account"; }],
  // Of one group each radio button has a name of its own: arrow keys would not go from one to the next, and all were
  // stops of the tab key.
  [".wrap:has(> label > input[type=radio])", (group) => {
    group.dataset.group ??= `od-group-${++groups}`;
    for (const button of group.querySelectorAll("input[type=radio]")) {
      if (button.name !== group.dataset.group) button.name = group.dataset.group;
    }
  }],
  [".toast-message-item", (message) => {
    const problem = document.querySelector("#od-problem .od-problem"), toast = message.closest(".toast-body");
    if (problem?.checkVisibility() && words(message) === words(problem)) message.style.display = "none";
    const isSaying = [...toast.querySelectorAll(".toast-message-item")].some((one) => one.style.display !== "none");
    toast.style.display = isSaying ? "" : "none";
  }],
  ["#od-password input", (field) => {
    const isTyping = document.activeElement.matches("textarea, input:not([type=file], [type=radio])");
    if (asked.has(field) || !field.checkVisibility()) return;
    asked.add(field);
    if (!isTyping) field.focus();
  }],
];
let frame = 0;
const mend = () => {
  frame = 0;
  for (const [selector, change] of mends) document.querySelectorAll(selector).forEach(change);
};
new MutationObserver(() => { frame ||= requestAnimationFrame(mend); })
  .observe(document.documentElement, { childList: true, subtree: true, attributeFilter: ["name"] });
