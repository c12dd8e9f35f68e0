// Helpers of the panels: theme colours, canvases that fit their box, text without HTML.
// Everything lives in window.ondevice; the other files of this folder add one function for each panel.
window.ondevice = (() => {
  "use strict";

  const redraws = new Set();
  const redrawAll = () => requestAnimationFrame(() => redraws.forEach((draw) => draw()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);

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
      if (what === "passage") window.ondevice.showSpan(Number(one), Number(two)); // the way into the document, not out of it
      if (what === "answer") window.ondevice.answerTool(link, one, Number(two));
    }, true);
  }

  // The workbench takes what the header and a notice leave of the window: neither has a fixed height.
  const WORKBENCH = "od-workbench";
  const fitWorkbench = () => {
    const bench = document.getElementById(WORKBENCH);
    if (!bench) return; // not there yet
    const top = Math.round(bench.getBoundingClientRect().top + window.scrollY);
    document.documentElement.style.setProperty("--od-top", `${top}px`);
  };
  const sizes = new ResizeObserver(fitWorkbench);
  new MutationObserver((_, found) => {
    const elements = ["od-header", WORKBENCH].map((id) => document.getElementById(id));
    if (elements.some((element) => !element)) return;
    found.disconnect();
    addEventListener("resize", fitWorkbench);
    for (const element of [document.documentElement, ...elements]) sizes.observe(element);
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

  /** A colour of the stylesheet, by the name of its variable. */
  const colour = (element, name) => getComputedStyle(element).getPropertyValue(`--od-${name}`).trim();

  /** Hand a text to the browser as a file; nothing is sent anywhere. */
  const saveFile = (name, type, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  /** Runs `update` with the panel's value now and whenever it changes. */
  const follow = (props, watch, update) => {
    // Before the first value Gradio passes an empty string.
    const run = () => update(typeof props.value === "object" ? props.value : null);
    watch("value", run);
    run();
  };

  /** Calls `draw(context, width, height)` now, on every resize and on every change of the theme. */
  const canvasOf = (canvas, height, draw) => {
    const paint = () => {
      const width = Math.floor(canvas.clientWidth);
      if (!width) return;
      const tall = typeof height === "function" ? height(width) : height;
      const scale = window.devicePixelRatio || 1;
      canvas.style.height = `${tall}px`;
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(tall * scale);
      const context = canvas.getContext("2d");
      context.setTransform(scale, 0, 0, scale, 0, 0);
      context.clearRect(0, 0, width, tall);
      draw(context, width, tall);
    };
    let widthSeen = 0;
    new ResizeObserver(() => {
      if (canvas.clientWidth !== widthSeen) { widthSeen = canvas.clientWidth; paint(); }
    }).observe(canvas);
    redraws.add(paint);
    new MutationObserver(paint).observe(document.body, { attributes: true, attributeFilter: ["class"] });
    return paint;
  };

  /** Calls `draw` now and whenever light and dark change places. */
  const onTheme = (draw) => {
    redraws.add(draw);
    new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["class"] });
    draw();
  };

  /** A new element that holds text. */
  const textElement = (tag, text, className) => {
    const element = document.createElement(tag);
    element.textContent = text;
    if (className) element.className = className;
    return element;
  };

  /** Writes a text into an element, where it is another one than before: the same again would be read out again. */
  const tell = (element, text) => {
    if (told.get(element) !== text) element.textContent = text;
    told.set(element, text); // the page may say it in another language by now
  };
  const told = new WeakMap();

  const number = (value) => value.toLocaleString("en-US");

  /** Seconds as a clock that counts them: 42 s, 3 min 05 s, 2 h 10 min. */
  const clock = (seconds) => {
    const whole = Math.ceil(seconds), two = (part) => String(Math.floor(part)).padStart(2, "0");
    if (whole >= 3600) return `${Math.floor(whole / 3600)} h ${two((whole % 3600) / 60)} min`;
    return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  };

  return { colour, follow, canvasOf, onTheme, textElement, saveFile, tell, number, clock };
})();
