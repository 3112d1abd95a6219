// Many texts at once: pasted lines, or a CSV or text file. Works in slices, so that the page reacts.
import { CsvReader, describe, findDelimiter, guarded, toCsv } from "./csv.mjs";
import { breathe, byId, count, counted, element, isolated, measured, percent, visible } from "./dom.mjs";

const SLICE = 24; // milliseconds of work before the browser may react
const PIECE = 1 << 18; // characters of a file that are split at a time
const LARGEST = 300e6; // bytes of a file
const BEGINNING = 1000; // bytes that tell whether a file is text
const PER_PAGE = 50; // rows of the table
const SHOWN = 220; // characters of a text in the table
const TALLIED = 12; // classes
const NAMED = 4; // labels of a text in the table; a saved file has all

export class Many {
  /** `onPick` gets a text of the table that is to be explained. */
  constructor(model, onPick) {
    this.model = model;
    this.onPick = onPick;
    this.file = null; // {name, rows, header, column}: a file that was read; null: the pasted lines
    this.texts = [];
    this.answers = []; // {labels, probabilities} of each text
    this.page = 0;
    this.running = null; // what to stop: {stopped}
    this.lines = byId("lines");
    this.drop = byId("drop");
    const on = (id, type, handler) => byId(id).addEventListener(type, handler);
    on("lines", "input", () => this.change());
    on("open", "click", () => byId("file").click());
    on("file", "change", ({ target }) => target.files[0] && this.read(target.files[0]));
    on("column", "change", ({ target }) => this.set({ column: Number(target.value) }));
    on("header", "change", ({ target }) => this.set({ header: target.checked }));
    on("run", "click", () => this.run());
    on("cancel", "click", () => this.stop());
    on("save", "click", () => this.save());
    on("clear", "click", () => this.clear());
    on("previous", "click", () => this.turn(-1));
    on("next", "click", () => this.turn(1));
    on("results", "click", ({ target }) => {
      const button = target.closest(".text");
      if (button) this.onPick(this.texts[Number(button.dataset.row)]);
    });
    // A file that is dropped beside the frame would replace the page.
    for (const type of ["dragover", "drop"]) {
      addEventListener(type, (event) => {
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        this.drop.classList.toggle("over", type === "dragover");
        if (type === "drop" && event.dataTransfer.files[0]) this.read(event.dataTransfer.files[0]);
      });
    }
    addEventListener("dragleave", () => this.drop.classList.remove("over"));
    this.refresh();
  }

  /** Read a file; nothing is sent anywhere. */
  async read(file) {
    this.clear();
    byId("file").value = "";
    if (file.size > LARGEST) {
      this.say(`${file.name} has ${count(Math.round(file.size / 1e6))} MB, and the page reads up to ${LARGEST / 1e6} MB. hashembed predict reads files of any size.`, true);
      return;
    }
    const job = this.start(`Reading ${file.name}…`);
    try {
      const bytes = new Uint8Array(await file.arrayBuffer());
      if (isBinary(bytes)) {
        this.end(job, `${file.name} is not a text file. Save it as CSV in the program that it comes from, and open that file.`, true);
        return;
      }
      const text = decode(bytes);
      const isTable = /\.(csv|tsv|tab)$/i.test(file.name) || /csv|tab-separated/.test(file.type);
      const rows = isTable ? await this.split(text, job) : splitLines(text).map((line) => [line]);
      if (job.stopped) {
        this.end(job, "Cancelled.");
        return;
      }
      const found = isTable ? describe(rows) : { width: 1, header: false, column: 0 };
      this.file = { name: file.name, rows, ...found };
      this.end(job, rows.length ? "" : `${file.name} has no rows.`);
    } catch (error) {
      this.end(job, `${file.name} could not be read: ${error.message}`, true);
    }
    this.refresh();
  }

  async split(text, job) {
    const reader = new CsvReader(findDelimiter(text));
    for (let at = 0; at < text.length && !job.stopped; at += PIECE) {
      reader.push(text.slice(at, at + PIECE));
      byId("progress").value = at / text.length;
      await breathe();
    }
    return reader.end();
  }

  set(change) {
    Object.assign(this.file, change);
    this.change();
  }

  /** The texts are others now: answers to the texts before must not stand beside them. */
  change() {
    this.stop();
    this.answers = [];
    this.say("");
    this.show();
    this.refresh();
  }

  /** Show what would be classified. */
  refresh() {
    const { file } = this;
    this.texts = file
      ? file.rows.slice(file.header ? 1 : 0).map((row) => row[file.column] ?? "")
      : splitLines(this.lines.value).filter((line) => line.trim());
    byId("run").disabled = this.running !== null || this.texts.length === 0;
    byId("run").textContent = this.texts.length ? `Classify ${counted(this.texts.length, "text")}` : "Classify";
    byId("clear").hidden = !file && !this.answers.length;
    this.drop.hidden = file !== null;
    byId("choices").hidden = file === null;
    if (!file) return;
    byId("file-note").replaceChildren(element("b", {}, isolated(file.name)), element("br"), counted(this.texts.length, "text"));
    const names = Array.from({ length: file.width }, (_, c) => (file.header ? file.rows[0][c] : "") || `column ${c + 1}`);
    byId("column").replaceChildren(...names.map((name, c) => element("option", { value: c }, visible(name))));
    byId("column").value = String(file.column);
    byId("column").parentElement.hidden = file.width < 2;
    byId("header").checked = file.header;
    byId("header").parentElement.hidden = !/\.(csv|tsv|tab)$/i.test(file.name);
  }

  /** Classify all texts, a slice at a time. */
  async run() {
    const { texts, model } = this;
    this.answers = [];
    byId("outcome").hidden = true;
    byId("save").hidden = true;
    const job = this.start("");
    const began = performance.now();
    while (this.answers.length < texts.length && !job.stopped) {
      const until = performance.now() + SLICE;
      while (this.answers.length < texts.length && performance.now() < until) {
        this.answers.push(answer(model, texts[this.answers.length]));
      }
      byId("progress").value = this.answers.length / texts.length;
      this.say(`${count(this.answers.length)} of ${counted(texts.length, "text")}`);
      await breathe();
    }
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    if (this.texts !== texts) {
      this.end(job, "");
      return;
    }
    const done = counted(this.answers.length, "text");
    this.end(job, job.stopped ? `Cancelled after ${done}.` : `${done} in ${seconds} seconds.`);
    this.page = 0;
    this.show();
  }

  show() {
    const some = this.answers.length > 0;
    byId("outcome").hidden = !some;
    byId("save").hidden = !some;
    byId("clear").hidden = !some && !this.file;
    if (!some) return;
    this.showTally();
    this.showRows();
  }

  showTally() {
    const tally = new Map();
    for (const { labels } of this.answers) {
      for (const label of labels.length ? labels : [null]) tally.set(label, (tally.get(label) ?? 0) + 1);
    }
    const ranked = [...tally].sort((a, b) => b[1] - a[1]);
    const rows = ranked.slice(0, TALLIED).map(([label, times]) => {
      const share = times / this.answers.length;
      return element(
        "tr",
        {},
        element("th", { scope: "row" }, label === null ? "no label" : isolated(label, { class: "clamp" })),
        element("td", { class: "number" }, `${count(times)} (${percent(share)})`),
        element("td", { class: "bar" }, measured({}, "--share", times / ranked[0][1])),
      );
    });
    const left = ranked.length - TALLIED;
    if (left > 0) rows.push(element("tr", {}, element("td", { colspan: "3", class: "soft" }, `and ${count(left)} other answers`)));
    byId("tally").replaceChildren(element("caption", {}, "Answers"), element("tbody", {}, ...rows));
  }

  showRows() {
    const first = this.page * PER_PAGE;
    const rows = this.answers.slice(first, first + PER_PAGE).map(({ labels, probabilities }, i) => {
      const text = this.texts[first + i];
      const cut = text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text || "(empty)";
      const button = element("button", { type: "button", class: "text", dir: "auto", "data-row": first + i, title: "Show why" }, element("span", {}, visible(cut)));
      const names = labels.slice(0, NAMED).flatMap((label, n) => [n ? ", " : "", isolated(label)]);
      if (labels.length > NAMED) names.push(` and ${count(labels.length - NAMED)} more`);
      const several = labels.length > 1 ? " several" : "";
      return element(
        "tr",
        {},
        element("td", { class: "number soft" }, count(first + i + 1)),
        element("td", {}, button),
        element("td", {}, ...(labels.length ? names : ["no label"])),
        element("td", { class: `number${several}` }, probabilities.slice(0, NAMED).map(percent).join(", ")),
      );
    });
    const heads = ["", "Text (click one to see why)", "Answer", "Probability"].map((name, i) => {
      return element("th", { scope: "col", class: i === 3 ? "number" : null }, name || element("span", { class: "unseen" }, "Row"));
    });
    byId("results").replaceChildren(element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
    const last = Math.min(first + PER_PAGE, this.answers.length);
    byId("pages").hidden = this.answers.length <= PER_PAGE;
    byId("previous").disabled = first === 0;
    byId("next").disabled = last === this.answers.length;
    byId("page-note").textContent = `${count(first + 1)} to ${count(last)} of ${count(this.answers.length)}`;
  }

  turn(step) {
    this.page += step;
    this.showRows();
    byId("results").scrollIntoView({ block: "nearest" });
  }

  /** The table as rows: the columns of the file, then the answers. */
  table() {
    const { file } = this;
    const width = file?.width ?? 1;
    const names = file
      ? Array.from({ length: width }, (_, c) => (file.header ? file.rows[0][c] : "") || (width > 1 ? `column ${c + 1}` : "text"))
      : ["text"];
    const fresh = (name) => (names.includes(name) ? fresh(`${name}_`) : name);
    const sources = file ? file.rows.slice(file.header ? 1 : 0) : this.texts.map((text) => [text]);
    const rows = this.answers.map(({ labels, probabilities }, i) => [
      ...Array.from({ length: width }, (_, c) => sources[i][c] ?? ""),
      labels.join(","),
      probabilities.map((p) => p.toFixed(6)).join(","),
    ]);
    return [[...names, fresh("answer"), fresh("probability")], ...rows];
  }

  save() {
    const blob = new Blob([toCsv(this.table().map((row) => row.map(guarded)))], { type: "text/csv;charset=utf-8" });
    const address = URL.createObjectURL(blob);
    element("a", { href: address, download: "answers.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  }

  start(message) {
    this.stop();
    this.running = { stopped: false };
    this.say(message);
    byId("progress").value = 0;
    byId("progress").hidden = byId("cancel").hidden = false;
    byId("run").disabled = true;
    return this.running;
  }

  end(job, message, isProblem) {
    if (this.running !== job) return; // something else has begun
    this.running = null;
    byId("progress").hidden = byId("cancel").hidden = true;
    byId("run").disabled = this.texts.length === 0;
    this.say(message, isProblem);
  }

  stop() {
    if (this.running) this.running.stopped = true;
  }

  clear() {
    this.stop();
    if (this.running) this.end(this.running, "");
    this.file = null;
    this.answers = [];
    this.lines.value = "";
    this.say("");
    this.show();
    this.refresh();
  }

  say(message, isProblem = false) {
    byId("many-note").textContent = message;
    byId("many-note").classList.toggle("problem", isProblem);
  }
}

/** The labels that the model gives a text, with their probabilities. */
function answer(model, text) {
  const ranked = model.multilabel ? model.predict(text) : model.predict(text, { top: 1 });
  const given = model.multilabel ? ranked.filter(({ probability }) => probability > model.threshold) : ranked;
  return { labels: given.map(({ label }) => label), probabilities: given.map(({ probability }) => probability) };
}

/** Lines without their ends; the last end closes the last line. */
function splitLines(text) {
  const lines = text.split(/\r\n|\n|\r/);
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** Whether a file is not text, such as a spreadsheet or a PDF. Text does not begin with zero bytes, except in UTF-16. */
function isBinary(bytes) {
  const isWide = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff);
  const isPdf = [..."%PDF-"].every((c, i) => bytes[i] === c.charCodeAt(0));
  return isPdf || (!isWide && bytes.subarray(0, BEGINNING).includes(0));
}

/** The text of a file: UTF-8, UTF-16 with a mark, or else Windows' Latin. */
function decode(bytes) {
  const encoding = bytes[0] === 0xff && bytes[1] === 0xfe ? "utf-16le" : bytes[0] === 0xfe && bytes[1] === 0xff ? "utf-16be" : "utf-8";
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}
