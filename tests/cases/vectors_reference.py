"""Training of word vectors in plain NumPy and float64: what the kernels must compute."""

import numpy as np

from hashembed.vectors.arrays import GROUP, NEGATIVES

MASK = 2**64 - 1


def random_bits(seed, counter):
    """SplitMix64 at place `counter` of the stream `seed`."""
    x = (seed + (counter + 1) * 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def thin_out(ids, keep, window, seed):
    """-> words, texts, windows of the words that are kept."""
    found, text = [], 0
    for place, word in enumerate(ids):
        if word < 0:
            text += 1
            continue
        bits = random_bits(seed, place)
        if bits & 0xFFFFFFFF <= keep[word]:
            found.append((word, text, 1 + ((bits >> 32) * window >> 32)))
    return [list(column) for column in zip(*found, strict=True)] if found else ([], [], [])


def examples_of(words, texts, windows, first, last, cbow):
    """-> (input words, output words) of each example."""
    found = []
    for x in range(first, last):
        near = [
            words[y]
            for y in range(max(0, x - windows[x]), min(len(words), x + windows[x] + 1))
            if y != x and texts[y] == texts[x]
        ]
        if not near:
            found.append(([], []))
        else:
            found.append((near, [words[x]]) if cbow else ([words[x]], near))
    return found


def draw_negatives(groups, number, seed, limits, aliases):
    found = []
    for x in range(groups * NEGATIVES):
        bits = random_bits(seed, number * 2**20 + x)
        v = (bits >> 32) * len(limits) >> 32
        found.append(v if bits & 0xFFFFFFFF <= limits[v] else int(aliases[v]))
    return np.array(found).reshape(groups, NEGATIVES)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Reference:
    """Tables in float64, changed batch by batch."""

    def __init__(self, vocabulary, tables, dim, recipe):
        self.vocabulary, self.dim, self.recipe = vocabulary, dim, recipe
        self.tables = {n: t.astype(np.float64) for n, t in tables._asdict().items()}
        self.tables["E"] = self.tables["E"][:, :dim].copy()
        self.tables["C"] = self.tables["C"][:, :dim].copy()

    def entries(self, word):
        """Rows of P (n,) and buckets (n, k) of a word."""
        low, high = self.vocabulary.offsets[word : word + 2]
        k = self.tables["P"].shape[1]
        return self.vocabulary.rows[low:high], self.vocabulary.buckets[low * k : high * k].reshape(
            -1, k
        )

    def vector(self, word):
        rows, buckets = self.entries(word)
        E, P = self.tables["E"], self.tables["P"]
        return (P[rows][:, :, None] * E[buckets]).sum((0, 1)) / len(rows)

    def step(self, examples, negatives, rate):
        """One batch. negatives (groups, NEGATIVES)."""
        C = self.tables["C"]
        of_word, of_output = {}, {}
        for q, (inputs, outputs) in enumerate(examples):
            if not inputs:
                continue
            h = np.mean([self.vector(word) for word in inputs], axis=0)
            gradient = np.zeros(self.dim)
            weight = self.recipe.negative_weight * len(outputs) / NEGATIVES
            for word in outputs:
                error = 1 - sigmoid(h @ C[word])
                gradient += error * C[word]
                of_output[word] = of_output.get(word, 0) + error * h
            for word in negatives[q // GROUP]:
                if word not in outputs:
                    error = -weight * sigmoid(h @ C[word])
                    gradient += error * C[word]
                    of_output[word] = of_output.get(word, 0) + error * h
                else:
                    of_output.setdefault(word, np.zeros(self.dim))
            for word in inputs:
                of_word[word] = of_word.get(word, 0) + gradient / len(inputs)
        for row in negatives.reshape(-1):
            of_output.setdefault(row, np.zeros(self.dim))
        of_bucket, of_row = {}, {}
        E, P = self.tables["E"], self.tables["P"]
        for word, gradient in of_word.items():
            rows, buckets = self.entries(word)
            for row, own in zip(rows, buckets, strict=True):
                for i, bucket in enumerate(own):
                    more = P[row, i] / len(rows) * gradient
                    of_bucket[bucket] = of_bucket.get(bucket, 0) + more
                    slope = of_row.setdefault(row, np.zeros(P.shape[1]))
                    slope[i] += gradient @ E[bucket] / len(rows)
        for row, gradient in of_output.items():
            self.rms(C, self.tables["C_square"], row, gradient, rate)
        for row, gradient in of_bucket.items():
            self.rms(E, self.tables["E_square"], row, gradient, rate)
        for row, gradient in of_row.items():
            self.tables["P_square"][row] += (gradient**2).mean() + 1e-30
            root = np.sqrt(self.tables["P_square"][row])
            P[row] += self.recipe.importance_rate * gradient / root

    def rms(self, table, squares, row, gradient, rate):
        square = (gradient**2).mean()
        if squares[row] > 0:
            decay = self.recipe.decay
            square = decay * squares[row] + (1 - decay) * square
        squares[row] = square + 1e-30
        table[row] += rate * gradient / np.sqrt(square + 1e-30)
