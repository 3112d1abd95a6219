// The page of a model: reads the model from the page itself and wires the parts together.
import { load } from "../module/hashembed.mjs";
import { showCounts } from "./about.mjs";
import { Classes } from "./classes.mjs";
import { breathe, byId, element, isolated, percent, visible } from "./dom.mjs";
import { Many } from "./many.mjs";
import { Ngrams } from "./ngrams.mjs";
import { Words } from "./words.mjs";

const EXAMPLES = 5; // at a time
const SLOW = 30; // milliseconds: answers that take longer come less often
const PAUSE = 1000; // milliseconds before an answer is read out

/** The bytes that a script element has in base64. */
function embedded(id) {
  const box = byId(id);
  const text = box.textContent;
  box.remove(); // the text would stay in memory
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

function start(model) {
  const text = byId("text");
  const words = new Words();
  const ngrams = new Ngrams((spans) => words.light(spans));
  const classes = new Classes(model, explain);
  let waiting = false; // whether an answer is about to come
  let speaking = 0;
  let cost = 0; // milliseconds that the last answer took

  /** Colour the words for the chosen class, if there are any. */
  function explain() {
    const told = model.explain(text.value, classes.label);
    byId("why").hidden = told.ngrams.length === 0;
    if (told.ngrams.length === 0) return false;
    byId("why-class").textContent = visible(told.label) || "(empty)";
    words.show(text.value, told);
    const logits = model.logits(text.value);
    const mean = model.multilabel ? 0 : logits.reduce((sum, logit) => sum + logit, 0) / logits.length;
    ngrams.show(told, model.multilabel, told.logit - mean);
    return true;
  }

  function answer() {
    const began = performance.now();
    waiting = false;
    byId("answer").setAttribute("aria-busy", "false");
    classes.ranked = model.predict(text.value);
    classes.isEmpty = !explain();
    classes.draw();
    cost = performance.now() - began;
    clearTimeout(speaking);
    speaking = setTimeout(() => {
      const given = classes.given.map(({ label, probability }) => `${visible(label)}, ${percent(probability)}`);
      byId("spoken").textContent = text.value ? `Answer: ${given.join("; ") || "none of the labels"}` : "";
    }, PAUSE);
  }

  text.addEventListener("input", () => {
    if (waiting) return;
    const soon = cost < SLOW ? requestAnimationFrame : (call) => setTimeout(call, Math.min(2 * cost, 500));
    waiting = true;
    byId("answer").setAttribute("aria-busy", "true");
    soon(answer);
  });
  byId("numbers").addEventListener("change", ({ target }) => byId("words").classList.toggle("numbers", target.checked));

  function pick(chosen, isFar) {
    text.value = chosen;
    classes.chosen = null;
    answer();
    if (isFar) {
      text.scrollIntoView({ block: "center" });
      text.focus({ preventScroll: true });
    }
  }

  new Many(model, (chosen) => pick(chosen, true));
  showCounts(model);
  return { answer, pick };
}

function showExamples(examples, pick) {
  const box = byId("examples");
  let first = 0;
  const draw = () => {
    const shown = Array.from({ length: Math.min(EXAMPLES, examples.length) }, (_, i) => examples[(first + i) % examples.length]);
    box.querySelector("ul").replaceChildren(
      ...shown.map((example) => {
        const chip = element("button", { type: "button", class: "chip", title: example.length > 60 ? visible(example) : null }, isolated(example.slice(0, 120)));
        chip.addEventListener("click", () => pick(example));
        return element("li", {}, chip);
      }),
    );
  };
  byId("more-examples").hidden = examples.length <= EXAMPLES;
  byId("more-examples").addEventListener("click", () => {
    first = (first + EXAMPLES) % examples.length;
    draw();
  });
  box.hidden = examples.length === 0;
  draw();
}

/** Switch between light and dark; until then the page follows the system. */
function offerThemes() {
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
  const rule = rules.find((found) => found.media?.mediaText.includes("prefers-color-scheme"));
  let dark = matchMedia("(prefers-color-scheme: dark)").matches;
  byId("theme").hidden = false;
  byId("theme").addEventListener("click", () => {
    dark = !dark;
    rule.media.mediaText = dark ? "all" : "not all";
  });
}

async function main() {
  const given = JSON.parse(byId("given").textContent);
  offerThemes();
  await breathe(); // the page appears before the model is read
  const model = await load(embedded("model"));
  const { answer, pick } = start(model);
  showExamples(given.examples, pick);
  const typed = byId("text").value; // while the model was read, or kept by the browser
  if (!typed && given.examples.length) pick(given.examples[0]);
  else answer();
  return model;
}

const ready = main();
ready.catch((error) => {
  byId("problem").textContent = `This page could not read its model: ${error.message}`;
  byId("problem").hidden = false;
  byId("verdict").textContent = "";
});

let loaded = null;
ready.then((model) => (loaded = model), () => {});
const model = () => {
  if (!loaded) throw new Error("the model is being read: await hashembed.ready first");
  return loaded;
};

/** For automation: `await hashembed.ready`, then `hashembed.predict("a text")`. */
window.hashembed = {
  ready: ready.then(() => true),
  predict: (text, options) => model().predict(text, options),
  explain: (text, label) => model().explain(text, label),
  get labels() {
    return model().labels;
  },
  get info() {
    return model().info;
  },
};
