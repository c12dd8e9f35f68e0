// The way from source to source of an answer in the document, and back to where one was before the first of them.
const MOST = 20; // places that are remembered

/** The line above the text. `here()` gives the place that is shown, `leave(place)` goes back there, and `show(span)`
 *  shows a passage. */
od.sourceSteps = (element, { here, leave, show }) => {
  const find = (selector) => element.querySelector(selector);
  const line = find(".od-steps"), said = find(".od-steps-at"), group = find(".od-steps-group");
  const buttons = { [-1]: find("[data-step=before]"), 1: find("[data-step=after]") }, back = find("[data-step=back]");
  let sources = [], at = -1, past = [];

  const tell = () => {
    line.hidden = !past.length;
    group.hidden = at < 0;
    said.textContent = at < 0 ? "" : `${at + 1} of ${sources.length} ${sources.length === 1 ? "source" : "sources"}`;
    buttons[-1].disabled = at <= 0;
    buttons[1].disabled = at >= sources.length - 1;
  };
  const step = (by) => {
    at += by;
    tell();
    show(sources[at]);
    if (buttons[by].disabled) buttons[-by].focus(); // a button that is off would lose the focus
  };
  for (const by of [-1, 1]) buttons[by].addEventListener("click", () => step(by));
  back.addEventListener("click", () => {
    const place = past.pop();
    at = -1;
    leave(place);
    tell();
    if (place.focus?.isConnected && place.focus.checkVisibility()) place.focus.focus({ preventScroll: true });
    else if (!past.length) find(".od-text").focus({ preventScroll: true });
  });

  return {
    /** A passage is about to be shown that was asked for elsewhere. */
    jumps: (span) => {
      const isIt = (source) => source.start === span.start && source.stop === span.stop;
      sources = od.answers.map((answer) => answer.sources).find((list) => list.some(isIt)) ?? [];
      at = sources.findIndex(isIt);
      past = [...past, { ...here(), focus: document.activeElement }].slice(-MOST);
      tell();
    },
    forget: () => { [sources, at, past] = [[], -1, []]; tell(); },
  };
};
