// German in place of the app's English, wherever that comes from: both languages stand in assets/german.json, which Gradio
// brings with the page (`gr.I18n`). What documents, models and users say is left alone. In English nothing of this runs.
(() => {
  const KEY = "ondevice-language", root = document.documentElement;
  const wanted = (localStorage.getItem(KEY) || navigator.language || "").slice(0, 2);
  const catalogue = wanted === "de" && window.gradio_config?.i18n_translations?.["de-ondevice"];

  /** A sentence of the app in the language of the screen. */
  od.words = (text) => text;
  /** Sentences that were shown and are not in the catalogue. */
  od.untranslated = () => [];
  od.language = (element) => {
    const list = element.querySelector("select");
    list.value = localStorage.getItem(KEY) ?? "";
    list.addEventListener("change", () => { localStorage.setItem(KEY, list.value); location.reload(); });
  };
  if (catalogue || wanted === "en") root.lang = wanted; // Gradio puts the browser's there
  if (!catalogue) return;

  // {#} is a number with its unit, or several with commas between; {w} other words of the app; {} is somebody else's.
  const DIGITS = "\\d(?:[\\d.,]*\\d)?", UNIT = "\\s(?:%|ms|s|min|h|bytes|kB|MB|GB|tokens/s)(?![\\w/])";
  const NUMBER = `(?:under )?${DIGITS}(?:(?:–|, )${DIGITS}|${UNIT}|(?<=\\d (?:min|h)) \\d+)*`;
  const INSERT = { "#": `(${NUMBER})`, w: "(.+?)", "": "(.*)" };
  const literal = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const bare = new RegExp(`^${NUMBER}$`);
  const templates = Object.keys(catalogue).filter((key) => /\{[#w]?\}/.test(key)).map((key) => {
    const parts = key.split(/\{([#w]?)\}/), kinds = parts.filter((_, i) => i % 2);
    const pattern = parts.map((part, i) => (i % 2 ? INSERT[part] : literal(part))).join("");
    const fixed = parts.filter((_, i) => i % 2 === 0).join("").length, own = kinds.filter((kind) => kind !== "").length;
    return { key, kinds, pattern: new RegExp(`^${pattern}$`, "s"), weight: 10 * fixed + own };
  }).sort((a, b) => b.weight - a.weight); // the most particular one first

  const inGerman = (number) => number.replace(/(?<=\d)[.,](?=\d)/g, (sign) => (sign === "," ? "." : ","))
    .replace("under", "unter").replace("bytes", "Bytes").replace("tokens/s", "Token/s");
  const byTemplate = (text, isWhole) => {
    for (const { key, kinds, pattern } of templates) {
      const found = pattern.exec(text);
      if (!found || isWhole && (kinds.includes("w") || key.split(" ").length < 5)) continue;
      const inserts = found.slice(1).map((part, i) => (kinds[i] === "w" ? german(part) : kinds[i] ? inGerman(part) : part));
      if (!inserts.includes(null)) return catalogue[key].replace(/\{[#w]?\}/g, () => inserts.shift());
    }
    return null;
  };
  const upper = (text) => text && text[0].toUpperCase() + text.slice(1), lower = (text) => text && text[0].toLowerCase() + text.slice(1);
  const exact = (text) => catalogue[text] ?? (catalogue[lower(text)] && upper(catalogue[lower(text)])) ?? null;
  const found = (text) => exact(text) ?? byTemplate(text)
    ?? (text === lower(text) ? catalogue[upper(text)] ?? null : upper(byTemplate(lower(text)))); // one in a sentence, or at its head
  /** Several sentences, or parts of one, each of which is known. */
  const inParts = (text) => {
    for (const between of [/(\n)/, /( · )/, /((?<=[.?!]) )(?=\S)/, /(; )/, /(, )/]) {
      const parts = text.split(between);
      const said = parts.length > 1 && parts.map((part, i) => (i % 2 || !part ? part : german(part)));
      if (said && !said.includes(null)) return said.join("");
    }
    return null;
  };
  const known = new Map();
  const german = (text) => {
    if (bare.test(text)) return inGerman(text);
    if (!known.has(text)) {
      if (known.size > 2000) known.clear();
      known.set(text, null); // until it is found: no sentence is looked for within itself
      const ended = /^(.*[^.…])([.:])$/s.exec(text);
      let said = found(text);
      if (said === null && ended && (said = found(ended[1])) !== null) said += ended[2];
      known.set(text, said ?? inParts(text));
    }
    return known.get(text);
  };
  const translated = (text, isWhole = false) => {
    const [, before, inner, after] = /^([\s:]*)(.*?)(\s*)$/s.exec(text.replaceAll("\u00a0", " "));
    if (!inner) return null;
    const said = isWhole ? (inner.split(" ").length > 3 ? catalogue[inner] ?? byTemplate(inner, true) : null)
      : catalogue[`${before}${inner}${after}`] ?? catalogue[before + inner] ?? (german(inner) && before + german(inner) + after);
    return said && said.replace(/(\d) %/g, "$1\u00a0%");
  };
  od.words = (text) => translated(String(text)) ?? text;

  // Where others speak; where the app does in whole sentences among theirs; and where it does alone within those.
  const THEIRS = "script, style, code, option[lang], q, mark, .od-text-inner p, .od-asked, .od-quote, .od-quotation, .od-entry b, "
    + ".od-rows th[scope=row], .od-rows td:last-child, .od-found h2, .od-card dd:first-of-type, .od-model-list b, .od-list summary span, "
    + ".od-library dd:first-of-type, .od-library dd:nth-of-type(3), #od-file .file, #od-file .file-preview, #od-chat .user-row";
  const MIXED = "#od-chat .bot-row";
  const OURS = "#od-chat .thought-group, #od-chat blockquote strong, #od-chat blockquote a, #od-chat a[href^='#answer-']";
  const NAMED = ["Model", "The document says", "Not found in the document"].flatMap((row) => [row, catalogue[row]]);
  const NEW = "New conversation"; // stands where users' names do
  // A file's name and what is said of it, in one text: names are not ours.
  const SPLIT = [["#od-documents label *", /^([^\n]*\n)(.*)$/s], ["#od-members label *", /^(.*)( \(library\))$/s]];
  const ATTRIBUTES = ["title", "aria-label", "aria-valuetext", "placeholder", "alt", "data-said"];
  const written = new WeakMap(), unknown = new Set();

  /** German for what stands at a node by this name, or null; what this script wrote is not translated again. */
  const news = (node, name, text, parent) => {
    const before = written.get(node) ?? {};
    if (!/[A-Za-z]{2}|\d[.,]\d/.test(text) || before[name] === text || parent.closest(THEIRS) && text !== NEW) return null;
    if (!name && parent.matches("li") && NAMED.includes(node.previousSibling?.textContent)) return null;
    const isMixed = Boolean(parent.closest(MIXED)) && !parent.closest(OURS);
    const named = SPLIT.find(([selector]) => parent.matches(selector)), split = named?.[1].exec(text);
    if (named && !split) return null;
    const [, head, rest] = split ?? [null, "", text];
    const said = (parent.matches("strong, dt") && catalogue[`${text}:`]) || translated(rest, isMixed);
    if (!said && !isMixed && /[A-Za-z]{2}/.test(rest)) unknown.add(rest.trim());
    if (!said || head + said === text) return null;
    written.set(node, { ...before, [name]: head + said });
    return head + said;
  };
  const attribute = (element, name) => {
    const text = element.hasAttribute(name) ? news(element, name, element.getAttribute(name), element) : null;
    if (text !== null) element.setAttribute(name, text);
  };
  // What a list shows is the value of a field, which no observer is told of: it changes where a list opens or closes.
  let isDue = false;
  const putChoices = () => {
    isDue = false;
    for (const field of document.querySelectorAll("#od-settings input[role=combobox]")) field.value = exact(field.value) ?? field.value;
  };
  const put = (node) => {
    if (node.nodeType === Node.TEXT_NODE) {
      const text = node.parentElement && news(node, "", node.data, node.parentElement);
      if (text) node.data = text;
    } else if (node.nodeType === Node.ELEMENT_NODE) {
      ATTRIBUTES.forEach((name) => attribute(node, name));
      node.childNodes.forEach(put);
    }
  };
  od.untranslated = () => [...unknown];
  for (const [name, text] of Object.entries({ add: "Add a document", drop: "Drop a document of any length", next: " · next reading",
    choose: "or click to choose one. It stays on this machine.", anywhere: "Drop it anywhere: it is read at once" })) {
    root.style.setProperty(`--od-says-${name}`, JSON.stringify(od.words(text))); // for the stylesheet
  }
  put(document.body);
  new MutationObserver((changes) => changes.forEach(({ type, target, attributeName, addedNodes }) => {
    if (type === "childList") addedNodes.forEach(put);
    else if (type === "attributes") attribute(target, attributeName);
    else put(target);
    if (!isDue) requestAnimationFrame(putChoices);
    isDue = true;
  })).observe(document.body, { subtree: true, childList: true, characterData: true, attributeFilter: ATTRIBUTES });

  // A question that the page offers is asked in the language in which it is offered.
  document.addEventListener("click", (event) => {
    const example = event.target instanceof Element && event.target.closest("#od-chat .examples button");
    if (!example) return;
    const field = document.querySelector("#od-question textarea");
    event.stopImmediatePropagation();
    field.value = example.textContent.trim();
    field.dispatchEvent(new Event("input", { bubbles: true }));
    requestAnimationFrame(() => document.querySelector("#od-ask").click());
  }, true);
})();
