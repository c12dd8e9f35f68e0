// Roles of Gradio's own parts for screen readers, where they are wrong or missing; found by axe-core, held by a test. And
// its toasts, where they say over the page what stands on it.
(() => {
  "use strict";
  const mends = [
    // Buttons that are no list.
    [".examples[role=list]", (list) => list.removeAttribute("role")],
    // A button in a button: the inner one does what both do, for its click arrives at the outer one.
    ["#od-chat .title[role=button]", (title) => {
      title.removeAttribute("role");
      title.removeAttribute("tabindex");
    }],
    ["#od-chat .title button[aria-label='']", (button) => button.setAttribute("aria-label", "Show or hide the account")],
    [".toast-header[role=button]", (header) => {
      header.removeAttribute("role");
      header.removeAttribute("tabindex");
    }],
  ];
  const words = (element) => element.textContent.replace(/\s+/g, " ").trim();
  mends.push([".toast-body", (toast) => {
    const problem = document.querySelector("#od-problem .od-problem"), texts = [...toast.querySelectorAll(".toast-message-text")];
    if (!problem?.checkVisibility() || !texts.length) return;
    if (texts.every((text) => words(text) === words(problem))) toast.style.display = "none";
  }]);
  let isDue = false;
  const mend = () => {
    isDue = false;
    for (const [selector, change] of mends) document.querySelectorAll(selector).forEach(change);
  };
  new MutationObserver(() => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(mend);
  }).observe(document.documentElement, { childList: true, subtree: true });
})();
