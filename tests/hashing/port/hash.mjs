// The hash of docs/how-it-works/hash.md in JavaScript: 32-bit arithmetic on two lanes, no 64-bit integers.
// `node hash.mjs vectors.json` checks every vector of the file and prints how many there were.
import { readFileSync } from "node:fs";

const mul = (x, y) => Math.imul(x, y) >>> 0;
const add = (x, y) => (x + y) >>> 0;
const xor = (x, y) => (x ^ y) >>> 0;
const rotl = (x, r) => ((x << r) | (x >>> (32 - r))) >>> 0;

function fmix32(x) {
  x = mul(x ^ (x >>> 16), 0x85ebca6b);
  x = mul(x ^ (x >>> 13), 0xc2b2ae35);
  return xor(x, x >>> 16);
}

const scramble = (x) => mul(rotl(mul(x, 0xcc9e2d51), 15), 0x1b873593);

function murmur(bytes, seed) {
  const body = bytes.length - (bytes.length % 4);
  let h = seed, tail = 0;
  for (let i = 0; i < body; i += 4) {
    const block = bytes[i] | (bytes[i + 1] << 8) | (bytes[i + 2] << 16) | (bytes[i + 3] << 24);
    h = add(mul(rotl(xor(h, scramble(block)), 13), 5), 0xe6546b64);
  }
  for (let i = body; i < bytes.length; i++) tail |= bytes[i] << (8 * (i - body));
  if (body < bytes.length) h = xor(h, scramble(tail));
  return fmix32(xor(h, bytes.length));
}

const bytesKey = (bytes, seeds) => seeds.map((seed) => murmur(bytes, seed));
const utf8 = (text) => new TextEncoder().encode(text);
const wordKey = (word) => bytesKey(utf8(word), [0x243f6a88, 0x85a308d3]);
const subwordKey = (piece) => bytesKey(utf8(piece), [0xa4093822, 0x299f31d0]);

function ngramKey(words) {
  if (words.length === 1) return wordKey(words[0]);
  const keys = words.map(wordKey);
  return [0x13198a2e, 0x03707344].map((seed, lane) => {
    const view = new DataView(new ArrayBuffer(4 * keys.length));
    keys.forEach((key, j) => view.setUint32(4 * j, key[lane], true));
    return murmur(new Uint8Array(view.buffer), seed);
  });
}

function idKey([a, b], column = 0) {
  const salt = mul(column, 0x9e3779b9);
  a = xor(a, fmix32(add(b, add(0x082efa98, salt))));
  b = xor(b, fmix32(add(a, add(0xec4e6c89, salt))));
  a = xor(a, fmix32(add(b, add(0x452821e6, salt))));
  b = xor(b, fmix32(add(a, add(0x38d01377, salt))));
  return [a, b];
}

function deriveSeeds(lanes, k) {
  const [a, b] = idKey(lanes);
  const indices = Array.from({ length: 1 + k }, (_, i) => i);
  return indices.map((i) => fmix32(xor(fmix32(add(b, mul(i, 0x9e3779b9))), a)));
}

// floor(h * n / 2^32), in two steps that a double holds exactly
const reduce = (h, n) =>
  Math.floor(((h >>> 16) * n + Math.floor(((h & 0xffff) * n) / 65536)) / 65536);

const bucketHash = (a, b, seed) => fmix32(add(fmix32(xor(a, seed)), xor(b, seed)));

function index([a, b], K, B, k, indexing, seed) {
  const seeds = deriveSeeds(seed, k);
  const identity = indexing === "identity";
  const row = identity ? a : reduce(fmix32(xor(a, seeds[0])), K);
  const [u, v] = indexing === "independent" ? [a, b] : [row, 0];
  const buckets = seeds.slice(1).map((s) => reduce(bucketHash(u, v, s), B));
  if (identity && B === K) buckets[0] = row;
  return { row, buckets };
}

// --- the vectors ---------------------------------------------------------------------------

const hex = (lane) => lane.toString(16).padStart(8, "0");
const hexKey = ([a, b]) => hex(b) + hex(a);
const fromHex = (key) => [parseInt(key.slice(8), 16), parseInt(key.slice(0, 8), 16)];
const fromBytes = (text) => Uint8Array.from(text.match(/../g) ?? [], (x) => parseInt(x, 16));
// only to read decimal digits
const fromDecimal = (id) => fromHex(BigInt.asUintN(64, BigInt(id)).toString(16).padStart(16, "0"));

const answers = {
  murmur3_32: (v) => ({
    hashes: Object.fromEntries(
      Object.keys(v.hashes).map((s) => [s, hex(murmur(fromBytes(v.bytes), parseInt(s, 16)))]),
    ),
  }),
  words: (v) => ({ key: hexKey(wordKey(v.word)) }),
  ngrams: (v) => ({ key: hexKey(ngramKey(v.words)) }),
  subwords: (v) => ({ key: hexKey(subwordKey(v.subword)) }),
  ids: (v) => ({ key: hexKey(idKey(fromDecimal(v.id))) }),
  columns: (v) => ({ key: hexKey(idKey(fromDecimal(v.id), v.column)) }),
  seeds: (v) => ({ seeds: deriveSeeds(fromDecimal(v.seed), v.num_hashes).map(hex) }),
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
