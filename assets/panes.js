// Which panes are in view: on a narrow screen one at a time, with tabs at the foot; the map as a strip or grown.
const wide = matchMedia("(min-width: 1000px) and (min-height: 600px)");

/** Whether one pane alone is in view. */
od.isNarrow = () => !wide.matches;

/** Whether the map is the strip at the foot. */
od.isStrip = () => wide.matches && document.body.dataset.map !== "grown";

/** Whether the map shows heads, layers and what is new, which only who knows the method understands. */
od.isExpert = () => document.body.dataset.experts === "on" && !od.isStrip();

/** Brings a pane into view: "chat", "document" or "map". On a wide screen all of them are. */
od.openPane = (name) => {
  document.body.dataset.pane = name;
  for (const button of document.querySelectorAll("[data-pane-button]")) {
    if (button.dataset.paneButton === name) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
};

od.panes = (element) => {
  const lay = () => { document.body.dataset.layout = wide.matches ? "wide" : "narrow"; };
  wide.addEventListener("change", lay);
  lay();
  element.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-pane-button]");
    if (button) od.openPane(button.dataset.paneButton);
  });
  od.openPane(document.body.dataset.pane ?? "chat");
};

/** Lets the strip of the map grow to half of the screen, and back. */
od.growMap = (button) => button.addEventListener("click", () => {
  const isGrown = document.body.dataset.map !== "grown";
  document.body.dataset.map = isGrown ? "grown" : "strip";
  button.setAttribute("aria-expanded", String(isGrown));
});
