// The recording on the empty page: a real reading, played in a few seconds. What is shown was measured, moment by moment,
// by `ondevice record`; between two moments nothing is made up.
const PLAY_MS = 8000, MOST_PITCH = 22, LEAST_PITCH = 5, COLUMNS = 48;
const BESIDE = 520; // pixels of the window that are not the map's, so that memory is seen below it

const size = (bytes) => (bytes < 1e9 ? `${Math.round(bytes / 1e6)} MB` : `${(bytes / 1e9).toFixed(2)} GB`);
/** Cells as the map paints them; a recording has none of their layers. */
const cellsOf = (text) => {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const cells = new Uint8Array((packed.length / 2) * od.CELL_BYTES);
  cells.set(packed);
  return cells;
};

od.recording = (element, props, watch) => {
  const find = (selector) => element.querySelector(selector);
  const button = find("[data-play]"), close = find("[data-close]"), sample = find("[data-sample]"), canvas = find(".od-recorded"), said = find(".od-ended");
  let recording = null, at = 0, timer = 0;

  const numCells = () => Math.ceil(recording.tokens / recording.cell_tokens);
  const pitchOf = (width) => {
    const inHeight = Math.sqrt((width * (window.innerHeight - BESIDE)) / numCells());
    return Math.max(Math.floor(Math.min(width / COLUMNS, MOST_PITCH, inHeight || 0)), LEAST_PITCH);
  };
  const rowsOf = (width) => Math.ceil(numCells() / Math.floor(width / pitchOf(width)));

  const paint = od.canvasOf(canvas, (width) => (recording ? rowsOf(width) * pitchOf(width) : 1), (pen, width) => {
    if (!recording) return;
    const pitch = pitchOf(width), across = Math.floor(width / pitch), { cells } = recording.frames[at];
    const picture = od.cellPicture(across, rowsOf(width), (pixels) => { // how strongly it is held, not why
      od.paintCells(pixels, 0, cells.length / od.CELL_BYTES, cells, 0, 1, od.heatOf(canvas), []);
    });
    pen.imageSmoothingEnabled = false;
    pen.drawImage(picture, 0, 0, across * pitch, picture.height * pitch);
  });

  /** Memory over the tokens read, from nothing at the foot; the pot is a part of the program's. */
  const paintNeedle = od.canvasOf(find(".od-needle"), 44, (pen, width, height) => {
    if (!recording) return;
    const past = recording.frames.slice(0, at + 1);
    const most = 1.15 * Math.max(...recording.frames.map((frame) => frame.process_bytes));
    pen.fillStyle = od.colour(canvas, "line");
    pen.fillRect(0, height - 1, width, 1);
    for (const [name, ink] of [["process_bytes", "kept-3"], ["pot_bytes", "novel"]]) {
      const points = past.map((frame) => [(frame.read / recording.tokens) * width, height * (1 - frame[name] / most)]);
      od.line(pen, [[0, points[0][1]], ...points], od.colour(canvas, ink), 2);
    }
  });

  addEventListener("resize", () => paint());
  const tell = (name, text) => { find(`[data-number=${name}] .od-bar-text`).textContent = text; };
  const show = (index) => {
    at = index;
    const { read, kept, seconds, process_bytes, pot_bytes } = recording.frames[at];
    tell("read", `${od.number(read)} of ${od.number(recording.tokens)}`);
    tell("memory", `${size(process_bytes)}, of it the pot ${size(pot_bytes)}`);
    find(".od-facts").replaceChildren(
      od.textElement("span", `${od.number(kept)} tokens are held by one head or more`),
      od.textElement("span", `after ${od.clock(seconds)}`));
    Object.assign(canvas.dataset, { frame: at, read });
    paint();
    paintNeedle();
  };

  const halt = () => {
    cancelAnimationFrame(timer);
    timer = 0;
    if (recording) button.textContent = "Play again";
  };
  const end = () => {
    show(recording.frames.length - 1);
    halt();
    const { read, kept, process_bytes } = recording.frames.at(-1);
    said.textContent = `The recording has ended: ${od.number(read)} tokens read, ${od.number(kept)} held, ${size(process_bytes)} of memory.`;
    canvas.setAttribute("aria-label", said.textContent);
  };
  const play = () => {
    const total = recording.frames.at(-1).seconds, began = performance.now();
    cancelAnimationFrame(timer); // of a second click while the recording was on its way
    said.textContent = "";
    button.textContent = "Stop";
    show(0);
    const step = (now) => {
      if (document.body.dataset.state !== "empty") return halt(); // a document has come
      const seconds = (Math.max(now - began, 0) / PLAY_MS) * total;
      let index = at;
      while (index + 1 < recording.frames.length && recording.frames[index + 1].seconds <= seconds) index++;
      if (index === recording.frames.length - 1) return end();
      if (index !== at) show(index);
      timer = requestAnimationFrame(step);
    };
    timer = requestAnimationFrame(step);
  };

  const load = async () => {
    const response = await od.request("recording");
    if (!response.ok) throw new Error(response.statusText);
    const made = await response.json();
    made.frames.forEach((frame) => { frame.cells = cellsOf(frame.cells); });
    return made;
  };
  const unfold = (isOpen) => {
    document.body.dataset.recording = isOpen ? "open" : "closed";
    find(".od-stage").hidden = close.hidden = sample.hidden = !isOpen;
    find(".od-teaser").hidden = isOpen;
  };
  button.addEventListener("click", async () => {
    if (timer) return halt();
    try {
      recording ??= await load();
    } catch { // the program was stopped
      said.textContent = "The recording cannot be had: is ondevice still running?";
      return;
    }
    unfold(true);
    if (od.calm.matches) end(); else play();
  });
  close.addEventListener("click", () => {
    halt();
    unfold(false);
    button.textContent = "See it read a novel";
    said.textContent = "";
    button.focus();
  });
  sample.addEventListener("click", () => document.querySelector("#od-sample")?.click()); // which is hidden meanwhile
  od.follow(props, watch, (value) => {
    find(".od-caption").textContent = value?.caption ?? "";
    find("[data-cell]").textContent = value?.cell ?? "";
  });
};
