// Answers jobs with the module: one line of JSON on standard input, one on standard output.
//
//   { answer: path, texts: [...], explain: [[text, label or null], ...] }   what a model says
//   { words: path, texts: [...] }                                           the words of texts
//   { damage: path, files: [base64, ...], text }    for each file the logits of the text, or the error
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { load } from "../../src/hashembed/web/module/hashembed.mjs";

const models = new Map();

async function modelOf(path) {
  if (!models.has(path)) models.set(path, await load(readFileSync(path)));
  return models.get(path);
}

async function answer({ answer: path, texts, explain = [] }) {
  const model = await modelOf(path);
  return {
    labels: model.labels,
    classes: model.classes.map((value) => (typeof value === "bigint" ? `${value}n` : value)),
    multilabel: model.multilabel,
    threshold: model.threshold,
    info: model.info,
    logits: texts.map((text) => Array.from(model.logits(text))),
    probabilities: texts.map((text) => Array.from(model.probabilities(text))),
    first: model.predictAll(texts, { top: 1 }).map(([{ label }]) => label),
    explanations: explain.map(([text, label]) => model.explain(text, label ?? undefined)),
  };
}

async function words({ words: path, texts }) {
  const model = await modelOf(path);
  return texts.map((text) => model.words(text));
}

async function outcome(bytes, text) {
  try {
    return { logits: Array.from((await load(bytes)).logits(text)) };
  } catch (error) {
    return { error: error.name, message: error.message };
  }
}

async function damage({ files, text }) {
  const found = [];
  for (const file of files) found.push(await outcome(Buffer.from(file, "base64"), text));
  return found;
}

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const job = JSON.parse(line);
  const done = await (job.answer ? answer(job) : job.words ? words(job) : damage(job));
  process.stdout.write(JSON.stringify(done) + "\n");
}
