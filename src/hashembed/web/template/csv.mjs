// Tables in text files: CSV with any of four delimiters, read in slices and written.

const DELIMITERS = [",", ";", "\t", "|"];
const SAMPLE = 1 << 16; // characters that tell the delimiter
const NAMES = /^(text|texts|review|comment|message|body|content|sentence|description|title|question|document)$/i;
const LABELS = /^(label|labels|class|category|answer|target|y|id|stars|rating|sentiment)$/i;

/** Splits CSV into rows, piece by piece: quotes may enclose delimiters, line ends and "" pairs. */
export class CsvReader {
  constructor(delimiter) {
    this.delimiter = delimiter;
    this.rows = [];
    this.row = [];
    this.cell = "";
    this.quoted = false; // inside quotes
    this.closed = false; // a quote has just closed: "" is a quote, anything else ends the quotes
    this.fresh = true; // nothing of this cell was read
    this.afterReturn = false;
  }

  push(text) {
    const { delimiter } = this;
    let start = 0; // of characters that are not yet in the cell
    const take = (end) => {
      if (end > start) this.cell += text.slice(start, end);
      start = end + 1;
    };
    for (let i = 0; i < text.length; i++) {
      const c = text[i];
      if (this.quoted) {
        if (c === '"') {
          take(i);
          this.quoted = false;
          this.closed = true;
        }
        continue;
      }
      if (this.closed) {
        this.closed = false;
        if (c === '"') {
          this.cell += '"';
          this.quoted = true;
          start = i + 1;
          continue;
        }
        start = i;
      }
      const returned = this.afterReturn;
      this.afterReturn = false;
      if (c === "\n" && returned) {
        start = i + 1;
      } else if (c === '"' && this.fresh) {
        this.quoted = true;
        this.fresh = false;
        start = i + 1;
      } else if (c === delimiter) {
        take(i);
        this.endCell();
      } else if (c === "\n" || c === "\r") {
        take(i);
        this.endRow();
        this.afterReturn = c === "\r";
      } else {
        this.fresh = false;
      }
    }
    if (start < text.length) this.cell += text.slice(start);
  }

  /** All rows; call it after the last piece. */
  end() {
    if (this.row.length || this.cell !== "" || !this.fresh) this.endRow();
    return this.rows;
  }

  endCell() {
    this.row.push(this.cell);
    this.cell = "";
    this.fresh = true;
  }

  endRow() {
    this.endCell();
    if (this.row.length > 1 || this.row[0] !== "") this.rows.push(this.row);
    this.row = [];
  }
}

function rowsOf(text, delimiter) {
  const reader = new CsvReader(delimiter);
  reader.push(text);
  return reader.end();
}

/** The delimiter that cuts most rows of the beginning into the same number of columns. */
export function findDelimiter(text) {
  const sample = text.slice(0, SAMPLE);
  let [best, most] = [",", 0];
  for (const delimiter of DELIMITERS) {
    const rows = rowsOf(sample, delimiter).slice(0, 50);
    if (text.length > SAMPLE && rows.length > 1) rows.pop(); // it may be cut
    const widths = new Map();
    for (const row of rows) widths.set(row.length, (widths.get(row.length) ?? 0) + 1);
    for (const [width, times] of widths) {
      const score = width > 1 ? (times / rows.length) * Math.min(width, 3) : 0;
      if (score > most) [best, most] = [delimiter, score];
    }
  }
  return best;
}

/** Whether the first row names the columns, and which column has the texts. */
export function describe(rows) {
  const width = rows.reduce((most, row) => Math.max(most, row.length), 0);
  const first = rows[0] ?? [];
  const sample = rows.slice(1, 200);
  const lengths = Array.from({ length: width }, (_, c) => {
    return sample.reduce((sum, row) => sum + (row[c] ?? "").length, 0) / (sample.length || 1);
  });
  const longest = lengths.indexOf(Math.max(...lengths));
  const named = first.findIndex((cell) => NAMES.test(cell.trim()));
  const known = named >= 0 || first.some((cell) => LABELS.test(cell.trim()));
  const short = first.every((cell) => cell && cell.length < 32 && Number.isNaN(Number(cell)));
  const header = known || (short && sample.length > 0 && lengths[longest] > 3 * (first[longest] ?? "").length);
  return { width, header, column: named >= 0 ? named : Math.max(longest, 0) };
}

const FORMULA = /^[=+\-@\t\r\n\uff0b\uff0d\uff1d\uff20]/; // what a spreadsheet may take for the beginning of one
const NUMBER = /^[+-]?(\d[\d.,]*|\.\d+)(e[+-]?\d+)?%?$/i;

/** A cell that no spreadsheet runs: what looks like a formula, and is no number, gets an apostrophe. */
export const guarded = (cell) => (FORMULA.test(cell) && !NUMBER.test(cell) ? `'${cell}` : cell);

/** Rows as CSV that spreadsheets read as UTF-8. */
export function toCsv(rows) {
  const cell = (text) => (/[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  return `\ufeff${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}
