// Every tab has an address, so that the browser's Back goes from tab to tab and not out of the app.
(() => {
  "use strict";
  const FIRST = "read"; // whose address is that of the page
  const tabs = () => [...document.querySelectorAll("#od-tabs [role=tab][data-tab-id]")];
  const named = () => location.hash.slice(1) || FIRST;

  const go = () => tabs().find((tab) => tab.dataset.tabId === named())?.click();

  /** The tab that is shown names the address; one that an address has named is there already. */
  const note = () => {
    const name = tabs().find((tab) => tab.ariaSelected === "true")?.dataset.tabId;
    if (!name || name === named()) return;
    history.pushState(null, "", name === FIRST ? location.pathname + location.search : `#${name}`);
  };

  addEventListener("popstate", go);
  new MutationObserver((_, found) => {
    if (!tabs().length) return;
    found.disconnect();
    if (tabs().some((tab) => tab.dataset.tabId === named())) go();
    new MutationObserver(note).observe(
      document.getElementById("od-tabs"), { subtree: true, childList: true, attributeFilter: ["aria-selected"] });
  }).observe(document, { childList: true, subtree: true });
})();
