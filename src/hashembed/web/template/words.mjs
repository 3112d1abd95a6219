// The text with its words coloured by what they add to the chosen class. One tab stop: the arrow
// keys go from word to word, pointing and tapping work too.
import { byId, element, isolated, signed, visible } from "./dom.mjs";

const MOST_WORDS = 3000; // more would make typing slow
const FAINT = 0.08; // words below this share of the strongest word have no colour
const LISTED = 4; // n-grams in the note of a word

export class Words {
  constructor() {
    this.box = byId("words");
    this.tip = byId("tip");
    this.note = byId("words-note");
    this.spans = [];
    this.active = -1;
    this.told = null; // what is shown: an explanation
    const place = (event) => this.spans.indexOf(event.target.closest(".w"));
    this.box.addEventListener("pointerover", (event) => this.point(place(event)));
    this.box.addEventListener("click", (event) => this.point(place(event)));
    this.box.addEventListener("pointerleave", () => {
      if (document.activeElement !== this.box) this.point(-1);
    });
    this.box.addEventListener("blur", () => this.point(-1));
    this.box.addEventListener("scroll", () => this.place());
    this.box.addEventListener("keydown", (event) => this.press(event));
    addEventListener("resize", () => this.place());
    document.addEventListener("pointerdown", (event) => {
      if (!this.box.contains(event.target)) this.point(-1);
    });
  }

  /** Show a text and its explanation. */
  show(text, told) {
    this.point(-1);
    this.told = told;
    const words = told.words.slice(0, MOST_WORDS);
    const largest = told.words.reduce((most, word) => Math.max(most, Math.abs(word.evidence)), 0) || 1;
    const pieces = [];
    let end = 0;
    this.spans = words.map((word, i) => {
      const share = word.evidence / largest;
      const kind = Math.abs(share) < FAINT ? "" : share > 0 ? " for" : " against";
      const shown = visible(text.slice(word.start, word.end));
      const span = element("span", {
        class: `w${kind}`,
        role: "option",
        id: `word-${i}`,
        "aria-selected": "false",
        "aria-label": `${shown}, ${spoken(word.evidence)}`,
      }, shown);
      if (kind) {
        span.style.setProperty("--s", Math.abs(share).toFixed(3));
        span.dataset.n = signed(word.evidence);
      }
      pieces.push(visible(text.slice(end, word.start)), span);
      end = word.end;
      return span;
    });
    const left = told.words.length - words.length;
    pieces.push(left ? " …" : visible(text.slice(end)));
    this.box.replaceChildren(...pieces);
    this.note.hidden = !left;
    this.note.textContent = `The first ${MOST_WORDS.toLocaleString("en")} words are shown. All count.`;
  }

  /** Light up the words of an n-gram; none without one. */
  light(spans = []) {
    this.told?.words.slice(0, this.spans.length).forEach((word, i) => {
      const lit = spans.some(([start, end]) => start < word.end && end > word.start);
      this.spans[i].classList.toggle("lit", lit);
    });
  }

  /** Tell about the word with this number; -1 is none. */
  point(number) {
    if (number === this.active) return;
    this.mark(false);
    this.active = number;
    const span = this.spans[number];
    this.tip.hidden = !span;
    if (!span) {
      this.box.removeAttribute("aria-activedescendant");
      return;
    }
    this.mark(true);
    this.box.setAttribute("aria-activedescendant", span.id);
    this.tip.replaceChildren(...this.story(this.told.words[number]));
    this.place();
  }

  mark(active) {
    const span = this.spans[this.active];
    span?.classList.toggle("active", active);
    span?.setAttribute("aria-selected", String(active));
  }

  /** What there is to say about a word: its number, and the parts of it that n-grams have. */
  story(word) {
    const { ngrams, label } = this.told;
    const parts = ngrams.map((ngram) => [shareOf(ngram, word), ngram]).filter(([share]) => share !== null);
    parts.sort(([a], [b]) => Math.abs(b) - Math.abs(a));
    const lines = parts.slice(0, LISTED).map(([share, ngram]) => element("li", {}, `${signed(share)} `, isolated(shownNgram(ngram))));
    if (parts.length > LISTED) lines.push(element("li", {}, `and ${parts.length - LISTED} more`));
    const list = parts.length > 1 ? [element("ul", {}, ...lines)] : [];
    return [element("b", {}, signed(word.evidence)), " for ", isolated(label), ...list];
  }

  /** Put the note beside its word. */
  place() {
    const span = this.spans[this.active];
    if (!span) return;
    const stage = this.box.parentElement.getBoundingClientRect();
    const frame = this.box.getBoundingClientRect();
    const word = span.getClientRects()[0];
    const { tip } = this;
    tip.hidden = word.bottom < frame.top || word.top > frame.bottom;
    tip.style.left = `${Math.max(0, Math.min(word.left - stage.left, stage.width - tip.offsetWidth))}px`;
    const above = word.top - stage.top - tip.offsetHeight - 8;
    const room = word.top - tip.offsetHeight - 8 > 0;
    tip.style.top = `${room ? above : word.bottom - stage.top + 8}px`;
  }

  press(event) {
    const last = this.spans.length - 1;
    const forward = getComputedStyle(this.box).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
    const step = { ArrowLeft: -1, ArrowRight: -1, ArrowUp: -1, ArrowDown: 1, [forward]: 1 }[event.key];
    if (event.key === "Escape") this.point(-1);
    else if (event.key === "Home") this.point(0);
    else if (event.key === "End") this.point(last);
    else if (step) this.point(Math.min(last, Math.max(0, this.active + step)));
    else return;
    event.preventDefault();
    this.spans[this.active]?.scrollIntoView({ block: "nearest" });
    this.place();
  }
}

/** What an n-gram adds to a word: its words share it equally. Null if it is not part of it. */
function shareOf({ spans, evidence, count, kind, text }, word) {
  const inside = spans.filter(([start, end]) => start < word.end && end > word.start).length;
  const words = kind === "word" ? text.split(" ").length : 1;
  return inside ? (evidence * inside) / (count * words) : null;
}

/** A number for screen readers, which skip the sign of "-0.5". */
const spoken = (value) => `${value < 0 ? "minus" : "plus"} ${Math.abs(value).toFixed(3)}`;

/** An n-gram for display: "-" where a character n-gram is cut from its word, as in "-di-". */
export function shownNgram({ text, kind }) {
  if (kind !== "characters") return text;
  return `${text.startsWith("<") ? "" : "-"}${text}${text.endsWith(">") ? "" : "-"}`;
}
