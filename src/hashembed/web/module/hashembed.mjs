// hashembed: model files of Python's TextClassifier, in JavaScript.
//
//   import { load } from "./hashembed.mjs";
//   const model = await load(await fetch("model.safetensors"));
//   model.predict("a very good film"); // [{ label: "good", probability: 0.97 }, ...]
//
// One file without dependencies, for browsers, workers, Node and Deno, that gives the answers Python
// gives. In the repository, docs/guides/javascript.md is its guide, docs/how-it-works/hash.md specifies
// the hash, docs/guides/text.md what a word is, and docs/how-it-works/files.md the file.
//
// Sections, in the order of the data:
//   1. the file: tensors, checksum         5. text to words, n-grams and keys
//   2. tables: codes to numbers            6. keys to logits and probabilities
//   3. the hash                            7. explanations
//   4. characters                          8. the header of a model file; Model, load

/** A file that is not a model, or not one that this version can read. */
export class ModelFileError extends Error {
  constructor(message) {
    super(message);
    this.name = "ModelFileError";
  }
}

function check(condition, sentence) {
  if (!condition) throw new ModelFileError(sentence);
}

const isWhole = (x, least, most) => Number.isInteger(x) && x >= least && x <= most;
const isAbove0 = (x, most) => typeof x === "number" && x > 0 && x <= most;
const isObject = (x) => typeof x === "object" && x !== null && !Array.isArray(x);
const shown = (x) => String(JSON.stringify(x)).slice(0, 50);
const sumOf = (numbers) => numbers.reduce((sum, x) => sum + x, 0);

// --- 1. the file: a safetensors header, tensors, a checksum over both -------

const ITEM_BYTES = { F64: 8, F32: 4, F16: 2, U8: 1 };

const damaged = (why) => `the file is damaged or not a safetensors file: ${why}`;

/** The metadata of a file, and its tensors by name: { dtype, shape, bytes }. */
function readTensors(file) {
  check(file.length >= 8, damaged(`it has ${file.length} bytes`));
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const length = view.getUint32(0, true) + view.getUint32(4, true) * 2 ** 32;
  check(length <= file.length - 8, damaged("its header is longer than the file, which may be truncated"));
  const header = parseJson(decodeUtf8(file.subarray(8, 8 + length)), damaged("its header is not JSON"));
  check(isObject(header), damaged("its header is not a JSON object"));
  const { __metadata__: metadata, ...entries } = header;
  const ours = isObject(metadata) && typeof metadata.hashembed === "string";
  check(ours, "the file is a safetensors file, but not one of hashembed's");
  const data = file.subarray(8 + length);
  const tensors = new Map();
  for (const [name, entry] of Object.entries(entries)) tensors.set(name, readTensor(name, entry, data));
  checkTiling([...tensors.values()], data.length);
  return { metadata, tensors };
}

function readTensor(name, entry, data) {
  const { dtype, shape, data_offsets: offsets } = isObject(entry) ? entry : {};
  const areSizes = (list) => Array.isArray(list) && list.every((n) => isWhole(n, 0, 2 ** 52));
  const described = areSizes(shape) && areSizes(offsets) && offsets.length === 2;
  check(described, damaged(`its tensor ${shown(name)} is not described by type, shape and place`));
  check(Object.hasOwn(ITEM_BYTES, dtype), `the file has a tensor ${shown(name)} of type ${shown(dtype)}`);
  const [begin, end] = offsets, size = shape.reduce((product, n) => product * n, ITEM_BYTES[dtype]);
  check(size === end - begin, damaged(`its tensor ${shown(name)} has more or fewer bytes than its shape says`));
  check(end <= data.length, damaged("it ends before its tensors do, so it may be truncated"));
  return { dtype, shape, begin, end, bytes: data.subarray(begin, end) };
}

/** Refuse gaps, overlaps and data after the last tensor. */
function checkTiling(tensors, size) {
  let at = 0;
  for (const { begin, end } of tensors.sort((x, y) => x.begin - y.begin || x.end - y.end)) {
    check(begin === at, damaged("its tensors overlap, or something lies between them"));
    at = end;
  }
  check(at === size, damaged(`its tensors take ${at} bytes, but there are ${size}`));
}

function decodeUtf8(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new ModelFileError(damaged("its header is not UTF-8"));
  }
}

function parseJson(text, complaint) {
  try {
    return JSON.parse(text);
  } catch {
    throw new ModelFileError(complaint);
  }
}

/** Refuse a file whose bytes are not those that were saved. */
function verify(metadata, tensors) {
  const digest = new Blake2b(16), utf8 = new TextEncoder();
  digest.update(utf8.encode(metadata.hashembed));
  for (const name of [...tensors.keys()].sort()) {
    const { dtype, shape, bytes } = tensors.get(name);
    const type = dtype === "U8" ? "|u1" : `<f${ITEM_BYTES[dtype]}`; // as NumPy writes it
    digest.update(utf8.encode(`[${JSON.stringify(name)}, "${type}", [${shape.join(", ")}]]`));
    digest.update(bytes);
  }
  check(digest.hex() === metadata.checksum, "the file is damaged: its checksum does not fit its content");
}

// Fractions of square roots of primes: low and high halves of 64-bit numbers.
const BLAKE_START = Int32Array.of(
  0xf3bcc908, 0x6a09e667, 0x84caa73b, 0xbb67ae85, 0xfe94f82b, 0x3c6ef372, 0x5f1d36f1, 0xa54ff53a,
  0xade682d1, 0x510e527f, 0x2b3e6c1f, 0x9b05688c, 0xfb41bd6b, 0x1f83d9ab, 0x137e2179, 0x5be0cd19,
);
// The order in which each round takes the words of a block; the last two rounds are as the first two.
const BLAKE_ORDERS = Uint8Array.from(
  "0123456789abcdefea489fd61c02b753b8c052fdae3671947931dcbe265a40f8905724afe1bc683d2c6a0b834d75fe19" +
  "c51fed4a0763928bdb7ec13950f4862a6fe9b308c2d714a5a2847615fb9e3cd00123456789abcdefea489fd61c02b753",
  (digit) => parseInt(digit, 16),
);

/** BLAKE2b, with 64-bit numbers as pairs of 32-bit numbers: low, high. */
class Blake2b {
  constructor(size) {
    this.size = size;
    this.state = BLAKE_START.slice();
    this.state[0] ^= 0x01010000 ^ size;
    this.block = new Uint8Array(128);
    this.words = new Int32Array(this.block.buffer);
    this.work = new Int32Array(32);
    this.filled = this.total = 0;
  }

  update(bytes) {
    for (let at = 0; at < bytes.length; ) {
      if (this.filled === 128) this.compress(false);
      const size = Math.min(128 - this.filled, bytes.length - at);
      this.block.set(bytes.subarray(at, at + size), this.filled);
      this.filled += size;
      this.total += size;
      at += size;
    }
  }

  hex() {
    this.block.fill(0, this.filled);
    this.compress(true);
    const bytes = new Uint8Array(this.state.buffer, 0, this.size);
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  compress(last) {
    const { words, work, state } = this;
    work.set(state);
    work.set(BLAKE_START, 16);
    work[24] ^= this.total;
    work[25] ^= this.total / 2 ** 32;
    if (last) work[28] = ~work[28], work[29] = ~work[29];
    for (let i = 0; i < 96; i++) {
      const turn = (i >> 2) & 1; // four columns, then four diagonals
      const b = 4 + ((i + turn) & 3), c = 8 + ((i + 2 * turn) & 3), d = 12 + ((i + 3 * turn) & 3);
      const x = 2 * BLAKE_ORDERS[2 * i], y = 2 * BLAKE_ORDERS[2 * i + 1];
      mix(work, 2 * (i & 3), 2 * b, 2 * c, 2 * d, words, x, y);
    }
    for (let i = 0; i < 16; i++) state[i] ^= work[i] ^ work[i + 16];
    this.filled = 0;
  }
}

/** BLAKE2b's G: a, b, c, d are places in v, x and y places in the block. */
function mix(v, a, b, c, d, block, x, y) {
  let al = v[a], ah = v[a + 1], bl = v[b], bh = v[b + 1], cl = v[c], ch = v[c + 1];
  let sum = (al >>> 0) + (bl >>> 0) + (block[x] >>> 0);
  ah = (ah + bh + block[x + 1] + Math.floor(sum / 2 ** 32)) | 0, al = sum | 0;
  let dl = v[d + 1] ^ ah, dh = v[d] ^ al; // rotated by 32 bits
  sum = (cl >>> 0) + (dl >>> 0);
  ch = (ch + dh + (sum > 0xffffffff ? 1 : 0)) | 0, cl = sum | 0;
  let low = bl ^ cl, high = bh ^ ch;
  bl = (low >>> 24) | (high << 8), bh = (high >>> 24) | (low << 8);
  sum = (al >>> 0) + (bl >>> 0) + (block[y] >>> 0);
  ah = (ah + bh + block[y + 1] + Math.floor(sum / 2 ** 32)) | 0, al = sum | 0;
  low = dl ^ al, high = dh ^ ah;
  dl = (low >>> 16) | (high << 16), dh = (high >>> 16) | (low << 16);
  sum = (cl >>> 0) + (dl >>> 0);
  ch = (ch + dh + (sum > 0xffffffff ? 1 : 0)) | 0, cl = sum | 0;
  low = bl ^ cl, high = bh ^ ch;
  v[a] = al, v[a + 1] = ah, v[c] = cl, v[c + 1] = ch, v[d] = dl, v[d + 1] = dh;
  v[b] = (high >>> 31) | (low << 1), v[b + 1] = (low >>> 31) | (high << 1);
}

// --- 2. tables --------------------------------------------------------------
//
// A table has `rows`, and `read(row, out, at)` writes the numbers of a row to out[at] and after. It may
// write one more than the row has. Tables stay in codes, as in the file: a row is decoded when it is
// read. A new coding is a new class, made in `openTable`.

/** Numbers as they are. */
class PlainTable {
  constructor(numbers, rows, columns) {
    Object.assign(this, { numbers, rows, columns });
  }

  read(row, out, at) {
    const { numbers, columns } = this, begin = row * columns;
    for (let i = 0; i < columns; i++) out[at + i] = numbers[begin + i];
  }
}

/** Each number has a code of its own, 8 or 16 bits: an index into `values`. */
class LookupTable {
  constructor(codes, rows, columns, values) {
    Object.assign(this, { codes, rows, columns, values });
  }

  read(row, out, at) {
    const { codes, columns, values } = this, begin = row * columns;
    for (let i = 0; i < columns; i++) out[at + i] = values[codes[begin + i]];
  }
}

/** Two codes of 4 bits in a byte, the first in the lower half. */
class NibbleTable {
  constructor(codes, rows, columns, values) {
    const pairs = Float32Array.from({ length: 512 }, (_, i) => values[i & 1 ? i >> 5 : (i >> 1) & 15]);
    Object.assign(this, { codes, rows, width: (columns + 1) >> 1, pairs });
  }

  read(row, out, at) {
    const { codes, width, pairs } = this, begin = row * width;
    for (let i = 0; i < width; i++) {
      const pair = 2 * codes[begin + i];
      out[at + 2 * i] = pairs[pair];
      out[at + 2 * i + 1] = pairs[pair + 1];
    }
  }
}

/** Only some rows are not zero. Each number of these has a code of 8 bits: an index into `values`. */
class PackedTable {
  /** kept: a bit for each row, 1 if it is not zero; codes: of these rows. */
  constructor(kept, codes, rows, columns, values) {
    const before = kept.slice(); // how many rows are kept before each 32 rows
    let count = 0;
    for (let i = 0; i < kept.length; i++) before[i] = count, count += bitCount(kept[i]);
    Object.assign(this, { kept, before, count, codes, rows, columns, values });
  }

  read(row, out, at) {
    const { codes, columns, values } = this, word = this.kept[row >>> 5], bit = 1 << (row & 31);
    if (!(word & bit)) return void out.fill(0, at, at + columns);
    const begin = (this.before[row >>> 5] + bitCount(word & (bit - 1))) * columns;
    for (let i = 0; i < columns; i++) out[at + i] = values[codes[begin + i]];
  }
}

function bitCount(x) {
  x -= (x >>> 1) & 0x55555555;
  x = (x & 0x33333333) + ((x >>> 2) & 0x33333333);
  return Math.imul((x + (x >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24;
}

/** Read a packed table of this shape, with so many rows that are not zero, from three tensors. */
async function unpack(tensors, name, [rows, columns], count) {
  const take = (part, dtype) => {
    const own = `${name}.${part}`, tensor = tensorOf(tensors, own), { length } = tensor.bytes;
    check(tensor.dtype === dtype, `the file has a tensor ${shown(own)} of type ${tensor.dtype}, expected ${dtype}`);
    checkShape(tensor, own, [length / ITEM_BYTES[dtype]]);
    tensors.delete(own);
    return tensor;
  };
  const gaps = take("rows", "U8"), bytes = take("codes", "U8"), numbers = take("values", "F32");
  need(isWhole(count, 0, rows), `rows of ${shown(name)}`, count);
  check(numbers.shape[0] <= 254, `the file has ${numbers.shape[0]} values of ${shown(name)}, expected at most 254`);
  const values = Float32Array.of(0, ...finiteNumbers(numbers, `${name}.values`));
  const kept = new Int32Array((rows >>> 5) + 1), codes = new Uint8Array(count * columns);

  let row = -1, gap = 0, found = 0;
  await eachByte(gaps, count + Math.floor(rows / 255), `${name}.rows`, (byte) => {
    gap += byte;
    if (byte === 255) return;
    row += gap + 1, gap = 0, found++;
    check(row < rows, `the file has row ${row} in ${shown(name)}, which has ${rows} rows`);
    kept[row >>> 5] |= 1 << (row & 31);
  });
  check(found === count && !gap, `the file has ${found} rows of ${shown(name)}, expected ${count}`);

  let place = 0, weight = 1; // of the next number, column by column; of the next digit of a run of zeros
  await eachByte(bytes, codes.length, `${name}.codes`, (byte) => {
    if (byte < 2) {
      place += (byte + 1) * weight;
      weight *= 2;
      return;
    }
    check(byte <= values.length, `the file has the code ${byte} of ${shown(name)}, which has no value`);
    if (place < codes.length) codes[(place % count) * columns + Math.floor(place / count)] = byte - 1;
    place++, weight = 1;
  });
  check(place === codes.length, `the file has codes of ${shown(name)} that are not ${codes.length} numbers`);
  return new PackedTable(kept, codes, rows, columns, values);
}

const PIECE = 1 << 14; // bytes that are inflated at a time, some to a thousand times as many

/** Inflate a tensor in zlib format, which may hold `most` bytes, and call `use` with each byte. */
async function eachByte({ bytes }, most, name, use) {
  const has = typeof DecompressionStream === "function";
  check(has, "the file is compressed, but this JavaScript engine has no DecompressionStream: use a newer one");
  let at = 0, size = 0;
  const pull = (to) => (at < bytes.length ? to.enqueue(bytes.slice(at, at += PIECE)) : to.close());
  const reader = new ReadableStream({ pull }).pipeThrough(new DecompressionStream("deflate")).getReader();
  const failed = () => check(false, `the file has a tensor ${shown(name)} that does not inflate`);
  try {
    for (;;) {
      const { done, value } = await reader.read().catch(failed);
      if (done) return;
      size += value.length;
      check(size <= most, `the file has a tensor ${shown(name)} that inflates to more than ${most} bytes`);
      for (const byte of value) use(byte);
    }
  } finally {
    reader.cancel().catch(() => {}); // it failed, or a rule was broken
  }
}

/** The number of each code: sign * (code / top)^2 * largest, rounded to float32 at each step. */
function codedValues(bits, largest) {
  const values = new Float32Array(2 ** bits), half = values.length / 2;
  for (let code = 0; code < values.length; code++) {
    const x = Math.fround((code < half ? code : code - 2 * half) / (half - 1));
    values[code] = Math.fround(Math.abs(x) * x) * Math.fround(largest);
  }
  return values;
}

let halves = null;

/** The number of each pattern of 16 bits in half precision; infinity and NaN do not occur. */
function halfValues() {
  if (halves) return halves;
  halves = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    halves[bits] = sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
  }
  return halves;
}

/** A table of this shape, whatever its coding. */
function openTable(tensors, name, shape, coded) {
  const tensor = tensorOf(tensors, name), { dtype, bytes } = tensor, [rows, columns = 1] = shape;
  if (tensor instanceof PackedTable) return tensor;
  if (coded && Object.hasOwn(coded.largest, name)) {
    const { bits } = coded, largest = coded.largest[name];
    check(dtype === "U8", `the file has a tensor ${shown(name)} of type ${dtype}, expected codes`);
    checkShape(tensor, name, [rows, Math.ceil((columns * bits) / 8)]);
    check(isAbove0(largest, LARGEST), `the file has ${shown(largest)} as the largest of ${shown(name)}`);
    const Table = bits === 4 ? NibbleTable : LookupTable;
    return new Table(bytes, rows, columns, codedValues(bits, largest));
  }
  checkShape(tensor, name, shape);
  const numbers = finiteNumbers(tensor, name);
  if (dtype === "F16") return new LookupTable(numbers, rows, columns, halfValues());
  return new PlainTable(numbers, rows, columns);
}

function tensorOf(tensors, name) {
  check(tensors.has(name), `the file has no tensor ${shown(name)}`);
  return tensors.get(name);
}

function checkShape({ shape }, name, wanted) {
  const same = shape.join() === wanted.join();
  check(same, `the file has a tensor ${shown(name)} of shape [${shape}], expected [${wanted}]`);
}

const LARGEST = 3.4028234663852886e38; // of float32

/** The numbers of a tensor, all finite; in half precision their bits. */
function finiteNumbers({ dtype, bytes }, name) {
  check(dtype !== "U8", `the file has a tensor ${shown(name)} of type U8, expected floats`);
  const size = ITEM_BYTES[dtype], Numbers = { F64: Float64Array, F32: Float32Array, F16: Uint16Array }[dtype];
  const { buffer, byteOffset } = bytes.byteOffset % size ? bytes.slice() : bytes;
  const numbers = new Numbers(buffer, byteOffset, bytes.length / size);
  const isFinite = dtype === "F16" ? (x) => (x & 0x7c00) !== 0x7c00 : (x) => Math.abs(x) <= LARGEST;
  check(numbers.every(isFinite), `the file holds NaN or infinity in its tensor ${shown(name)}`);
  return dtype === "F64" ? Float32Array.from(numbers) : numbers;
}

// --- 3. the hash, version 1 -------------------------------------------------

const HASH_VERSION = 1;
const WORD_SEEDS = [0x243f6a88, 0x85a308d3];
const NGRAM_SEEDS = [0x13198a2e, 0x03707344];
const SUBWORD_SEEDS = [0xa4093822, 0x299f31d0];
const ID_ROUNDS = [0x082efa98, 0xec4e6c89, 0x452821e6, 0x38d01377];
const GOLDEN = 0x9e3779b9;

function fmix32(x) {
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return x ^ (x >>> 16);
}

function scramble(x) {
  x = Math.imul(x, 0xcc9e2d51);
  return Math.imul((x << 15) | (x >>> 17), 0x1b873593);
}

/** The state of MurmurHash3_x86_32 after one more block of four bytes. */
function absorb(h, block) {
  h ^= scramble(block);
  return (Math.imul((h << 13) | (h >>> 19), 5) + 0xe6546b64) | 0;
}

/** MurmurHash3_x86_32 of bytes[begin:end]. */
function murmur(bytes, begin, end, seed) {
  let h = seed, at = begin, tail = 0;
  for (; at + 4 <= end; at += 4) {
    h = absorb(h, bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24));
  }
  for (let shift = 0; at < end; at++, shift += 8) tail |= bytes[at] << shift;
  return fmix32(h ^ scramble(tail) ^ (end - begin));
}

/** The key of an integer id, both as two halves of 32 bits: low, high. */
function idKey([a, b], column = 0) {
  const salt = Math.imul(column, GOLDEN);
  a ^= fmix32((b + ID_ROUNDS[0] + salt) | 0);
  b ^= fmix32((a + ID_ROUNDS[1] + salt) | 0);
  a ^= fmix32((b + ID_ROUNDS[2] + salt) | 0);
  b ^= fmix32((a + ID_ROUNDS[3] + salt) | 0);
  return [a, b];
}

/** The seeds of the row and of the k buckets, from the halves of a model's seed. */
function deriveSeeds(halves, k) {
  const [a, b] = idKey(halves);
  return Int32Array.from({ length: 1 + k }, (_, i) => fmix32(fmix32((b + Math.imul(i, GOLDEN)) | 0) ^ a));
}

/** The seeds of the members of an ensemble, in halves. */
function memberSeeds(halves, count) {
  const [a, b] = idKey(halves);
  return Array.from({ length: count }, (_, i) => (i ? idKey([a ^ i, b]) : halves));
}

/** floor(h * n / 2^32), h unsigned, in two steps that a double holds exactly. */
function reduce(h, n) {
  return Math.floor(((h >>> 16) * n + Math.floor(((h & 0xffff) * n) / 65536)) / 65536);
}

function bucketHash(a, b, seed) {
  return fmix32((fmix32(a ^ seed) + (b ^ seed)) | 0);
}

/** The parts of the hash, for programs that need keys of their own. */
export const hash = {
  fmix32, absorb, murmur, idKey, deriveSeeds, memberSeeds, reduce, bucketHash,
  WORD_SEEDS, NGRAM_SEEDS, SUBWORD_SEEDS,
};

// --- 4. characters ----------------------------------------------------------
//
// The tables are those of one version of Unicode, which a model file names: what the JavaScript engine
// knows of Unicode does not matter. The generator explains their form.

// --- tables by `python -m hashembed.web.generate_tables`: do not edit
const UNICODE_VERSION = "14.0.0";
const WHITE_SPACE =
  "9.5 e.5 2s.1 q.1 4bj.1 1vj.b t.2 5.1 1b.1 334.1";
const PUNCTUATION =
  "x.f a.7 q.6 q.4 y.1 5.1 3.1 a.2 3.1 3.1 ji.1 8.1 cy.6 15.2 1f.1 1.1 2.1 2.1 18.2 k.2 1.2 d.1" +
  " 1.3 22.4 2u.1 17.e 6h.3 1i.f v.1 79.2 a.1 3w.1 3c.1 3d.1 au.1 c.1 a7.1 2i.1 a.2 4o.f 1.1 11" +
  ".4 1z.1 22.5 4.2 33.6 4r.1 h0.9 47.1 h9.1 18.2 26.3 1z.2 4d.3 1.3 11.b 8p.2 60.2 3k.7 1.6 4s" +
  ".7 s.2 3h.4 1n.5 1q.2 1s.8 b.1 n0.o 8.k 1.d 1.c u.2 e.2 hl.4 t.2 u5.e 27.2 v.a b7.m 1r.4 w.2" +
  " l7.4 1.2 34.1 3z.1b 1.w 2.c bn.3 4.a 2.c g.1 c.1 2q.1 2i.1 mwy.2 7h.3 2r.1 a.1 37.6 ak.4 2e" +
  ".2 14.3 1.1 1d.2 1b.1 2p.d g.2 3g.4 3i.2 g.2 6x.1 g2a.2 5s.a m.z 1.e 1.1 4.1 1.2 45.3 1.6 1." +
  "4 a.2 3.2 q.3 1.1 r.1 1.1 1.7 be.3 ik.1 1c.1 bi.1 kn.1 5j.1 v.1 7k.9 12.1 34.7 1u.7 2h.4 ls." +
  "1 4n.5 18.4 59.7 31.2 1.4 3i.4 1c.2 27.4 4.1 d.1 1.3 2g.6 2z.1 bl.5 a.2 1.1 2w.1 6y.n 2x.3 s" +
  ".d 24.1 3m.3 70.1 7c.3 4b.1 2k.8 2b.3 1.5 bi.5 16.2 hx.2 7a.1 vk.5 29o.2 bjv.2 3p.1 1t.5 8.1" +
  " nm.4 93.1 f5o.1 5wn.5 2xe.2";
const FOLDS =
  "1t.q.1.w 38.1.1.lj b.n.1.w o.7.1.w 14.o.2.1 1e.3.2.1 7.8.2.1 h.n.2.1 1a.1.1.-3d 1.3.2.1 6.1." +
  "1.-7g 2.1.1.5u 1.2.2.1 4.1.1.5q 1.1.1.1 2.2.1.5p 2.1.1.1 3.1.1.27 1.1.1.5m 1.1.1.5n 1.1.1.1 " +
  "2.1.1.5p 1.1.1.5r 2.1.1.5v 1.1.1.5t 1.1.1.1 4.1.1.5v 1.1.1.5x 2.1.1.5y 1.3.2.1 6.1.1.62 1.1." +
  "1.1 2.1.1.62 3.1.1.1 2.1.1.62 1.1.1.1 2.2.1.61 2.2.2.1 4.1.1.63 1.1.1.1 4.1.1.1 8.1.1.2 1.1." +
  "1.1 2.1.1.2 1.1.1.1 2.1.1.2 1.9.2.1 j.9.2.1 j.1.1.2 1.2.2.1 4.1.1.-2p 1.1.1.-1k 1.k.2.1 14.1" +
  ".1.-3m 2.9.2.1 o.1.1.8bv 1.1.1.1 2.1.1.-4j 1.1.1.8bs 3.1.1.1 2.1.1.-5f 1.1.1.1x 1.1.1.1z 1.5" +
  ".2.1 73.1.1.38 17.2.2.1 6.1.1.1 9.1.1.38 7.1.1.12 2.3.1.11 4.1.1.1s 2.2.1.1r 3.h.1.w i.9.1.w" +
  " v.1.1.1 d.1.1.8 1.1.1.-u 1.1.1.-p 4.1.1.-f 1.1.1.-m 2.c.2.1 o.1.1.-1i 1.1.1.-1c 3.1.1.-1o 1" +
  ".1.1.-1s 2.1.1.1 2.1.1.-7 1.1.1.1 3.3.1.-3m 3.g.1.28 g.w.1.w 28.h.2.1 16.r.2.1 1i.1.1.f 1.7." +
  "2.1 f.1c.2.1 2p.12.1.1c 29b.12.1.5ls 13.1.1.5ls 6.1.1.5ls mj.6.1.-8 1oo.1.1.-4su 1.1.1.-4st " +
  "1.1.1.-4sk 1.2.1.-4si 2.1.1.-4sj 1.1.1.-4sc 1.1.1.-4ro 1.1.1.r7n 8.17.1.-2bk 19.3.1.-2bk 8z." +
  "23.2.1 4b.1.1.-1m 5.1c.2.1 2w.8.1.-8 g.6.1.-8 g.8.1.-8 g.8.1.-8 g.6.1.-8 h.4.2.-8 f.8.1.-8 2" +
  "8.2.1.-8 2.2.1.-22 4.1.1.-5j9 a.4.1.-2e g.2.1.-8 2.2.1.-2s e.2.1.-8 2.2.1.-34 2.1.1.-7 c.2.1" +
  ".-3k 2.2.1.-3i 8c.1.1.-5st 4.1.1.-6gv 1.1.1.-6di 7.1.1.s 1a.g.1.g z.1.1.1 mr.q.1.q 1fu.1c.1." +
  "1c 2o.1.1.1 2.1.1.-8af 1.1.1.-2xy 1.1.1.-89z 3.3.2.1 6.1.1.-8bg 1.1.1.-8al 1.1.1.-8bj 1.1.1." +
  "-8bi 2.1.1.1 3.1.1.1 9.2.1.-8cf 2.1e.2.1 2z.2.2.1 7.1.1.1 nym.n.2.1 1s.e.2.1 4i.7.2.1 g.v.2." +
  "1 1z.2.2.1 4.1.1.-r9g 1.5.2.1 d.1.1.1 2.1.1.-wmg 3.2.2.1 6.a.2.1 k.1.1.-wn8 1.1.1.-wnj 1.1.1" +
  ".-wnf 1.1.1.-wn5 1.1.1.-wn8 2.1.1.-wlu 1.1.1.-wmi 1.1.1.-wlx 1.1.1.ps 1.8.2.1 g.1.1.-1c 1.1." +
  "1.-wn7 1.1.1.-raw 1.2.2.1 9.1.1.1 6.2.2.1 v.1.1.1 or.28.1.-tzk gj5.q.1.w yn.14.1.14 4w.10.1." +
  "14 5c.b.1.13 c.f.1.13 g.7.1.13 8.2.1.13 1d8.1f.1.1s 2e8.w.1.w gww.w.1.w o8w.y.1.y";
const EXPANSIONS =
  "67.37.37 8g.2x.lj 95.jg.32 ds.2y.lo pc.qh.lk.ld q8.qt.lk.ld 13b.12d.136 61i.2w.mp 61j.38.lk " +
  "61k.3b.lm 61l.3d.lm 61m.2p.ji 61q.37.37 66o.qt.lv 66q.qt.lv.lc 66s.qt.lv.ld 66u.qt.lv.n6 680" +
  ".64g.qh 681.64h.qh 682.64i.qh 683.64j.qh 684.64k.qh 685.64l.qh 686.64m.qh 687.64n.qh 688.64g" +
  ".qh 689.64h.qh 68a.64i.qh 68b.64j.qh 68c.64k.qh 68d.64l.qh 68e.64m.qh 68f.64n.qh 68g.65c.qh " +
  "68h.65d.qh 68i.65e.qh 68j.65f.qh 68k.65g.qh 68l.65h.qh 68m.65i.qh 68n.65j.qh 68o.65c.qh 68p." +
  "65d.qh 68q.65e.qh 68r.65f.qh 68s.65g.qh 68t.65h.qh 68u.65i.qh 68v.65j.qh 68w.674.qh 68x.675." +
  "qh 68y.676.qh 68z.677.qh 690.678.qh 691.679.qh 692.67a.qh 693.67b.qh 694.674.qh 695.675.qh 6" +
  "96.676.qh 697.677.qh 698.678.qh 699.679.qh 69a.67a.qh 69b.67b.qh 69e.67k.qh 69f.q9.qh 69g.q4" +
  ".qh 69i.q9.n6 69j.q9.n6.qh 69o.q9.qh 69u.67o.qh 69v.qf.qh 69w.q6.qh 69y.qf.n6 69z.qf.n6.qh 6" +
  "a4.qf.qh 6aa.qh.lk.lc 6ab.qh.lk.ld 6ae.qh.n6 6af.qh.lk.n6 6aq.qt.lk.lc 6ar.qt.lk.ld 6as.qp.l" +
  "v 6au.qt.n6 6av.qt.lk.n6 6b6.67w.qh 6b7.qx.qh 6b8.r2.qh 6ba.qx.n6 6bb.qx.n6.qh 6bg.qx.qh 1dk" +
  "w.2u.2u 1dkx.2u.2x 1dky.2u.30 1dkz.2u.2u.2x 1dl0.2u.2u.30 1dl1.37.38 1dl2.37.38 1dlf.12s.12u" +
  " 1dlg.12s.12d 1dlh.12s.12j 1dli.132.12u 1dlj.12s.12l";
// --- end of the tables

const SPACE = 1, MARK = 2; // kinds of characters; 0 is part of a word
const CODE_POINTS = 0x110000;

let characters = null;

/** What is known of all characters, see `entryOf`; and the expansions of some. */
function characterTable() {
  if (characters) return characters;
  const entries = new Map(), expansions = [];
  const numbers = (text) => text.split(" ").map((run) => run.split(".").map((n) => parseInt(n, 36)));
  for (const [runs, kind] of [[WHITE_SPACE, SPACE], [PUNCTUATION, MARK]]) {
    let at = 0;
    for (const [gap, count] of numbers(runs)) {
      at += gap;
      for (const end = at + count; at < end; at++) entries.set(at, kind);
    }
  }
  let first = 0;
  for (const [gap, count, distance, added] of numbers(FOLDS)) {
    first += gap;
    for (let i = 0; i < count; i++) entries.set(first + i * distance, (first + i * distance + added) << 2);
  }
  for (const [point, ...becomes] of numbers(EXPANSIONS)) {
    entries.set(point, (CODE_POINTS + expansions.length) << 2);
    expansions.push(becomes);
  }
  characters = { ...inPages(entries), expansions };
  return characters;
}

/** A sparse table as pages of 256 entries; page 0 is empty. */
function inPages(entries) {
  const pages = new Uint8Array(CODE_POINTS >> 8);
  let count = 1;
  for (const point of entries.keys()) if (!pages[point >> 8]) pages[point >> 8] = count++;
  const cells = new Int32Array(256 * count);
  for (const [point, entry] of entries) cells[(pages[point >> 8] << 8) | (point & 255)] = entry;
  return { pages, cells };
}

/** The kind of a character in the low two bits. Above them: what it folds to, 0 for itself, or
 *  CODE_POINTS plus the number of an expansion. */
function entryOf({ pages, cells }, point) {
  return cells[(pages[point >> 8] << 8) | (point & 255)];
}

/** The code point at text[i]; a surrogate without its partner counts as U+FFFD. */
function codePointAt(text, i) {
  const unit = text.charCodeAt(i);
  if ((unit & 0xf800) !== 0xd800) return unit;
  if (unit < 0xdc00 && i + 1 < text.length) {
    const next = text.charCodeAt(i + 1);
    if ((next & 0xfc00) === 0xdc00) return 0x10000 + ((unit & 0x3ff) << 10) + (next & 0x3ff);
  }
  return 0xfffd;
}

const unitsOf = (point) => (point > 0xffff ? 2 : 1); // of UTF-16

// --- 5. text to words, n-grams and keys -------------------------------------

const UTF8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** The characters of '<' + a word + '>', folded, as UTF-8. */
class FoldedWord {
  constructor() {
    this.table = characterTable();
    this.reserve(64);
  }

  /** Space for a word of this many UTF-16 units: one becomes at most three characters. */
  reserve(units) {
    this.bytes = new Uint8Array(9 * units + 2);
    this.offsets = new Int32Array(3 * units + 3); // where in `bytes` each character begins; the end
    this.origins = new Int32Array(3 * units + 2); // where in the text each character comes from
    this.units = units;
  }

  fold(text, start, end, lowercase) {
    if (end - start > this.units) this.reserve(2 * (end - start));
    const { table } = this;
    this.size = this.count = 0;
    this.append(0x3c, start);
    for (let i = start; i < end; ) {
      const point = codePointAt(text, i), folded = lowercase ? entryOf(table, point) >> 2 : 0;
      if (folded < CODE_POINTS) this.append(folded || point, i);
      else for (const part of table.expansions[folded - CODE_POINTS]) this.append(part, i);
      i += unitsOf(point);
    }
    this.append(0x3e, end);
  }

  append(point, origin) {
    const { bytes, offsets } = this;
    let size = this.size;
    this.origins[this.count++] = origin;
    if (point < 0x80) {
      bytes[size++] = point;
    } else {
      if (point < 0x800) {
        bytes[size++] = 0xc0 | (point >> 6);
      } else {
        if (point < 0x10000) bytes[size++] = 0xe0 | (point >> 12);
        else bytes[size++] = 0xf0 | (point >> 18), bytes[size++] = 0x80 | ((point >> 12) & 63);
        bytes[size++] = 0x80 | ((point >> 6) & 63);
      }
      bytes[size++] = 0x80 | (point & 63);
    }
    offsets[this.count] = this.size = size; // offsets[0] is 0
  }

  /** A lane of the key of the characters begin..end-1. */
  lane(begin, end, seed) {
    return murmur(this.bytes, this.offsets[begin], this.offsets[end], seed);
  }

  text(begin, end) {
    return UTF8.decode(this.bytes.subarray(this.offsets[begin], this.offsets[end]));
  }
}

/** The array, or a longer one with the same content. */
function withSpace(array, size) {
  if (size <= array.length) return array;
  const longer = new Int32Array(2 * size);
  longer.set(array);
  return longer;
}

const MOST_KEPT = 1 << 20; // arrays that are longer are not kept for the next text

/** Where the words of a text are, and the keys of its n-grams: lanes a and b. */
class TextReader {
  constructor({ ngrams, subwords, lowercase, punctuation, repeats }) {
    Object.assign(this, { ngrams, subwords, lowercase, keep: punctuation === "keep", repeats });
    this.table = characterTable();
    this.makeSpace();
  }

  makeSpace() {
    for (const name of ["starts", "ends", "wordA", "wordB", "a", "b", "firsts", "times"]) {
      this[name] = new Int32Array(1024);
    }
    this.word = new FoldedWord();
  }

  /** Find the words, and the keys in the order of docs/guides/text.md. `found` gets their n-grams. */
  read(text, found = null) {
    if (this.a.length > MOST_KEPT || this.word.units > MOST_KEPT) this.makeSpace();
    this.findWords(text);
    this.hashWords(text);
    this.count = 0;
    const words = found && this.wordsOf(text);
    for (let i = 0; i < this.words; i++) {
      this.addNgrams(i, words, found);
      if (this.subwords) this.addSubwords(text, i, found);
    }
    if (this.repeats !== "all") this.dropRepeats(found);
  }

  /** Leave out the keys that do not count: of equal ones the third, fifth, ..., or all but the first. */
  dropRepeats(found) {
    const { a, b, count } = this;
    let size = 1024, kept = 0;
    while (size < 2 * count) size *= 2;
    this.firsts = withSpace(this.firsts, size).fill(0, 0, size);
    this.times = withSpace(this.times, size).fill(0, 0, size);
    const { firsts, times } = this; // a hash table: where the first of equal keys is, plus 1; how many there are
    for (let i = 0; i < count; i++) {
      let slot = a[i] & (size - 1);
      for (let own; (own = firsts[slot] - 1) >= 0 && (a[own] !== a[i] || b[own] !== b[i]); ) {
        slot = (slot + 1) & (size - 1);
      }
      const time = ++times[slot];
      if (time > 1 && (this.repeats === "once" || time & (time - 1))) continue;
      if (time === 1) firsts[slot] = kept + 1;
      if (found) found[kept] = found[i];
      a[kept] = a[i];
      b[kept++] = b[i];
    }
    this.count = kept;
    if (found) found.length = kept;
  }

  findWords(text) {
    const { table, keep } = this;
    let before = SPACE, words = 0;
    for (let i = 0; i < text.length; ) {
      const point = codePointAt(text, i);
      let kind = entryOf(table, point) & 3;
      if (kind === MARK && !keep) kind = SPACE;
      if (kind !== before) {
        if (before !== SPACE) this.ends[words++] = i;
        if (words === this.starts.length) this.makeSpaceForWords(words + 1);
        if (kind !== SPACE) this.starts[words] = i;
        before = kind;
      }
      i += unitsOf(point);
    }
    if (before !== SPACE) this.ends[words++] = text.length;
    this.words = words;
  }

  makeSpaceForWords(count) {
    for (const name of ["starts", "ends", "wordA", "wordB"]) this[name] = withSpace(this[name], count);
  }

  hashWords(text) {
    const { word, starts, ends, lowercase } = this;
    for (let i = 0; i < this.words; i++) {
      word.fold(text, starts[i], ends[i], lowercase);
      this.wordA[i] = word.lane(1, word.count - 1, WORD_SEEDS[0]);
      this.wordB[i] = word.lane(1, word.count - 1, WORD_SEEDS[1]);
    }
  }

  /** The words as they are hashed, with their places in the text. */
  wordsOf(text) {
    this.findWords(text);
    return Array.from({ length: this.words }, (_, i) => {
      const start = this.starts[i], end = this.ends[i];
      this.word.fold(text, start, end, this.lowercase);
      return { text: this.word.text(1, this.word.count - 1), start, end };
    });
  }

  /** The n-grams that begin at word i. */
  addNgrams(i, words, found) {
    const { wordA, wordB, ngrams: [lowest, highest] } = this;
    const most = Math.min(highest, this.words - i);
    let a = absorb(NGRAM_SEEDS[0], wordA[i]), b = absorb(NGRAM_SEEDS[1], wordB[i]);
    for (let n = 1; n <= most; n++) {
      if (n > 1) a = absorb(a, wordA[i + n - 1]), b = absorb(b, wordB[i + n - 1]);
      if (n < lowest) continue;
      if (n === 1) this.add(wordA[i], wordB[i]);
      else this.add(fmix32(a ^ (4 * n)), fmix32(b ^ (4 * n)));
      if (found) {
        const own = words.slice(i, i + n), text = own.map((word) => word.text).join(" ");
        found.push({ kind: "word", text, start: own[0].start, end: own[n - 1].end, word: i, words: n });
      }
    }
  }

  /** The character n-grams of word i, without '<' and '>' alone. */
  addSubwords(text, i, found) {
    const { word, subwords: [lowest, highest] } = this;
    word.fold(text, this.starts[i], this.ends[i], this.lowercase);
    const last = word.count - 1;
    for (let begin = 0; begin <= last; begin++) {
      const first = Math.max(lowest, begin > 0 && begin < last ? 1 : 2);
      for (let end = begin + first; end <= Math.min(begin + highest, last + 1); end++) {
        this.add(word.lane(begin, end, SUBWORD_SEEDS[0]), word.lane(begin, end, SUBWORD_SEEDS[1]));
        if (found) {
          const start = word.origins[Math.max(begin, 1)], final = word.origins[Math.min(end, last) - 1];
          const stop = final + unitsOf(codePointAt(text, final));
          const own = word.text(begin, end);
          found.push({ kind: "characters", text: own, start, end: stop, word: i, words: 1 });
        }
      }
    }
  }

  add(a, b) {
    if (this.count === this.a.length) {
      this.a = withSpace(this.a, this.count + 1);
      this.b = withSpace(this.b, this.count + 1);
    }
    this.a[this.count] = a;
    this.b[this.count++] = b;
  }
}

// --- 6. keys to logits and probabilities ------------------------------------

const LANES = 16; // partial sums of an inner product, as in Python: the same bits

/** One model: the vectors of keys, their sum, and a linear layer. */
class Member {
  constructor(open, { K, B, k, d, indexing, importance }, classes, seed) {
    Object.assign(this, { K, B, k, d, independent: indexing === "independent" });
    this.padded = Math.ceil(d / LANES) * LANES;
    this.E = open("E", [B, d]);
    this.P = importance ? open("P", [K, k]) : null; // all weights are 1
    this.W = inOneArray(open("W", [classes, d]), this.padded);
    this.bias = inOneArray(open("bias", [classes]), 1);
    this.seeds = deriveSeeds(seed, k);
    this.weights = new Float32Array(k + 1).fill(1);
    this.components = new Float32Array(k * d + 1);
    this.sum = new Float32Array(this.padded);
    this.lanes = new Float32Array(LANES);
    this.parameters = (importance ? B * d + K * k : (this.E.count ?? B) * d) + classes * (d + 1);
  }

  /** The logits of keys, to `out`: in float32, in the order of Python's sums. */
  score({ a, b, count }, out) {
    const { k, d, weights, components, sum } = this;
    sum.fill(0);
    for (let t = 0; t < count; t++) {
      this.gather(a[t], b[t]);
      for (let c = 0; c < d; c++) {
        let vector = Math.fround(weights[0] * components[c]);
        for (let i = 1; i < k; i++) vector = Math.fround(vector + Math.fround(weights[i] * components[i * d + c]));
        sum[c] += vector;
      }
    }
    for (let c = 0; c < out.length; c++) out[c] = Math.fround(this.bias[c] + this.dot(sum, c));
  }

  /** The vector of a key, to `out`, in float64: for explanations. */
  embed(a, b, out) {
    const { k, d, weights, components } = this;
    this.gather(a, b);
    out.fill(0);
    for (let i = 0; i < k * d; i++) out[i % d] += weights[Math.floor(i / d)] * components[i];
  }

  /** The importance weights of a key, and the rows of E that they weight. */
  gather(a, b) {
    const { K, B, k, d, seeds } = this;
    const row = reduce(fmix32(a ^ seeds[0]), K);
    this.P?.read(row, this.weights, 0);
    if (!this.independent) a = row, b = 0;
    for (let i = 0; i < k; i++) {
      this.E.read(reduce(bucketHash(a, b, seeds[i + 1]), B), this.components, i * d);
    }
  }

  /** The inner product of the sum and row c of W, in float32. */
  dot(sum, c) {
    const { W, lanes, padded } = this, at = c * padded;
    for (let i = 0; i < LANES; i++) lanes[i] = sum[i] * W[at + i];
    for (let i = LANES; i < padded; i++) lanes[i % LANES] += Math.fround(sum[i] * W[at + i]);
    for (let half = LANES / 2; half >= 1; half /= 2) {
      for (let i = 0; i < half; i++) lanes[i] += lanes[i + half];
    }
    return lanes[0];
  }

  /** The logits of a vector, in float64. */
  preciseLogits(vector) {
    return Float64Array.from(this.bias, (bias, c) => bias + product(vector, this.W, c * this.padded));
  }
}

/** A small table as one array, with zeros at the end of its rows. */
function inOneArray(table, width) {
  const out = new Float32Array(table.rows * width);
  for (let row = 0; row < table.rows; row++) table.read(row, out, row * width);
  return out;
}

/** The inner product of a vector and a part of an array, in float64. */
function product(vector, numbers, at) {
  let sum = 0;
  for (let c = 0; c < vector.length; c++) sum += vector[c] * numbers[at + c];
  return sum;
}

const softplus = (z) => Math.max(z, 0) + Math.log(1 + Math.exp(-Math.abs(z)));

function logSumExp(z) {
  const top = z.reduce((most, value) => Math.max(most, value), -Infinity);
  return Math.log(sumOf(z.map((value) => Math.exp(value - top)))) + top;
}

/** Logits of the members -> logits of the ensemble, whose members vote with logits or probabilities. */
function combine(logits, votes, multilabel) {
  const members = logits.length;
  if (members === 1 || votes === "logits") {
    return logits[0].map((_, c) => logits.reduce((sum, z) => sum + z[c], 0) / members);
  }
  const sums = multilabel ? [] : logits.map(logSumExp);
  return logits[0].map((_, c) => {
    if (!multilabel) return logSumExp(logits.map((z, m) => z[c] - sums[m])) - Math.log(members);
    return logSumExp(logits.map((z) => -softplus(-z[c]))) - logSumExp(logits.map((z) => -softplus(z[c])));
  });
}

/** Softmax, or sigmoids where a text may have several labels. */
function toProbabilities(logits, multilabel) {
  if (multilabel) {
    return logits.map((z) => (z >= 0 ? 1 : Math.exp(z)) / (1 + Math.exp(-Math.abs(z))));
  }
  const top = logits.reduce((most, z) => Math.max(most, z), -Infinity);
  const powers = logits.map((z) => Math.exp(z - top)), total = sumOf(powers);
  return powers.map((power) => power / total);
}

/** The answer for a text without n-grams: the class frequencies of the training data. */
function priorOf(counts, texts, multilabel) {
  const total = multilabel ? Math.max(texts, 1) : sumOf(counts);
  const probabilities = Float64Array.from(counts, (n) => Math.fround(total ? n / total : 1 / counts.length));
  const logits = probabilities.map((p) => {
    const clipped = Math.min(Math.max(p, 1e-6), 1 - 1e-6);
    return Math.fround(Math.log(multilabel ? clipped / (1 - clipped) : clipped));
  });
  return { logits, probabilities };
}

// --- 7. explanations --------------------------------------------------------

/** What each key adds to the logit of class c, and to the logits on average: exact, in float64. */
function contributions(members, { a, b, count }, c) {
  const own = new Float64Array(count), mean = new Float64Array(count), logits = [], biases = [];
  for (const member of members) {
    const { d, W, bias, padded } = member;
    const average = new Float64Array(d), vector = new Float64Array(d), sum = new Float64Array(d);
    for (let row = 0; row < bias.length; row++) {
      for (let i = 0; i < d; i++) average[i] += W[row * padded + i] / bias.length;
    }
    for (let t = 0; t < count; t++) {
      member.embed(a[t], b[t], vector);
      own[t] += product(vector, W, c * padded) / members.length;
      mean[t] += product(vector, average, 0) / members.length;
      for (let i = 0; i < d; i++) sum[i] += vector[i];
    }
    logits.push(member.preciseLogits(sum));
    biases.push(Float64Array.from(bias));
  }
  return { own, mean, logits: combine(logits, "logits"), bias: combine(biases, "logits") };
}

/** The same for an ensemble that averages probabilities: what the logits lose without a key. */
function occlusion(members, { a, b, count }, c, multilabel) {
  const sums = members.map(({ d }) => new Float64Array(d)), vectors = sums.map((sum) => sum.slice());
  const move = (t, sign) => members.forEach((member, m) => {
    member.embed(a[t], b[t], vectors[m]);
    for (let i = 0; i < member.d; i++) sums[m][i] += sign * vectors[m][i];
  });
  const scores = () => combine(members.map((member, m) => member.preciseLogits(sums[m])), "probabilities", multilabel);
  const bias = scores();
  for (let t = 0; t < count; t++) move(t, 1);
  const logits = scores(), own = new Float64Array(count), mean = new Float64Array(count);
  for (let t = 0; t < count; t++) {
    move(t, -1);
    const without = scores();
    move(t, 1);
    own[t] = logits[c] - without[c];
    mean[t] = (sumOf(logits) - sumOf(without)) / logits.length;
  }
  return { own, mean, logits, bias };
}

/** Occurrences of the same n-gram, added up; the most evidence first. */
function groupNgrams(ngrams, own, evidence) {
  const terms = new Map();
  ngrams.forEach(({ text, kind, start, end }, t) => {
    const name = `${kind} ${text}`;
    if (!terms.has(name)) terms.set(name, { text, kind, count: 0, spans: [], contribution: 0, evidence: 0 });
    const term = terms.get(name);
    term.count++;
    term.spans.push([start, end]);
    term.contribution += own[t];
    term.evidence += evidence[t];
  });
  return [...terms.values()].sort((x, y) => Math.abs(y.evidence) - Math.abs(x.evidence));
}

/** The words, each with its share of the n-grams that it is part of. */
function shareAmongWords(words, ngrams, own, evidence) {
  const shares = words.map(({ start, end }) => ({ start, end, contribution: 0, evidence: 0 }));
  ngrams.forEach(({ word, words: count }, t) => {
    for (const share of shares.slice(word, word + count)) {
      share.contribution += own[t] / count;
      share.evidence += evidence[t] / count;
    }
  });
  return shares;
}

// --- 8. the header of a model file; Model, load -----------------------------

const FORMAT_VERSION = 2; // 1 without packed tables
const KIND = "TextClassifier";

/** Refuse a field of the header. */
function need(good, name, found) {
  check(good, `the file has ${shown(found)} as ${name}, which this version does not understand`);
}

/** Refuse what a newer version may have added. */
function needNoOther(fields, where) {
  const [name] = Object.keys(fields);
  check(name === undefined, `the file has an unknown field ${shown(name)} in ${where}: upgrade hashembed`);
}

/** The header that Python wrote, and the same with all numbers as the text that they are. */
function readHeader(text) {
  const complaint = "the file is damaged: its header is not JSON";
  // Python also writes NaN, and whole numbers that JavaScript cannot hold.
  const token = /"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)|-?\d[\d.eE+-]*/g;
  const plain = text.replace(token, (found) => (/^-?[NI]/.test(found) ? "null" : found));
  const header = parseJson(plain, complaint);
  const exact = parseJson(plain.replace(token, (found) => (found[0] === '"' ? found : `"${found}"`)), complaint);
  check(isObject(header) && isObject(header.meta), "the file is damaged: its header is not complete");
  const { format, hash: version, kind } = header;
  check(
    isWhole(format, 0, FORMAT_VERSION),
    `the file has format ${shown(format)}, but this version of hashembed reads up to ${FORMAT_VERSION}: upgrade it`,
  );
  check(version === HASH_VERSION, `the file was made with hash version ${shown(version)}, this is ${HASH_VERSION}`);
  check(kind === KIND, `the file holds a ${shown(kind)}, not a ${KIND}`);
  return { ...header, exact: exact.meta };
}

/** How text becomes keys. */
function readText(saved) {
  need(isObject(saved), "text", saved);
  const { ngrams = [1, 2], lowercase = true, subwords = null, punctuation = "drop", ...rest } = saved;
  const { unicode = UNICODE_VERSION, repeats = "all", ...other } = rest;
  check(
    unicode === UNICODE_VERSION,
    `the file was made for Unicode ${shown(unicode)}, but this version of hashembed has ${UNICODE_VERSION}`,
  );
  needNoOther(other, "text");
  const areOrders = (x, most) => Array.isArray(x) && x.length === 2 && isWhole(x[0], 1, x[1]) && isWhole(x[1], 1, most);
  need(areOrders(ngrams, 9), "ngrams", ngrams);
  need(subwords === null || areOrders(subwords, 32), "subwords", subwords);
  need(typeof lowercase === "boolean", "lowercase", lowercase);
  need(["drop", "keep"].includes(punctuation), "punctuation", punctuation);
  need(["all", "damp", "once"].includes(repeats), "repeats", repeats);
  return { ngrams, subwords, lowercase, punctuation, repeats };
}

/** The sizes of the model, and what it is. */
function readPlan(engine, exact) {
  need(isObject(engine) && isObject(engine.spec), "engine", engine);
  // Files of earlier versions have no votes, and fields of hidden layers.
  const { spec, embedding_dim: d, members = 1, multilabel = false, votes = "probabilities", ...rest } = engine;
  const { hidden_layers: hidden = [], batch_norm: ignored, importance = true, ...other } = rest;
  check(hidden.length === 0, "the file has a model with hidden layers, which hashembed no longer has");
  needNoOther(other, "engine");
  const { num_embeddings: K, num_buckets: B, num_hashes: k = 2, indexing = "independent", seed = 0, ...more } = spec;
  needNoOther(more, "spec");
  need(isWhole(K, 1, 2 ** 32), "num_embeddings", K);
  need(isWhole(B, 1, 2 ** 32), "num_buckets", B);
  need(isWhole(k, 1, Math.min(64, B)), "num_hashes", k);
  need(isWhole(d, 1, 16384), "embedding_dim", d);
  need(isWhole(members, 1, 10000), "members", members);
  need(typeof multilabel === "boolean", "multilabel", multilabel);
  need(typeof importance === "boolean", "importance", importance);
  need(["logits", "probabilities"].includes(votes), "votes", votes);
  need(["independent", "shared"].includes(indexing), "indexing of text", indexing);
  need(isWhole(seed, -(2 ** 63), 2 ** 63), "seed", seed);
  return { K, B, k, d, members, multilabel, votes, indexing, importance, seed: exact.spec.seed ?? "0" };
}

/** The bits of coded tables, and the largest number of each; null if there are none. */
function readCoding(coded) {
  if (!coded || (isObject(coded) && !Object.keys(coded).length)) return null;
  const { bits, largest, ...other } = coded;
  check(bits === 8 || bits === 4, `the file has tables of ${shown(bits)} bits, expected 8 or 4`);
  needNoOther(other, "coded");
  need(isObject(largest), "largest", largest);
  return { bits, largest };
}

/** Replace the tensors of packed tables by the tables. packed: how many rows of each are not zero. */
async function unpackAll(tensors, packed, { K, B, k, d, members, importance }) {
  need(isObject(packed), "packed", packed);
  const unknown = { ...packed }, found = [];
  for (let i = 0; i < members; i++) {
    for (const [own, shape] of [["E", [B, d]], ...(importance ? [["P", [K, k]]] : [])]) {
      const name = prefixOf(i, members) + own;
      if (Object.hasOwn(packed, name)) found.push([name, shape]);
      delete unknown[name];
    }
  }
  needNoOther(unknown, "packed");
  const limit = (all, most, what) =>
    check(!(all > most), `the file has packed tables of ${all} ${what}, expected at most ${most}`);
  limit(sumOf(found.map(([, [rows]]) => rows)), 2 ** 24, "rows");
  // Without importance weights, rows of zeros take no memory.
  limit(sumOf(found.map(([name, [rows, d]]) => (importance ? rows : packed[name]) * d)), 2 ** 26, "numbers");
  for (const [name, shape] of found) {
    check(!tensors.has(name), `the file has a table ${shown(name)} that is packed, and one that is not`);
    tensors.set(name, await unpack(tensors, name, shape, packed[name]));
  }
}

/** The labels as Python's str() writes them, and as values. */
function readLabels(listed, exact) {
  const kinds = new Set(Array.isArray(listed) ? listed.map((label) => typeof label) : [null]);
  const known = [...kinds].every((kind) => ["string", "number", "boolean"].includes(kind));
  check(known && kinds.size <= 1, "the file has labels that are not all strings or all numbers");
  check(new Set(exact).size === listed.length, "the file has the same label twice");
  const asText = (label, i) => (typeof label === "boolean" ? (label ? "True" : "False") : exact[i]);
  const isLarge = (label, i) => Number.isInteger(label) && !Number.isSafeInteger(label) && !/[.e]/.test(exact[i]);
  return {
    labels: listed.map(asText),
    classes: listed.map((label, i) => (isLarge(label, i) ? BigInt(exact[i]) : label)),
  };
}

/** The probability above which a label is given. */
function readThreshold(calibration = null) {
  if (calibration === null) return 0.5;
  need(isAbove0(calibration.threshold, 1), "threshold", calibration.threshold);
  return calibration.threshold;
}

const prefixOf = (member, members) => (members === 1 ? "" : `${member}.`);

/** Refuse tensors that no member has. The accumulators of training are not needed here. */
function checkNames(tensors, { members, importance }, forTraining) {
  const own = new RegExp(`^(E|${importance ? "P|" : ""}W|bias)${forTraining ? "(_square)?" : ""}$`);
  for (const name of tensors.keys()) {
    const member = members === 1 ? 0 : parseInt(name, 10), prefix = prefixOf(member, members);
    const known = member < members && name.startsWith(prefix) && own.test(name.slice(prefix.length));
    check(known, `the file has an unknown tensor ${shown(name)}`);
  }
}

/** Low and high 32 bits of a whole number in decimal digits. */
function halvesOf(digits) {
  const bits = BigInt.asUintN(64, BigInt(digits));
  return [Number(bits & 0xffffffffn) | 0, Number(bits >> 32n) | 0];
}

/** Turns any error of code that interprets a file into a ModelFileError. */
async function understanding(interpret) {
  try {
    return await interpret();
  } catch (error) {
    if (error instanceof ModelFileError) throw error;
    throw new ModelFileError(`the file cannot be understood: ${error.message}`);
  }
}

/** All that a model file says, checked. */
async function readModel(file) {
  const { metadata, tensors } = readTensors(file);
  const { format, hash: version, meta, exact } = readHeader(metadata.hashembed);
  verify(metadata, tensors);
  const text = readText(meta.text), plan = readPlan(meta.engine, exact.engine), coded = readCoding(meta.coded);
  const names = readLabels(meta.classes, exact.classes), count = names.labels.length;
  const { class_counts, texts_seen, calibration = null, history = null, label_form, packed = null } = meta;
  const areCounts = Array.isArray(class_counts) && class_counts.every((n) => isWhole(n, 0, 2 ** 62));
  need(areCounts && class_counts.length === count, "class_counts", class_counts);
  need(isWhole(texts_seen, 0, 2 ** 62), "texts_seen", texts_seen);
  need((plan.multilabel ? ["lists", "matrix"] : ["single"]).includes(label_form), "label_form", label_form);
  const for_training = meta.for_training === true;
  check(!packed || !for_training, "the file has packed tables and a training state, which exclude each other");
  if (packed !== null) await unpackAll(tensors, packed, plan);
  checkNames(tensors, plan, for_training);
  const members = memberSeeds(halvesOf(plan.seed), plan.members).map((seed, i) => {
    const prefix = prefixOf(i, plan.members);
    return new Member((name, shape) => openTable(tensors, prefix + name, shape, coded), plan, count, seed);
  });
  const { K, B, k, d, indexing, seed, votes, multilabel } = plan;
  const info = {
    format, hash: version, unicode: UNICODE_VERSION, bytes: file.length,
    parameters: sumOf(members.map((member) => member.parameters)), packed,
    bits: coded ? coded.bits : 8 * (ITEM_BYTES[tensors.get(`${prefixOf(0, plan.members)}E`).dtype] ?? 1),
    sizes: { K, B, k, d, members: plan.members }, indexing, seed, votes, ...text,
    texts_seen, class_counts, calibration, history, for_training,
  };
  const threshold = multilabel ? readThreshold(calibration) : null;
  return { ...names, members, votes, multilabel, threshold, info };
}

/** A trained classifier. `load` makes one. */
class Model {
  #members; #votes; #reader; #prior;

  constructor({ labels, classes, members, votes, multilabel, threshold, info }) {
    Object.assign(this, { labels, classes, multilabel, threshold, info });
    this.#members = members;
    this.#votes = votes;
    this.#reader = new TextReader(info);
    this.#prior = priorOf(info.class_counts, info.texts_seen, multilabel);
  }

  /** Labels with their probabilities, the likeliest first; `top` is the most labels to return. */
  predict(text, { top } = {}) {
    if (top !== undefined && !isWhole(top, 1, Infinity)) {
      throw new RangeError(`top must be a whole number above 0, found ${top}`);
    }
    const { logits: z, probabilities: p } = this.#answer(text);
    const order = Array.from(z.keys()).sort((x, y) => z[y] - z[x] || p[y] - p[x] || x - y);
    return order.slice(0, top).map((c) => ({ label: this.labels[c], probability: p[c] }));
  }

  /** `predict` of each text. */
  predictAll(texts, options) {
    return Array.from(texts, (text) => this.predict(text, options));
  }

  /** In the order of `labels`. */
  probabilities(text) {
    return this.#answer(text).probabilities;
  }

  /** In the order of `labels`. */
  logits(text) {
    return this.#answer(text).logits;
  }

  /** The words of a text as the model sees them. */
  words(text) {
    return this.#reader.wordsOf(checkText(text));
  }

  /** How much each n-gram of a text adds to the logit of a label; by default of the likeliest. */
  explain(text, label = this.predict(text, { top: 1 })[0]?.label) {
    const c = this.#classOf(label), ngrams = [], { multilabel } = this;
    this.#reader.read(checkText(text), ngrams);
    const exact = this.#members.length === 1 || this.#votes === "logits";
    const found = exact
      ? contributions(this.#members, this.#reader, c)
      : occlusion(this.#members, this.#reader, c, multilabel);
    const { own, mean, logits, bias } = ngrams.length
      ? found
      : { ...found, logits: this.#prior.logits, bias: this.#prior.logits };
    const relative = !multilabel && logits.length > 1; // a softmax sees only differences between labels
    const evidence = relative ? own.map((value, t) => value - mean[t]) : own;
    return {
      label: this.labels[c],
      probability: toProbabilities(logits, multilabel)[c],
      logit: logits[c],
      bias: bias[c],
      exact,
      unexplained: logits[c] - bias[c] - sumOf(own),
      ngrams: groupNgrams(ngrams, own, evidence),
      words: shareAmongWords(this.#reader.wordsOf(text), ngrams, own, evidence),
    };
  }

  #classOf(label) {
    const c = Math.max(this.labels.indexOf(label), this.classes.indexOf(label));
    if (c >= 0) return c;
    const listed = this.labels.slice(0, 10).map(shown).join(", "), more = this.labels.length > 10 ? ", ..." : "";
    throw new RangeError(`found no label ${shown(label)}, the labels are ${listed}${more}`);
  }

  #answer(text) {
    this.#reader.read(checkText(text));
    const { logits: z, probabilities: p } = this.#prior;
    if (!this.#reader.count) return { logits: z.slice(), probabilities: p.slice() };
    const each = this.#members.map((member) => {
      const out = new Float64Array(this.labels.length);
      member.score(this.#reader, out);
      return out;
    });
    const logits = combine(each, this.#votes, this.multilabel).map(Math.fround);
    return { logits, probabilities: toProbabilities(logits, this.multilabel) };
  }
}

function checkText(text) {
  if (typeof text === "string") return text;
  throw new TypeError(`a text must be a string, found ${text === null ? "null" : typeof text}`);
}

/** The bytes of a buffer, a view, a Blob or File, a Response, or of what a URL names. */
async function bytesOf(source) {
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  if (typeof source === "string" || source instanceof URL) return bytesOf(await fetch(source));
  if (typeof source?.arrayBuffer !== "function") {
    throw new TypeError("load takes an ArrayBuffer, a Uint8Array, a Blob, a Response or a URL");
  }
  check(source.ok !== false, `the server did not send a model, but status ${source.status}: ${source.url}`);
  return new Uint8Array(await source.arrayBuffer());
}

/** Read a model file. The model keeps the bytes: do not change them. */
export async function load(source) {
  const file = await bytesOf(source);
  return new Model(await understanding(() => readModel(file)));
}
