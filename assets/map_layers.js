// Layers over the field of the grown map: switches, each only where the document has something of it. What is switched on
// is told by colour and, beside the switch, by its number of tokens.
(() => {
  "use strict";
  const od = window.ondevice;

  /** Fills a group with a switch for every layer; `changed()` is called when one is turned. Gives `shown()`: the
   *  numbers of the layers that are on and have something to show. */
  od.mapLayers = (group, changed) => {
    const wanted = new Set(), { tokens } = od;
    const switches = od.LAYERS.map(({ name, text }) => {
      const button = od.textElement("button", "", "od-layer"), number = od.textElement("span", "", "od-layer-count");
      button.type = "button";
      button.dataset.layer = name;
      button.append(od.textElement("i", "", `od-swatch od-swatch-${name}`), od.textElement("span", text), number);
      button.addEventListener("click", () => {
        if (!wanted.delete(name)) wanted.add(name);
        show();
        changed();
      });
      group.append(button);
      return { name, button, number };
    });
    const countOf = (name) => tokens.summary?.layers?.[name] ?? 0;
    const show = () => {
      for (const { name, button, number } of switches) {
        button.hidden = !countOf(name);
        button.setAttribute("aria-pressed", String(wanted.has(name)));
        number.textContent = od.number(countOf(name));
      }
      group.hidden = switches.every(({ button }) => button.hidden);
    };
    tokens.listen((what) => { if (what === "document" || what === "cells") show(); });
    show();
    return () => switches.flatMap(({ name }, i) => (wanted.has(name) && countOf(name) ? [i] : []));
  };
})();
