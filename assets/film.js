// "Save as film": the document's own replay and its last answer as a video of ten seconds, made in this browser. It shows
// what the map has shown, selection by selection; only time is shortened. What it looks like is in film_frames.js.
const RATE = 30, BITS = 6_000_000; // frames and bits of a second
const MOST = 150; // selections: of more of them some are left out, as in the replay
const KINDS = ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm", "video/mp4"];
const STALL_MS = 250; // of a machine that is busy with others: the film stands still so long, but leaves nothing out
const GATHERING = 0.1; // of the progress that is told

/** Everything that a film shows, before it plays: one that waits for its pictures would stand still. */
const gather = async (map, job) => {
  const { tokens } = od, { summary } = tokens, total = summary.num_tokens;
  const shape = od.filmShape(total), heat = od.heatOf(map);
  const fetched = async (name, values, cycle = null) => {
    const response = await tokens.ask(name, values, { cycle, layer: null, head: null }); // whatever the map looks at now
    job.check();
    if (!response) throw new Error("the program gave no answer. Is it still running?");
    return response;
  };
  const { moments, ...film } = await (await fetched("film", {})).json();
  const { size } = shape.zoom, across = shape.columns, count = shape.numCells, stride = Math.ceil(moments.length / MOST);
  const kept = moments.filter((_, i) => (moments.length - 1 - i) % stride === 0) // what is left out cannot be filled in
    .map(([cycle, read, before, held]) => ({ cycle, read, held, before: stride > 1 ? null : before }));
  for (const [i, moment] of kept.entries()) {
    const response = await fetched("cells", { start: 0, stop: total, size }, moment.cycle);
    const bytes = new Uint8Array(await response.arrayBuffer());
    [moment.picture, moment.flash] = [false, true].map((isFlash) => od.cellPicture(across, Math.ceil(count / across),
      (pixels) => od.paintStates(pixels, 0, count, bytes, 0, 1, heat, isFlash)));
    job.tell((GATHERING * i) / kept.length);
  }
  if (tokens.summary.revision !== summary.revision) throw new Error("the document was read on meanwhile. Save it again.");
  return { ...film, moments: kept, isKnown: moments[0][2] !== null, selections: summary.last_cycle, note: summary.replay,
    shape, total, pages: tokens.pages };
};

/** Plays a film on its canvas and records that. While the page is hidden, where nothing is drawn, both wait. */
const record = (canvas, { ms, draw }, kind, job) => new Promise((done, fail) => {
  draw(0);
  const recorder = new MediaRecorder(canvas.captureStream(RATE), { mimeType: kind, videoBitsPerSecond: BITS }), parts = [];
  let played = 0, last = performance.now();
  const wait = () => {
    last = performance.now();
    if (document.hidden) recorder.pause(); else if (recorder.state === "paused") recorder.resume();
  };
  const end = () => {
    document.removeEventListener("visibilitychange", wait);
    if (recorder.state !== "inactive") recorder.stop();
  };
  recorder.ondataavailable = ({ data }) => parts.push(data);
  recorder.onerror = ({ error }) => { end(); fail(error ?? new Error("the browser stopped recording.")); };
  recorder.onstop = () => done(new Blob(parts, { type: kind }));
  document.addEventListener("visibilitychange", wait);
  const step = (now) => {
    if (job.isOver || played >= ms) return end();
    [played, last] = [played + Math.min(Math.max(now - last, 0), STALL_MS), now];
    draw(Math.min(played, ms));
    job.tell(GATHERING + (1 - GATHERING) * Math.min(played / ms, 1));
    requestAnimationFrame(step);
  };
  recorder.onstart = () => { wait(); requestAnimationFrame(step); };
  recorder.start();
});

od.film = (element) => {
  const { tokens } = od, button = element.querySelector("[data-map=film]"), said = element.querySelector(".od-film-said");
  let job = null;

  const show = () => {
    const isAtRest = ["read", "stopped"].includes(document.body.dataset.state);
    button.disabled = !job && !(tokens.summary?.num_read && isAtRest);
    if (!job) od.tell(button, "Save as film");
    button.title = job ? "Press again to cancel" : "The replay and the last answer as a video of ten seconds";
  };
  const cancel = () => { if (job) job.isOver = true; };
  const save = async () => {
    const kind = KINDS.find((one) => window.MediaRecorder?.isTypeSupported(one)), canvas = document.createElement("canvas");
    if (!kind || !canvas.captureStream) throw new Error("this browser records neither WebM nor MP4.");
    const map = element.querySelector(".od-map"), film = await gather(map, job);
    const blob = await record(canvas, od.filmFrames(canvas, film, map), kind, job);
    job.check();
    if (!blob.size) throw new Error("the browser recorded nothing.");
    const name = `${film.name} - ondevice.${kind.includes("mp4") ? "mp4" : "webm"}`;
    od.saveFile(name, blob.type, blob);
    return `Saved as “${name}”.`;
  };
  button.addEventListener("click", async () => {
    if (job) return cancel();
    job = { isOver: false };
    job.check = () => { if (job.isOver) throw job; };
    job.tell = (share) => {
        od.tell(button, `Saving … ${Math.floor(100 * share)} %`);
    };
    job.tell(0);
    said.textContent = "";
    show();
    try {
      said.textContent = await save();
    } catch (error) {
      said.textContent = error === job ? "Cancelled: no film was saved." : `The film could not be made: ${error.message}`;
    }
    job = null;
    show();
  });
  tokens.listen((what) => {
    if (what === "document") { cancel(); said.textContent = ""; }
    if (what !== "tile") show();
  });
  new MutationObserver(show).observe(document.body, { attributes: true, attributeFilter: ["data-state"] });
  show();
};
