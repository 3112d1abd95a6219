/** What `load` takes: the bytes of a model file, or where they are. */
export type Source = ArrayBuffer | ArrayBufferView | Blob | Response | URL | string;

/** A label of the training data: whole numbers beyond 2^53 are bigints. */
export type Class = string | number | bigint | boolean;

export interface Prediction {
  label: string;
  probability: number;
}

export interface PredictOptions {
  /** The most labels to return; all by default. */
  top?: number;
}

/** A word as the model sees it, folded, and its place in the text in UTF-16 units. */
export interface Word {
  text: string;
  start: number;
  end: number;
}

/** An n-gram with all its occurrences. Contribution and evidence are their sums. */
export interface NgramShare {
  text: string;
  kind: "word" | "characters";
  count: number;
  /** Start and end of each occurrence, in UTF-16 units. */
  spans: [number, number][];
  /** What it adds to the logit of the label. */
  contribution: number;
  /** The same minus what it adds to the labels on average: what a softmax sees. */
  evidence: number;
}

/** A word with its share of the n-grams that it is part of. */
export interface WordShare {
  start: number;
  end: number;
  contribution: number;
  evidence: number;
}

export interface Explanation {
  label: string;
  probability: number;
  /** The sum of `bias`, all contributions and `unexplained`. */
  logit: number;
  bias: number;
  /** False only for ensembles of older files, which average probabilities. */
  exact: boolean;
  unexplained: number;
  /** The most evidence, for or against the label, first. */
  ngrams: NgramShare[];
  /** All words, in the order of the text. */
  words: WordShare[];
}

export interface ModelInfo {
  format: number;
  hash: number;
  unicode: string;
  bytes: number;
  parameters: number;
  /** For each number of a table; packed tables have codes of 8 bits. */
  bits: 4 | 8 | 16 | 32 | 64;
  /** How many rows of each packed table are not zero; null if the model is not compressed. */
  packed: Record<string, number> | null;
  /** Rows of P, rows of E, hash functions, columns of E, members of the ensemble. */
  sizes: { K: number; B: number; k: number; d: number; members: number };
  indexing: "independent" | "shared";
  seed: string;
  votes: "logits" | "probabilities";
  ngrams: [number, number];
  subwords: [number, number] | null;
  lowercase: boolean;
  punctuation: "drop" | "keep";
  repeats: "all" | "damp" | "once";
  class_counts: number[];
  texts_seen: number;
  calibration: { temperature: number; threshold: number; rows: number } | null;
  history: unknown;
  for_training: boolean;
}

/** A trained classifier. */
export interface Model {
  /** The labels as text. */
  readonly labels: string[];
  /** The labels as values, in the same order. */
  readonly classes: Class[];
  /** Whether a text may have several labels, or none. */
  readonly multilabel: boolean;
  /** The probability above which a multi-label model gives a label; otherwise null. */
  readonly threshold: number | null;
  readonly info: ModelInfo;
  /** Labels with their probabilities, the likeliest first. */
  predict(text: string, options?: PredictOptions): Prediction[];
  /** `predict` of each text. */
  predictAll(texts: Iterable<string>, options?: PredictOptions): Prediction[][];
  /** In the order of `labels`. */
  probabilities(text: string): Float64Array;
  /** In the order of `labels`. */
  logits(text: string): Float64Array;
  words(text: string): Word[];
  /** How much each n-gram adds to the logit of a label; by default of the likeliest one. */
  explain(text: string, label?: Class): Explanation;
}

/** A file that is not a model, or not one that this version can read. */
export class ModelFileError extends Error {}

/** Read a model file. The model keeps the bytes: do not change them. */
export function load(source: Source): Promise<Model>;

/** The two 32-bit halves of a 64-bit key. */
export type Key = [a: number, b: number];

/** The parts of the hash, for programs that need keys: see how-it-works/hash.md. */
export const hash: {
  fmix32(x: number): number;
  /** The state of MurmurHash3 after one more block of four bytes. */
  absorb(h: number, block: number): number;
  /** MurmurHash3_x86_32 of a part of some bytes. */
  murmur(bytes: Uint8Array, begin: number, end: number, seed: number): number;
  idKey(halves: Key, column?: number): Key;
  deriveSeeds(halves: Key, k: number): Int32Array;
  memberSeeds(halves: Key, count: number): Key[];
  reduce(h: number, n: number): number;
  bucketHash(a: number, b: number, seed: number): number;
  WORD_SEEDS: Key;
  NGRAM_SEEDS: Key;
  SUBWORD_SEEDS: Key;
};
