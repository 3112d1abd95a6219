// A program that TypeScript checks against the types of the module: `make npm-types`.
import { hash, load, ModelFileError } from "../../src/hashembed/web/module/hashembed.mjs";
import type { Explanation, Model, Prediction } from "../../src/hashembed/web/module/hashembed.mjs";

const model: Model = await load(new Uint8Array());
const [best]: Prediction[] = model.predict("a text", { top: 1 });
const all: Prediction[][] = model.predictAll(["a", "b"]);
const sizes: number = model.info.sizes.K + model.probabilities("a").length + all.length;
const explained: Explanation = model.explain("a text", best!.label);
const [start, end]: [number, number] = explained.ngrams[0]!.spans[0]!;
const key: [number, number] = hash.idKey([1, 0]);
await load(await fetch("model.safetensors"));
await load(new URL("https://example.org/model.safetensors"));
await load(new Blob([]));
if (new Error() instanceof ModelFileError) console.log(sizes, start, end, key);
// @ts-expect-error: a text is a string
model.predict(7);
// @ts-expect-error: there is no such option
model.predict("a", { most: 1 });
