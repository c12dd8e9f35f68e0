// Layers over the field of the grown map: switches, each only where the document has something of it. What is switched on
// is told by colour and, beside the switch, by its number of tokens.
/** Fills a group with a switch for every layer; `changed()` is called when one is turned. Gives `shown()`: the
 *  numbers of the layers that are on and have something to show. */
od.mapLayers = (group, changed) => {
  const wanted = new Set(), { tokens } = od;
  const switches = od.LAYERS.map(({ name, text }) => {
    const number = od.textElement("span", "", "od-layer-count"), swatch = od.textElement("i", "", `od-swatch od-swatch-${name}`);
    const onclick = () => {
      if (!wanted.delete(name)) wanted.add(name);
      show();
      changed();
    };
    const button = od.button({ className: "od-layer", data: { layer: name }, onclick }, swatch, od.textElement("span", text), number);
    group.append(button);
    return { name, button, number };
  });
  const countOf = (name) => tokens.summary?.layers?.[name] ?? 0;
  const show = () => {
    for (const { name, button, number } of switches) {
      button.hidden = !countOf(name);
      button.ariaPressed = wanted.has(name);
      number.textContent = od.number(countOf(name));
    }
    group.hidden = switches.every(({ button }) => button.hidden);
  };
  tokens.listen((what) => { if (what === "document" || what === "cells") show(); });
  show();
  return () => switches.flatMap(({ name }, i) => (wanted.has(name) && countOf(name) ? [i] : []));
};
