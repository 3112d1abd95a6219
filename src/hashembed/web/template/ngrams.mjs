// The n-grams that mattered most, for and against the chosen class, and how all of them add up.
import { byId, count, counted, element, isolated, measured, percent, signed } from "./dom.mjs";
import { shownNgram } from "./words.mjs";

const FEW = 8; // in each list
const MANY = 50; // after "Show more"

export class Ngrams {
  /** `onPoint` gets the places of an n-gram that the pointer is on, or nothing. */
  constructor(onPoint) {
    this.box = byId("grams");
    this.sum = byId("sum");
    this.onPoint = onPoint;
    this.shown = FEW;
  }

  /** Show the n-grams of an explanation. */
  show(told, multilabel, total) {
    const sorted = told.ngrams.toSorted((a, b) => Math.abs(b.evidence) - Math.abs(a.evidence));
    const largest = Math.abs(sorted[0]?.evidence ?? 0) || 1;
    const sides = [
      ["for", "Speaks for ", sorted.filter((ngram) => ngram.evidence > 0)],
      ["against", "Speaks against ", sorted.filter((ngram) => ngram.evidence < 0)],
    ];
    this.box.replaceChildren(...sides.map(([kind, title, ngrams]) => this.side(told, kind, title, ngrams, largest)));
    this.box.parentElement.querySelector("#more-grams")?.remove();
    const longest = Math.max(...sides.map(([, , ngrams]) => ngrams.length));
    if (longest > FEW) {
      const more = element("button", { type: "button", class: "link small", id: "more-grams" });
      more.textContent = this.shown === FEW ? "Show more" : "Show fewer";
      more.addEventListener("click", () => {
        this.shown = this.shown === FEW ? MANY : FEW;
        this.show(told, multilabel, total);
        byId("more-grams").focus();
      });
      this.box.after(more);
    }
    this.sum.replaceChildren(...this.addition(told, multilabel, total));
  }

  /** How bias and n-grams add up to `total`, the logit of the class above the mean logit. */
  addition(told, multilabel, total) {
    if (!told.exact) return ["This model averages probabilities, so each number is what the class loses without the n-gram."];
    const all = told.ngrams.reduce((sum, ngram) => sum + ngram.evidence, 0);
    const occurrences = told.ngrams.reduce((sum, ngram) => sum + ngram.count, 0);
    return [
      `It adds up exactly: ${signed(total - all)} to start with, ${signed(all)} from ${counted(occurrences, "n-gram")}, `,
      element("b", {}, `${signed(total)} in all`),
      multilabel ? `: ${percent(told.probability)}.` : ". The class with the largest sum wins.",
    ];
  }

  side(told, kind, title, ngrams, largest) {
    const table = element("table", {}, element("caption", {}, title, isolated(told.label)));
    const heads = ["n-gram", "times", "adds", ""].map((name, i) => {
      return element("th", { scope: "col", class: i === 1 || i === 2 ? "number" : null }, i === 3 ? element("span", { class: "unseen" }, "bar") : name);
    });
    table.append(element("thead", {}, element("tr", {}, ...heads)));
    const rows = ngrams.slice(0, this.shown).map((ngram) => {
      const row = element(
        "tr",
        {},
        element("th", { scope: "row" }, isolated(shownNgram(ngram))),
        element("td", { class: "number soft" }, count(ngram.count)),
        element("td", { class: `number ${ngram.evidence < 0 ? "minus" : "plus"}` }, signed(ngram.evidence)),
        element("td", { class: "bar" }, measured({ class: kind }, "--share", Math.abs(ngram.evidence) / largest)),
      );
      row.addEventListener("pointerenter", () => this.onPoint(ngram.spans));
      row.addEventListener("pointerleave", () => this.onPoint());
      return row;
    });
    if (!rows.length) rows.push(element("tr", {}, element("td", { colspan: "4", class: "soft" }, "nothing")));
    table.append(element("tbody", {}, ...rows));
    return table;
  }
}
