// Checks test vectors with the hash of the JavaScript module: `node vectors.mjs vectors.json` prints how
// many there were.
import { readFileSync } from "node:fs";
import { hash } from "../../src/hashembed/web/module/hashembed.mjs";

const { absorb, bucketHash, deriveSeeds, fmix32, idKey, murmur, reduce } = hash;
const { WORD_SEEDS, NGRAM_SEEDS, SUBWORD_SEEDS } = hash;

const keyOf = (text, seeds) => {
  const bytes = new TextEncoder().encode(text);
  return seeds.map((seed) => murmur(bytes, 0, bytes.length, seed));
};
const wordKey = (word) => keyOf(word, WORD_SEEDS);

function ngramKey(words) {
  if (words.length === 1) return wordKey(words[0]);
  return NGRAM_SEEDS.map((seed, lane) => {
    const state = words.reduce((h, word) => absorb(h, wordKey(word)[lane]), seed);
    return fmix32(state ^ (4 * words.length));
  });
}

function index([a, b], K, B, k, indexing, seed) {
  const seeds = deriveSeeds(seed, k), identity = indexing === "identity";
  const row = identity ? a >>> 0 : reduce(fmix32(a ^ seeds[0]), K);
  const [u, v] = indexing === "independent" ? [a, b] : [row, 0];
  const buckets = Array.from(seeds.slice(1), (s) => reduce(bucketHash(u, v, s), B));
  if (identity && B === K) buckets[0] = row;
  return { row, buckets };
}

const hex = (lane) => (lane >>> 0).toString(16).padStart(8, "0");
const hexKey = ([a, b]) => hex(b) + hex(a);
const fromHex = (key) => [parseInt(key.slice(8), 16), parseInt(key.slice(0, 8), 16)];
const fromBytes = (text) => Uint8Array.from(text.match(/../g) ?? [], (x) => parseInt(x, 16));
// only to read decimal digits
const fromDecimal = (id) => fromHex(BigInt.asUintN(64, BigInt(id)).toString(16).padStart(16, "0"));

const answers = {
  murmur3_32: (v) => ({
    hashes: Object.fromEntries(
      Object.keys(v.hashes).map((s) => [s, hex(murmur(fromBytes(v.bytes), 0, v.bytes.length / 2, parseInt(s, 16)))]),
    ),
  }),
  words: (v) => ({ key: hexKey(wordKey(v.word)) }),
  ngrams: (v) => ({ key: hexKey(ngramKey(v.words)) }),
  subwords: (v) => ({ key: hexKey(keyOf(v.subword, SUBWORD_SEEDS)) }),
  ids: (v) => ({ key: hexKey(idKey(fromDecimal(v.id))) }),
  columns: (v) => ({ key: hexKey(idKey(fromDecimal(v.id), v.column)) }),
  seeds: (v) => ({ seeds: Array.from(deriveSeeds(fromDecimal(v.seed), v.num_hashes), hex) }),
  indices: (v) =>
    index(fromHex(v.key), v.num_embeddings, v.num_buckets, v.num_hashes, v.indexing,
      fromDecimal(v.seed)),
};

const { hash_version: version, ...sections } = JSON.parse(readFileSync(process.argv[2], "utf8"));
if (version !== 1) throw new Error(`hash version ${version}, expected 1`);
let checked = 0;
for (const [section, vectors] of Object.entries(sections))
  for (const vector of vectors) {
    const expected = JSON.stringify(vector);
    const found = JSON.stringify({ ...vector, ...answers[section](vector) });
    if (found !== expected) throw new Error(`${section}: ${expected}, found ${found}`);
    checked++;
  }
console.log(checked);
