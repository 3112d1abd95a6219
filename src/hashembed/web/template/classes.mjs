// The answer: classes with their probabilities. Choosing one asks why the text is, or is not, of it.
import { byId, count, element, isolated, measured, percent } from "./dom.mjs";

const FEW = 6; // classes without a search
const FOUND = 50; // classes that a search shows

export class Classes {
  /** `onChoose` is called after the chosen class has changed. */
  constructor(model, onChoose) {
    this.model = model;
    this.onChoose = onChoose;
    this.chosen = null; // a label; null follows the answer
    this.ranked = []; // classes with their probabilities, likeliest first
    this.isEmpty = true; // whether the text has no words
    this.list = byId("classes");
    this.note = byId("classes-note");
    this.verdict = byId("verdict");
    this.find = byId("find");
    byId("find-row").hidden = model.labels.length <= FEW;
    this.find.addEventListener("input", () => this.draw());
    this.list.addEventListener("click", (event) => {
      const button = event.target.closest(".class");
      if (button) this.choose(this.ranked[Number(button.dataset.rank)].label);
    });
  }

  /** The class that the colours are about. */
  get label() {
    return this.chosen ?? this.ranked[0]?.label;
  }

  choose(label) {
    this.chosen = this.chosen === label || label === this.ranked[0].label ? null : label;
    const focused = document.activeElement?.dataset?.rank;
    this.draw();
    if (focused !== undefined) this.list.querySelector(`[data-rank="${focused}"]`)?.focus();
    this.onChoose();
  }

  /** The labels that the model gives. */
  get given() {
    const { multilabel, threshold } = this.model;
    return multilabel ? this.ranked.filter(({ probability }) => probability > threshold) : this.ranked.slice(0, 1);
  }

  /** Show the classes. */
  draw() {
    const { model, ranked } = this;
    this.verdict.replaceChildren(...this.headline());
    this.verdict.classList.toggle("several", this.verdict.children.length > 1);
    const wanted = this.find.value.trim().toLowerCase();
    let places = ranked.map((_, i) => i);
    if (wanted) places = places.filter((i) => ranked[i].label.toLowerCase().includes(wanted));
    const found = places.length;
    places = places.slice(0, wanted ? FOUND : FEW);
    const at = ranked.findIndex(({ label }) => label === this.chosen);
    if (!wanted && at >= FEW) places.push(at); // the chosen class stays in sight
    this.list.replaceChildren(...places.map((i) => element("li", {}, this.bar(i))));
    const parts = [];
    if (wanted) parts.push(found ? `${count(found)} of ${count(ranked.length)} classes match.` : "No class matches.");
    else if (ranked.length > FEW) parts.push(`The ${FEW} likeliest of ${count(ranked.length)} classes.`);
    if (model.multilabel) parts.push(`Labels above ${percent(model.threshold)} are given.`);
    if (this.isEmpty) parts.push("Without words, these are the shares in the training texts.");
    else if (places.length > 1) parts.push("Choose a class to see which words speak for it.");
    this.note.textContent = parts.join(" ");
  }

  headline() {
    if (this.isEmpty) return [element("span", { class: "chance" }, "No words yet")];
    const given = this.given;
    if (!given.length) return [element("span", { class: "chance" }, "None of the labels")];
    return given.slice(0, FEW).map(({ label, probability }) => {
      const chance = element("span", { class: "chance" }, percent(probability));
      const name = isolated(label, { class: "clamp", title: label.length > 60 ? label : null });
      return element("span", { class: "given" }, name, " ", chance);
    });
  }

  bar(rank) {
    const { label, probability } = this.ranked[rank];
    const { multilabel, threshold } = this.model;
    const track = element("span", { class: "track" }, measured({ class: "fill" }, "--p", probability));
    if (multilabel) track.append(measured({ class: "limit" }, "--p", threshold));
    const isGiven = multilabel && !this.isEmpty && probability > threshold;
    const tick = isGiven ? [element("span", { class: "tick" }, "✓"), element("span", { class: "unseen" }, " given "), " "] : [];
    return element(
      "button",
      { type: "button", class: "class", "data-rank": rank, "aria-pressed": String(label === this.label) },
      element("span", { class: "clamp" }, ...tick, isolated(label)),
      element("span", { class: "percent" }, percent(probability)),
      track,
    );
  }
}
