// The panels that are text: document card, failure, progress bars, status, times.
// Values are written with textContent only.
(() => {
  "use strict";
  const od = window.ondevice;

  od.card = (element, props, watch) => od.follow(props, watch, (value) => {
    const card = element.querySelector(".od-card");
    card.hidden = !value?.rows.length;
    element.querySelector(".od-hint").hidden = !card.hidden;
    card.querySelector("dl").replaceChildren(...(value?.rows ?? []).flatMap(
      ([name, text]) => [od.textElement("dt", name), od.textElement("dd", text)]));
    card.querySelectorAll("dd").forEach((told) => { told.title = told.textContent; }); // a long name is cut
    card.querySelector("ul").replaceChildren(...(value?.notes ?? []).map((text) => od.textElement("li", text)));
  });

  od.memory = (element, props, watch) => {
    od.follow(props, watch, (value) => {
      const line = element.querySelector(".od-memory");
      line.hidden = !value?.text;
      line.textContent = value?.text ?? "";
    });
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
    note.hidden = !value?.text;
    note.textContent = value?.text ?? "";
    note.dataset.kind = value?.kind ?? "";
    if (field) field.after(note);
    else element.append(note);
    for (const wrong of document.querySelectorAll(".od-wrong")) {
      wrong.classList.remove("od-wrong");
      wrong.querySelector("[aria-invalid]")?.removeAttribute("aria-invalid");
    }
    if (value?.kind !== "error" || !field) return;
    field.classList.add("od-wrong");
    field.querySelector("input, textarea")?.setAttribute("aria-invalid", "true");
  });

  od.problem = (element, props, watch) => od.follow(props, watch, (value) => {
    const problem = element.querySelector(".od-problem");
    problem.hidden = !value?.text;
    problem.textContent = value?.text ?? "";
  });

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
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let ticking = 0;
  od.progress = (element, props, watch) => {
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
    if (tokens?.left > 1 && !calm.matches) ticking = setTimeout(tick, 1000);
    share = (value?.[1]?.done ?? 0) / Math.max(value?.[1]?.total ?? 1, 1);
    tellTitle();
    element.querySelectorAll(".od-bar").forEach((bar, i) => {
      const { label = "", done = 0, total = 1, text = "", left = null } = value?.[i] ?? {};
      const detail = [value?.[i]?.detail, left === null ? "" : `about ${od.clock(left)} left`].filter(Boolean).join(", ");
      const track = bar.querySelector(".od-track");
      bar.querySelector(".od-bar-label").textContent = label;
      bar.querySelector(".od-bar-text").textContent = text;
      bar.querySelector(".od-bar-detail").textContent = detail;
      track.setAttribute("aria-label", label);
      track.setAttribute("aria-valuetext", [text, detail].filter(Boolean).join(", ") || "not begun");
      track.classList.toggle("od-unknown", total === null);
      if (total === null) { // how much there is is not known: no invented share
        track.removeAttribute("aria-valuenow");
        track.removeAttribute("aria-valuemax");
        return;
      }
      track.setAttribute("aria-valuemax", total);
      track.setAttribute("aria-valuenow", done);
      bar.querySelector(".od-thumb").style.width = `${(100 * done) / Math.max(total, 1)}%`;
    });
    const read = document.querySelector(".od-numbers [data-number=read]");
    if (!read) return;
    read.querySelector("b").textContent = od.number(tokens?.done ?? 0);
    read.querySelector("span").textContent = `of ${od.number(tokens?.total ?? 0)} tokens read`;
  };

  od.numbers = (element, props, watch) => od.follow(props, watch, (value) => {
    for (const [name, [number, what]] of Object.entries(value ?? {})) {
      const line = element.querySelector(`[data-number=${name}]`);
      line.querySelector("b").textContent = number;
      line.querySelector("span").textContent = what;
    }
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
    const row = body.insertRow();
    row.append(od.textElement("th", ""), od.textElement("td", ""), od.textElement("td", ""));
    row.cells[0].scope = "row";
    row.cells[1].append(od.textElement("div", "", "od-time"));
    row.cells[1].setAttribute("aria-hidden", "true");
    return row;
  };
})();
