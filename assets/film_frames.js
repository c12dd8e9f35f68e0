// What a film looks like at every moment: numbers, the map and memory while the document is read; then the last question
// with its passages, and the answer word by word. No data is fetched here, and nothing recorded.
const WIDTH = 1280, HEIGHT = 720, SIDE = 48, WITHIN = WIDTH - 2 * SIDE;
const BIG = 2; // the map is laid out half as large: its cells are to be seen on a phone
const UNUSED = 26; // pixels that a map leaves beside its cells, and a film does not
const READ_MS = 6000, STILL_MS = 2500, TURN_MS = 500, ANSWER_MS = 4000, FADE_MS = 450, LAST_MS = 1100;
const MAP = { top: 212, tall: 296 }, MAP_FOOT = 380, FOOT = 640; // while reading; of the map and the answer below it
const SIZES = [60, 48, 38, 32, 28, 24, 21], LINE = 1.32; // of the answer's letters, and of a line of them
const FLICKER_MS = 200; // between two selections: nearer ones do not flash

/** Where a document's cells are in a film. */
od.filmShape = (total) => {
  const shape = new od.MapShape();
  shape.fit(total, WITHIN / BIG + UNUSED, MAP.tall / BIG, false);
  return shape;
};

/** Makes a film ready on a canvas: { ms, draw(ms) }, its length, and what draws it so long after its beginning. */
od.filmFrames = (canvas, film, map) => {
  Object.assign(canvas, { width: WIDTH, height: HEIGHT });
  const { tokens } = od, { shape, moments, answer, total, pages } = film, { pitch, tall, size } = shape.zoom;
  const pen = canvas.getContext("2d", { alpha: false }), { fontFamily } = getComputedStyle(map), end = moments.at(-1).read;
  const readMs = film.isKnown || moments.length > 1 ? READ_MS : STILL_MS, from = readMs + TURN_MS;
  const wide = BIG * shape.columns * pitch, right = WIDTH - SIDE, left = right - wide;
  const lines = Math.ceil(shape.numCells / shape.columns);
  const whole = MAP.tall / (BIG * tall * lines); // of a short document, too, the map takes all of its place
  const xOf = (x) => left + BIG * (x - shape.left);
  const share = (since, length, ms) => Math.min(Math.max((ms - since) / length, 0), 1);
  const inks = {}, ink = (name) => inks[name] ??= od.colour(map, name);

  const veiled = (alpha, draw) => {
    const before = pen.globalAlpha;
    pen.globalAlpha = before * alpha;
    draw();
    pen.globalAlpha = before;
  };
  const widthOf = (text, height, weight = 400) => {
    pen.font = `${weight} ${height}px ${fontFamily}`;
    return pen.measureText(text).width;
  };
  const say = (text, x, y, height, colour, weight = 400, align = "left") => {
    const width = widthOf(text, height, weight);
    [pen.fillStyle, pen.textAlign] = [ink(colour), align];
    pen.fillText(text, x, y);
    return width;
  };
  const cut = (text, room, height, weight) => {
    let short = text;
    while (short.length > 1 && widthOf(short, height, weight) > room) short = `${short.slice(0, -2)}…`;
    return short;
  };
  /** Lines of words; in writing without blanks each letter is one. */
  const wrap = (text, room, height, weight) => text.split("\n").filter((line) => line.trim()).flatMap((line) => {
    const made = [[]];
    for (const word of line.trim().split(/(?<=\s)|(?<=[\u3000-\u9fff])/)) {
      const before = made.at(-1);
      if (before.length && widthOf(before.join("") + word.trimEnd(), height, weight) > room) made.push([word]);
      else before.push(word);
    }
    return made;
  });
  const circle = (x, y, radius, colour) => {
    pen.fillStyle = ink(colour);
    pen.beginPath();
    pen.arc(x, y, radius, 0, 7);
    pen.fill();
  };
  const pin = (x, y, number) => {
    circle(x, y, 16, "ground");
    circle(x, y, 14, "ceiling");
    say(number, x, y + 6.5, 18, "ground", 650, "center");
  };

  /** What is known of the moment when so many tokens were passed: between two selections, all that is read stays. */
  const momentAt = (passed) => {
    const at = Math.max(moments.findLastIndex((moment) => moment.read <= passed), film.isKnown ? -1 : 0);
    const now = moments[at] ?? { read: 0, held: 0 }, next = moments[at + 1];
    if (!next || next.before === null) return { at, now, read: now.read, held: now.held };
    const part = (passed - now.read) / (next.read - now.read);
    return { at, now, read: Math.floor(passed), held: Math.floor(now.held + (next.before - now.held) * part) };
  };

  /** The cells as the last selection left them, and what was read since. What it dropped fades, what it kept flashes. */
  const drawMap = (ms, top, part, { at, now, read }) => {
    const high = BIG * tall * part, last = moments[at - 1], timeOf = (token) => (token / end) * readMs;
    const put = (picture) => picture && pen.drawImage(picture, left, top, wide, lines * high);
    const fill = (start, stop) => {
      pen.fillStyle = ink("remembered");
      if (stop > start) {
        shape.eachLine(start, stop, (x, y, width) => pen.fillRect(xOf(x), top + BIG * y * part, BIG * width, high + 0.5));
      }
    };
    pen.imageSmoothingEnabled = false;
    put(now.picture);
    const room = Math.min(FADE_MS, timeOf(now.read) - timeOf(last?.read ?? 0));
    const fade = 1 - share(timeOf(now.read), room, ms);
    if (Number.isInteger(now.cycle) && now.before !== null && fade > 0) {
      veiled(fade, () => { put(last?.picture); fill(last?.read ?? 0, now.read); });
      veiled((0.7 * fade * Math.max(room - FLICKER_MS, 0)) / FADE_MS, () => put(now.flash));
    }
    fill(now.read, read);
    pen.strokeStyle = ink("line");
    pen.lineWidth = 2;
    pen.strokeRect(left - 1, top - 1, wide + 2, lines * high + 2);
    for (let row = 0, free = 0, shown = -1; pages && row < lines; row++) {
      const page = tokens.pageIndex(row * shape.columns * size), y = top + (row + 0.5) * high;
      if (page === shown || y < free) continue;
      say(od.words(od.number(pages.numbers[page])), left - 12, y + 6, 18, "quiet", 400, "right");
      [shown, free] = [page, y + 28];
    }
  };

  /** Memory over the document: a line that stands still under its ceiling. */
  const drawMemory = (read) => {
    const foot = 650, most = film.limit_bytes || film.pot_bytes, high = 58 * Math.min(film.pot_bytes / most, 1);
    const x = left + (wide * read) / total;
    od.line(pen, [[left, foot - 66], [right, foot - 66]], ink("ceiling"), 2, [8, 8]);
    od.line(pen, [[left, foot], [right, foot]], ink("line"), 2);
    veiled(0.2, () => { pen.fillStyle = ink("remembered"); pen.fillRect(left, foot - high, x - left, high); });
    pen.fillStyle = ink("remembered");
    pen.fillRect(left, foot - high - 2, x - left, 4);
    circle(x, foot - high, 8, "remembered");
    const outside = film.outside ? `; outside the pot, ${film.outside} at the end` : "";
    say(od.words(`Memory${outside}`), left, foot - 76, 20, "quiet");
    const ceiling = film.limit || "set before the first token";
    say(od.words(`Ceiling: ${ceiling}`), right, foot - 76, 20, "ceiling", 400, "right");
  };

  const drawReading = ({ at, read, held }) => {
    const bound = film.limit ? `of at most ${film.limit}` : "of memory, allocated once", captions = MAP.top + MAP.tall + 30;
    [
      [od.number(read), `of ${od.number(total)} tokens read`, "tick"],
      [od.number(held), "tokens remembered", "remembered"],
      [film.memory, film.outside ? "in the pot, allocated once" : bound, "tick"],
    ].forEach(([number, what, colour], i) => {
        say(od.words(number), SIDE + 405 * i, 146, 62, colour, 650);
        say(od.words(what), SIDE + 405 * i, 180, 22, "quiet");
    });
    const made = at < 0 ? 0 : moments[at].cycle ?? film.selections;
    const told = held >= read && !film.selections ? "Everything is remembered: nothing had to be dropped"
      : `${od.number(made)} of ${od.number(film.selections)} selections of what to keep`;
    const legend = [["dropped", "lost-cell"], ...(film.outside ? [["outside", "outside"]] : []), ["remembered", "remembered"]];
    let x = right;
    if (film.selections || !film.isKnown) {
      legend.forEach(([text, colour]) => {
          x -= say(od.words(text), x, captions, 20, "quiet", 400, "right") + 26;
        pen.fillStyle = ink(colour);
        pen.fillRect(x, captions - 16, 18, 18);
        x -= 24;
      });
    }
    say(cut(od.words(film.isKnown && !(film.selections && film.note) ? told : film.note), x - left - 20, 20), left, captions, 20, "quiet");
    drawMemory(read);
  };

  /** The answer's lines in the largest letters that it fits into the film with; else in the smallest, and they move up. */
  const layOut = () => {
      const marks = answer.marks.slice(0, 3).map((mark) => cut(od.words(mark), WITHIN, 22, 650)), top = MAP_FOOT + (marks.length ? 76 : 68) + 32 * marks.length;
    const fits = (height) => wrap(answer.text, WITHIN, height).length * LINE * height <= FOOT - top;
    const height = SIZES.find(fits) ?? SIZES.at(-1), most = Math.floor((FOOT - top) / (LINE * height));
    const question = wrap(answer.question, WITHIN, 32, 650).map((line) => line.join(""));
    if (question.length > 2) question.splice(1, Infinity, cut(question.slice(1).join(""), WITHIN, 32, 650));
    return { marks, top, height, most, question, told: wrap(answer.text, WITHIN, height), about: cut(od.words(answer.about), WITHIN, 18) };
  };
  const laid = answer && layOut();

  const drawAnswer = (ms, top, part) => {
    const { question, marks, told, height, most } = laid, high = BIG * tall * part, y = MAP_FOOT + 40;
    question.forEach((line, i) => say(line, SIDE, 120 + 40 * i, 32, "tick", 650));
    let x = SIDE, words = Math.ceil(told.flat().length * share(from + 600, ANSWER_MS - 600 - LAST_MS, ms));
    answer.sources.forEach(({ start, stop, where }, i) => veiled(share(from + 150 * i, 250, ms), () => {
      [pen.strokeStyle, pen.lineWidth] = [ink("lit"), 4];
      shape.eachLine(start, stop, (at, row, width) => {
        pen.strokeRect(xOf(at), top + BIG * row * part, Math.max(BIG * width, 8), high);
      });
      const point = shape.pointOf(start);
      pin(xOf(point.x), top + BIG * point.y * part, i + 1);
      pin(x + 16, y - 8, i + 1);
      x += 76 + say(cut(od.words(where), 220, 22), x + 40, y, 22, "tick");
    }));
    veiled(share(from + 300, 300, ms), () => marks.forEach((mark, i) => {
      say(mark, SIDE, laid.top - 32 * (marks.length - i) + 16, 22, "ceiling", 650);
    }));
    const shown = told.map((line) => { words -= line.length; return line.slice(0, Math.max(words + line.length, 0)); });
    shown.filter((line) => line.length).slice(-most).forEach((line, i) => {
      say(line.join(""), SIDE, laid.top + height + LINE * height * i, height, "tick");
    });
    veiled(share(from + ANSWER_MS - LAST_MS, 200, ms), () => say(laid.about, SIDE, 662, 18, "quiet"));
  };

  const speed = (1000 * film.seconds) / readMs, times = od.number(speed < 10 ? Number(speed.toFixed(1)) : Math.round(speed));
  const took = film.isKnown && film.took ? [`read in ${film.took}${speed < 1.5 ? "" : `, played ${times} times faster`}`] : [];
  const date = new Date().toLocaleDateString(document.documentElement.lang === "de" ? "de" : "en-GB", { dateStyle: "long" });
  const foot = [`ondevice, ${film.model}, ${date}`, ...took.map(od.words)].join(" · "), name = cut(film.name, WITHIN, 34, 650);
  const draw = (ms) => {
    const turn = answer ? share(readMs, TURN_MS, ms) : 0, ease = turn * turn * (3 - 2 * turn);
    const moment = momentAt(end * share(0, readMs, ms));
    const aim = laid ? 108 + 40 * laid.question.length : 0, top = MAP.top + (aim - MAP.top) * ease;
    const part = whole * (1 + ((MAP_FOOT - aim) / MAP.tall - 1) * ease);
    pen.fillStyle = ink("ground");
    pen.fillRect(0, 0, WIDTH, HEIGHT);
    say(name, SIDE, 66, 34, "tick", 650);
    drawMap(ms, top, part, moment);
    if (turn < 0.5) veiled(1 - 2 * turn, () => drawReading(moment));
    else veiled(2 * turn - 1, () => drawAnswer(ms, top, part));
    say(cut(foot, WITHIN, 18), SIDE, 700, 18, "quiet");
  };
  return { ms: from + (answer ? ANSWER_MS : LAST_MS), draw };
};
