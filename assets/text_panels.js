// The panels that are text: document card, failure, progress bars, status, times.
// Values are written with textContent only.
od.card = (element, props, watch) => od.follow(props, watch, (value) => {
  const card = element.querySelector(".od-card");
  card.hidden = !value?.rows.length;
  element.querySelector(".od-hint").hidden = !card.hidden;
  card.querySelector("dl").replaceChildren(...od.terms(value?.rows ?? []));
  card.querySelectorAll("dd").forEach((told) => { told.title = told.textContent; }); // a long name is cut
  card.querySelector("ul").replaceChildren(...(value?.notes ?? []).map((text) => od.textElement("li", text)));
});

od.memory = (element, props, watch) => {
  od.follow(props, watch, (value) => od.say(element.querySelector(".od-memory"), value?.text));
  // The list of documents above it scrolls: one that is chosen now, or stands elsewhere now, is to be seen.
  let seen = "";
  const reveal = () => {
    const chosen = document.querySelector("#od-documents label.selected");
    const now = chosen ? [chosen.querySelector("input").value, chosen.offsetTop, chosen.offsetHeight].join() : "";
    if (now !== seen) chosen?.scrollIntoView({ block: "nearest" });
    seen = now;
  };
  const box = document.getElementById("od-document");
  new MutationObserver(reveal).observe(box, { subtree: true, childList: true, attributeFilter: ["class"] });
  new ResizeObserver(() => { seen = ""; reveal(); }).observe(box);
};

// What is said of the settings: an error stands under its field, the rest above all of them.
od.settings_note = (element, props, watch) => od.follow(props, watch, (value) => {
  const note = element.querySelector(".od-note") ?? document.querySelector(".od-note");
  const field = value?.field && document.getElementById(value.field);
  od.say(note, value?.text);
  note.dataset.kind = value?.kind ?? "";
  if (field) field.after(note);
  else element.append(note);
  document.querySelectorAll("#od-settings [aria-invalid=true]").forEach((wrong) => wrong.removeAttribute("aria-invalid"));
  if (value?.kind === "error") field?.querySelector("input, textarea")?.setAttribute("aria-invalid", "true");
});

od.problem = (element, props, watch) => od.follow(props, watch,
  (value) => od.say(element.querySelector(".od-problem"), value?.text));

od.status = (element, props, watch) => od.follow(props, watch, (value) => {
    od.tell(element.querySelector(".od-status"), value?.text ?? "");
  document.body.dataset.state = value?.phase ?? "loading";
  tellTitle();
});

/** The title says how far reading is, for who looks at another page meanwhile. */
let share = 0;
const tellTitle = () => {
  const isAtIt = document.body.dataset.state === "reading";
  document.title = isAtIt ? `${Math.floor(100 * share)} % · ondevice` : "ondevice";
};

// One clock: what the program says is left, and between two times that it does, each second a second less.
let ticking = 0;
od.progress = (element, props, watch) => {
  const bar = element.querySelector(".od-bar");
  bar.after(bar.cloneNode(true)); // of the text extracted, and of the tokens read
  let told = "";
  od.follow(props, watch, (value) => {
    const news = JSON.stringify(value);
    if (news !== told) tellProgress(element, value); // else the clock goes on
    told = news;
  });
};
const tellProgress = (element, value) => {
  clearTimeout(ticking);
  const tokens = value?.[1];
  const tick = () => tellProgress(element, [value[0], { ...tokens, left: tokens.left - 1 }]);
  if (tokens?.left > 1 && !od.calm.matches) ticking = setTimeout(tick, 1000);
  share = (value?.[1]?.done ?? 0) / Math.max(value?.[1]?.total ?? 1, 1);
  tellTitle();
  element.querySelectorAll(".od-bar").forEach((bar, i) => {
    const { label = "", done = 0, total = 1, text = "", left = null } = value?.[i] ?? {};
    const detail = [value?.[i]?.detail, left === null ? "" : `about ${od.clock(left)} left`].filter(Boolean).join(", ");
    const track = bar.querySelector(".od-track");
    bar.querySelector(".od-bar-label").textContent = label;
    bar.querySelector(".od-bar-text").textContent = text;
    bar.querySelector(".od-bar-detail").textContent = detail;
    track.ariaValueText = [text, detail].filter(Boolean).join(", ") || "not begun";
    od.setBar(track, label, done, total);
  });
  tellNumber("read", od.number(tokens?.done ?? 0), `of ${od.number(tokens?.total ?? 0)} tokens read`);
};

/** How far something is; a `total` of null is not known: no invented share then. */
od.setBar = (track, label, done, total) => {
  track.classList.toggle("od-unknown", total === null);
  Object.assign(track, { ariaLabel: label, ariaValueMax: total, ariaValueNow: total === null ? null : done });
  if (total !== null) track.firstChild.style.width = `${(100 * done) / Math.max(total, 1)}%`;
};

const tellNumber = (name, number, what) => {
  const [told, about] = document.querySelectorAll(`.od-numbers [data-number=${name}] > *`);
  if (!told) return; // not there yet
  told.textContent = number;
  about.textContent = what;
};
od.numbers = (_, props, watch) => od.follow(props, watch, (value) => {
  for (const [name, [number, what]] of Object.entries(value ?? {})) tellNumber(name, number, what);
});

od.latency = (element, props, watch) => {
  const body = element.querySelector("tbody");
  od.follow(props, watch, (value) => {
    const stages = value ?? [];
    while (body.rows.length > stages.length) body.deleteRow(-1);
    stages.forEach((stage, i) => {
      const row = body.rows[i] ?? newRow(body);
      row.cells[0].textContent = stage.label;
      row.cells[1].firstChild.style.width = `${100 * stage.share}%`;
      row.cells[2].textContent = stage.text;
    });
  });
};

const newRow = (body) => {
  const share = od.make("td", { ariaHidden: "true" }, od.make("div", { className: "od-time" }));
  const row = od.make("tr", {}, od.make("th", { scope: "row" }), share, od.make("td"));
  body.append(row);
  return row;
};
