// Times the JavaScript module: `node time_javascript.mjs model.safetensors texts.json` prints JSON,
// all in milliseconds. `bench_javascript.py` runs it.
import { readFileSync } from "node:fs";
import { load } from "../src/hashembed/web/module/hashembed.mjs";

const [, , path, listed] = process.argv;
const bytes = readFileSync(path), texts = JSON.parse(readFileSync(listed, "utf8"));

async function timed(call) {
  const start = performance.now();
  const value = await call();
  return [value, performance.now() - start];
}

const [model, loading] = await timed(() => load(bytes)); // the first call: nothing is compiled yet
const [, first] = await timed(() => model.predict(texts[0]));
for (const text of texts.slice(0, 300)) model.predict(text);
const each = [], labels = [];
for (const text of texts) {
  const start = performance.now();
  const [best] = model.predict(text, { top: 1 });
  each.push(performance.now() - start);
  labels.push(best.label);
}
const [, explaining] = await timed(() => model.explain(texts[0]));
console.log(JSON.stringify({ version: process.version, loading, first, each, explaining, labels }));
