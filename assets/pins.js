// Pins on the map: where the passages stand that the last answer looked at, with their numbers. A pin leads to its
// passage in the text, as the number under the answer does.
const listeners = new Set();
let sources = []; // of the last answer

/** The answers that are listed, the last one first; each has its sources, with start, stop and where. */
od.answers = [];
od.setAnswers = (answers) => {
  od.answers = answers;
  sources = answers[0]?.sources ?? [];
  listeners.forEach((listener) => listener());
};

/** The token of the first pin; undefined where there is none. */
od.pinned = () => sources[0]?.start;

/** Pins in a box over a map; gives `place(pointOf)`, which puts them where `pointOf(token, source)` says, or hides them. */
od.pins = (box, changed) => {
  let drawn = null;
  const draw = () => {
    drawn = sources;
    box.replaceChildren(...sources.map((source, i) => {
      const title = `Source ${i + 1} of the last answer, ${source.where}: show it in the document`;
      const onclick = () => od.showSpan(source.start, source.stop);
      return od.button({ className: "od-pin", title, ariaLabel: title, onclick }, i + 1);
    }));
  };
  listeners.add(changed);
  return (pointOf) => {
    if (drawn !== sources) draw();
    [...box.children].forEach((pin, i) => {
      const point = pointOf(sources[i].start, sources[i]);
      const at = point ? `${Math.round(point.x)}px ${Math.round(point.y)}px` : "";
      if (pin.dataset.at === at) return; // writing it again would lay out the page
      pin.dataset.at = at;
      pin.hidden = !point;
      if (point) [pin.style.left, pin.style.top] = at.split(" ");
    });
  };
};
