// Which moment and which part of the model the token map shows: a slider over all selections, and two lists.
// While the slider is not at the end, what arrives from the reading changes nothing that is looked at.
const STEP_MS = 500, STEPS = 40; // a replay of many selections leaves some out and takes about twenty seconds

od.mapControls = (element) => {
  const find = (selector) => element.querySelector(selector), tokens = od.tokens;
  const slider = find(".od-replay input"), said = find(".od-replay output"), note = find(".od-replay-note");
  const play = find("[data-replay=play]"), back = find("[data-replay=back]"), on = find("[data-replay=on]");
  const now = find("[data-replay=now]"), layer = find("[data-look=layer]"), head = find("[data-look=head]");
  let timer = 0;

  const cycles = () => ({ first: tokens.summary?.first_cycle ?? 0, last: tokens.summary?.last_cycle ?? 0 });
  const goTo = (cycle) => {
    const { first, last } = cycles();
    if (!last) return;
    tokens.lookAt({ cycle: cycle > last ? null : Math.max(cycle, first), layer: null, head: null });
  };
  const stop = () => { clearInterval(timer); timer = 0; show(); };

  const show = () => {
    const { summary, look } = tokens, { first, last } = cycles(), isNow = look.cycle === null;
    for (const control of [slider, play, back]) control.disabled = !last;
    on.disabled = now.disabled = isNow;
    slider.min = first;
    slider.max = last + 1;
    slider.value = isNow ? last + 1 : look.cycle;
    const text = isNow ? "Now" : `After selection ${od.number(look.cycle)} of ${od.number(last)}`;
    od.tell(said, text);
    slider.setAttribute("aria-valuetext", text);
    note.textContent = summary?.replay ?? "";
    play.textContent = timer ? "Pause" : "Play";
    play.setAttribute("aria-pressed", String(Boolean(timer)));
    element.querySelector(".od-map").dataset.cycle = isNow ? "now" : look.cycle;
    for (const [list, count, name, look_] of [
      [layer, summary?.num_layers ?? 0, "layer", look.layer], [head, summary?.num_heads ?? 0, "head", look.head]]) {
      if (list.options.length !== count + 1) {
        list.replaceChildren(new Option(`all ${name}s`, ""));
        for (let i = 0; i < count; i++) list.add(new Option(`${name} ${i + 1}`, i));
      }
      list.value = look_ === null ? "" : look_;
      list.disabled = !count || !isNow;
      list.title = isNow ? "" : "The past is known for all layers and heads together.";
    }
  };

  slider.addEventListener("input", () => {
    const wanted = Number(slider.value); // `stop` puts the slider back to where the map is
    stop();
    goTo(wanted);
  });
  now.addEventListener("click", () => { stop(); goTo(Infinity); });
  const step = (by) => goTo((tokens.look.cycle ?? cycles().last + 1) + by);
  back.addEventListener("click", () => { stop(); step(-1); });
  on.addEventListener("click", () => { stop(); step(1); });
  play.addEventListener("click", () => {
    if (timer) return stop();
    const { first, last } = cycles(), stride = Math.max(Math.ceil((last - first + 1) / STEPS), 1);
    if (tokens.look.cycle === null) goTo(first);
    timer = setInterval(() => {
      if (tokens.look.cycle === null) return stop();
      const next = tokens.look.cycle + stride;
      goTo(tokens.look.cycle < cycles().last ? Math.min(next, cycles().last) : Infinity);
    }, STEP_MS);
    show();
  });
  for (const [list, name] of [[layer, "layer"], [head, "head"]]) {
    list.addEventListener("change", () => tokens.lookAt({ [name]: list.value === "" ? null : Number(list.value) }));
  }
  tokens.listen((what) => {
    if (what === "document" && timer) stop();
    if (what !== "tile" && what !== "pages") show();
  });
  show();
};
