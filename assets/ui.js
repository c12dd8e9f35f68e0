// Helpers of the panels: theme colours, canvases that fit their box, text without HTML.
// Everything lives in window.ondevice, which each file of this folder knows as `od`; the others add one function for each
// panel. ui/panels.py makes one script of them, in which each is a block of its own.

od.giveFramesBack(); // see first.js

// What Gradio's page says of itself to who looks at links: some of it twice, and with a picture from elsewhere.
document.querySelectorAll('meta[property^="og:"], meta[name^="twitter:"]').forEach((told) => told.remove());
for (const [name, text] of [["title", "ondevice"], ["description", "Reads documents of any length on this machine."]]) {
  const told = document.createElement("meta");
  told.setAttribute("property", `og:${name}`);
  told.content = text;
  document.head.append(told);
}

// Links in an answer come from a model that has read somebody else's text: show them, never follow them.
for (const kind of ["click", "auxclick"]) {
  document.addEventListener(kind, (event) => {
    const link = event.target instanceof Element && event.target.closest("#od-chat a[href]");
    if (link) event.preventDefault();
    const [, what, one, two] = event.type === "click" && /^#(passage|answer)-(\w+)-(\d+)$/.exec(link?.getAttribute("href")) || [];
    if (what === "passage") od.showSpan(Number(one), Number(two)); // the way into the document, not out of it
    if (what === "answer") od.answerTool(link, one, Number(two));
  }, true);
}

// The workbench takes what the header and a notice leave of the window: neither has a fixed height.
new MutationObserver((_, found) => {
  const [header, bench] = ["od-header", "od-workbench"].map((id) => document.getElementById(id));
  if (!header || !bench) return; // not there yet
  found.disconnect();
  const sizes = new ResizeObserver(() => {
    const top = Math.round(bench.getBoundingClientRect().top + window.scrollY);
    document.documentElement.style.setProperty("--od-top", `${top}px`);
  });
  for (const element of [document.documentElement, header, bench]) sizes.observe(element);
}).observe(document, { childList: true, subtree: true });

// A file may be dropped anywhere: a browser would open what falls beside the box, in place of this page.
const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
let dragging = 0;
document.addEventListener("dragover", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  document.body.dataset.drop = "here";
  clearTimeout(dragging); // the browser tells of it all the time until it ends
  dragging = setTimeout(() => { delete document.body.dataset.drop; }, 200);
});
document.addEventListener("drop", (event) => {
  if (!hasFiles(event) || event.target instanceof Element && event.target.closest("#od-file")) return;
  event.preventDefault();
  upload(event.dataTransfer.files);
});
const upload = (files) => {
  const input = document.querySelector("#od-file input[type=file]");
  if (!input) return;
  input.files = files;
  input.dispatchEvent(new Event("change", { bubbles: true }));
};

// What is pasted outside of a field is a document: files as they are, text as a file.
document.addEventListener("paste", (event) => {
  if (event.target instanceof Element && event.target.matches("input, textarea, [contenteditable=true]")) return;
  const { files, items } = event.clipboardData, text = event.clipboardData.getData("text/plain");
  if (!files.length && !text.trim() || !items.length) return;
  event.preventDefault();
  if (files.length) return upload(files);
  const data = new DataTransfer();
  data.items.add(new File([text], "pasted text.txt", { type: "text/plain" }));
  upload(data.files);
});

od.calm = matchMedia("(prefers-reduced-motion: reduce)");
od.hasKeys = matchMedia("(pointer: fine)"); // elsewhere a field that has the focus raises a keyboard over the page

/** A colour of the stylesheet, by the name of its variable. */
od.colour = (element, name) => getComputedStyle(element).getPropertyValue(`--od-${name}`).trim();

/** Hand a text to the browser as a file; nothing is sent anywhere. */
od.saveFile = (name, type, text) => {
  const href = URL.createObjectURL(new Blob([text], { type }));
  od.make("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
};

/** Runs `update` with the panel's value now and whenever it changes. */
od.follow = (props, watch, update) => {
  // Before the first value Gradio passes an empty string.
  const run = () => update(typeof props.value === "object" ? props.value : null);
  watch("value", run);
  run();
};

/** Calls `draw` now and whenever light and dark change places. */
od.onTheme = (draw) => {
  new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  draw();
};

/** The pen of a blank canvas that has the pixels of the screen for a place of this size. */
od.penOf = (canvas, width, height) => {
  const scale = window.devicePixelRatio, [wide, tall] = [width, height].map((size) => Math.round(size * scale));
  if (canvas.width !== wide || canvas.height !== tall) Object.assign(canvas, { width: wide, height: tall });
  const pen = canvas.getContext("2d");
  pen.reset();
  pen.scale(scale, scale);
  return pen;
};

/** A line through points. */
od.line = (pen, points, colour, width, dash = []) => {
  [pen.strokeStyle, pen.lineWidth] = [colour, width];
  pen.setLineDash(dash);
  pen.beginPath();
  for (const [x, y] of points) pen.lineTo(x, y); // the first one begins it
  pen.stroke();
  pen.setLineDash([]);
};

/** Calls `draw(pen, width, height)` now, on every resize and on every change of the theme. */
od.canvasOf = (canvas, height, draw) => {
  const paint = () => {
    const width = Math.floor(canvas.clientWidth);
    if (!width) return;
    const tall = typeof height === "function" ? height(width) : height;
    canvas.style.height = `${tall}px`;
    draw(od.penOf(canvas, width, tall), width, tall);
  };
  let widthSeen = 0;
  new ResizeObserver(() => {
    if (canvas.clientWidth !== widthSeen) { widthSeen = canvas.clientWidth; paint(); }
  }).observe(canvas);
  od.onTheme(paint);
  return paint;
};

/** A new element with these properties, and with what is in it: elements, and text as text. */
od.make = (tag, { data, ...properties } = {}, ...inside) => {
  const element = Object.assign(document.createElement(tag), properties);
  Object.assign(element.dataset, data);
  element.append(...inside);
  return element;
};

/** A new element that holds text. */
od.textElement = (tag, text, className = "") => od.make(tag, { className, textContent: text });

/** The same for a button that sends no form. */
od.button = (properties, ...inside) => od.make("button", { type: "button", ...properties }, ...inside);

/** Names with what is said of them, for a list of terms. */
od.terms = (rows) => rows.flatMap(([name, text]) => [od.textElement("dt", name), od.textElement("dd", text)]);

/** Asks this program for something, wherever it is served. */
od.request = (path, options) => {
  const root = location.pathname.replace(/\/?$/, "/");
  return fetch(`${root}ondevice/${path}`, options);
};

/** Index of the last of ascending values that is no larger than `value`, or 0. */
od.lastUpTo = (values, value) => {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1; else high = middle;
  }
  return Math.max(low - 1, 0);
};

/** Writes into a line that is there only where something is said. */
od.say = (line, text) => {
  line.hidden = !text;
  line.textContent = text ?? "";
};

/** Writes a text into an element, where it is another one than before: the same again would be read out again. */
const told = new WeakMap();
od.tell = (element, text) => {
  if (told.get(element) !== text) element.textContent = text;
  told.set(element, text); // the page may say it in another language by now
};

od.number = (value) => value.toLocaleString("en-US");

/** Seconds as a clock that counts them: 42 s, 3 min 05 s, 2 h 10 min. */
od.clock = (seconds) => {
  const whole = Math.ceil(seconds), two = (part) => String(Math.floor(part)).padStart(2, "0");
  if (whole >= 3600) return `${Math.floor(whole / 3600)} h ${two((whole % 3600) / 60)} min`;
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
};
