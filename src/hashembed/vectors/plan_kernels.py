"""Kernels that decide what a batch does, before anything is computed.

Random numbers are hashes of counters: they depend on the seed and on the place in the corpus, not
on which worker draws them.
"""

import numpy as np

from hashembed.core.arrays import F32, I32, U32
from hashembed.core.njit import njit
from hashembed.hashing.scalars import SPREAD, u64
from hashembed.vectors.arrays import (
    C_ROWS,
    E_ROWS,
    EXAMPLES,
    GROUP,
    INPUTS,
    NEGATIVES,
    P_ROWS,
    PAIRS,
    PARTS,
    WORDS,
)

_LOW = u64(0xFFFFFFFF)
_SHIFT = u64(32)


@njit(inline="always")
def random_bits(seed, counter):
    """64 random bits: SplitMix64 at place `counter` of the stream `seed`."""
    x = u64(seed) + u64(counter + 1) * SPREAD
    x = (x ^ (x >> u64(30))) * u64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> u64(27))) * u64(0x94D049BB133111EB)
    return x ^ (x >> u64(31))


@njit(inline="always")
def below(bits, n):
    """32 random bits -> a number in [0, n)."""
    return np.int64(((bits & _LOW) * u64(n)) >> _SHIFT)


@njit(native=True, nogil=True, error_model="numpy")
def thin_out(
    ids: I32, keep: U32, window: int, seed: int, words: I32, texts: I32, windows: I32
) -> int:
    """The words of a piece of the corpus that are kept, with their texts and windows -> how many.

    ids: words, and -1 at the end of each text. keep: 2^32 times the chance of keeping each word.
    """
    m, text = 0, 0
    for x in range(len(ids)):
        word = ids[x]
        if word < 0:
            text += 1
            continue
        bits = random_bits(seed, x)
        words[m], texts[m], windows[m] = word, text, 1 + below(bits >> _SHIFT, window)
        m += (bits & _LOW) <= u64(keep[word])
    return m


@njit(native=True, nogil=True, error_model="numpy")
def make_aliases(weights: F32, limits: U32, aliases: U32) -> None:
    """Tables of the alias method, to draw numbers in proportion to weights (V,)."""
    size = len(weights)
    total = 0.0
    for v in range(size):
        total += np.float64(weights[v])
    shares = np.empty(size, np.float64)
    small, large = np.empty(size, np.int64), np.empty(size, np.int64)
    s, n = 0, 0
    for v in range(size):
        shares[v] = np.float64(weights[v]) * size / total
        limits[v], aliases[v] = 0xFFFFFFFF, v
        if shares[v] < 1:
            small[s] = v
            s += 1
        else:
            large[n] = v
            n += 1
    while s > 0 and n > 0:
        s -= 1
        low, high = small[s], large[n - 1]
        limits[low] = np.uint32(min(shares[low] * 4294967296.0, 4294967295.0))
        aliases[low] = high
        shares[high] -= 1 - shares[low]
        if shares[high] < 1:
            n -= 1
            small[s] = high
            s += 1


@njit(error_model="numpy")
def sort_items(values, other, count, top, counters):
    """Sort values[:count] by their upper half, which is below `top`; equal ones keep their order.

    `other` is a buffer of the same size. Two or four passes: the result is in `values`.
    """
    passes, bits = 2, u64(9)
    while top > 1 << (passes * np.int64(bits)):
        if bits < u64(11):
            bits += u64(1)
        else:
            passes, bits = 4, u64(8)
    mask = (u64(1) << bits) - u64(1)
    shift = _SHIFT
    for _ in range(passes):
        for c in range(np.int64(mask) + 1):
            counters[c] = 0
        for x in range(count):
            counters[np.int64(values[x] >> shift & mask)] += 1
        at = 0
        for c in range(np.int64(mask) + 1):
            at, counters[c] = at + counters[c], at
        for x in range(count):
            c = np.int64(values[x] >> shift & mask)
            other[counters[c]] = values[x]
            counters[c] += 1
        values, other = other, values
        shift += bits


@njit(error_model="numpy")
def cut_runs(values, count, rows, begins, items):
    """Sorted values -> the distinct upper halves, where each begins, all lower halves."""
    n = 0
    for x in range(count):
        row = np.uint32(values[x] >> _SHIFT)
        if x == 0 or rows[n - 1] != row:
            rows[n], begins[n] = row, x
            n += 1
        items[x] = np.uint32(values[x] & _LOW)
    begins[n] = count
    return n


@njit(error_model="numpy")
def find_examples(first, last, tokens, cbow, places, plan, b):
    """The inputs and the outputs of the examples of a batch.

    places[x]: the word of input x.
    """
    words, texts, windows = tokens.words, tokens.texts, tokens.windows
    input_begins, pair_begins = plan.input_begins[b], plan.pair_begins[b]
    pair_words, pair_examples = plan.pair_words[b], plan.pair_examples[b]
    inputs, pairs = 0, 0
    for x in range(first, last):
        q, window = x - first, windows[x]
        input_begins[q], pair_begins[q] = inputs, pairs
        low, high = max(x - window, 0), min(x + window + 1, len(words))
        before = inputs + pairs
        for y in range(low, high):
            if y == x or texts[y] != texts[x]:
                continue
            if cbow:
                places[inputs] = words[y]
                inputs += 1
            else:
                pair_words[pairs], pair_examples[pairs] = words[y], q
                pairs += 1
        if inputs + pairs == before:
            continue  # a word alone predicts nothing
        if cbow:
            pair_words[pairs], pair_examples[pairs] = words[x], q
            pairs += 1
        else:
            places[inputs] = words[x]
            inputs += 1
    input_begins[last - first], pair_begins[last - first] = inputs, pairs
    return inputs, pairs


@njit(error_model="numpy")
def draw_negatives(groups, number, seed, limits, aliases, negatives):
    """The negatives of all groups of batch `number`."""
    for x in range(groups * NEGATIVES):
        bits = random_bits(seed, number * (1 << 20) + x)
        v = below(bits >> _SHIFT, len(limits))
        negatives[x] = np.uint32(v) if (bits & _LOW) <= u64(limits[v]) else aliases[v]


@njit(error_model="numpy")
def share_out(b, distinct, k, plan):
    """Divide the words of a batch into PARTS, and the sorted entries into those of each part."""
    entry_begins, part_places = plan.entry_begins[b], plan.part_places[b]
    rows, begins, items, places = (
        plan.E_rows[b],
        plan.E_begins[b],
        plan.E_items[b],
        plan.E_places[b],
    )
    mix_rows, mix_items, mix_places = plan.mix_rows[b], plan.mix_items[b], plan.mix_places[b]
    entries, p = np.int64(entry_begins[distinct]), 0
    for part in range(PARTS + 1):
        while p < distinct and np.int64(entry_begins[p]) * PARTS < part * entries:
            p += 1
        part_places[part] = p
    part_places[PARTS] = distinct
    at, part_of = np.empty(PARTS, np.int64), np.empty(distinct, np.int64)
    for part in range(PARTS):
        at[part] = np.int64(entry_begins[part_places[part]]) * k
        for p in range(part_places[part], part_places[part + 1]):
            part_of[p] = part
    for r in range(plan.counts[b, E_ROWS]):
        for x in range(begins[r], begins[r + 1]):
            part = part_of[places[x]]
            y = at[part]
            mix_rows[y], mix_items[y], mix_places[y] = rows[r], items[x], places[x]
            at[part] = y + 1


@njit(error_model="numpy")
def plan_batch(worker, number, b, job):
    """Plan batch `number` of the piece, as number b of those in memory."""
    vocabulary, tokens, plan, scratch = job.vocabulary, job.tokens, job.plan, job.scratch
    values, other = scratch.sorted[2 * worker], scratch.sorted[2 * worker + 1]
    counters, places, counts = scratch.counters[worker], scratch.places[worker], plan.counts[b]
    size = len(vocabulary.limits)
    first = number * job.batch_size
    last = min(first + job.batch_size, len(tokens.words))
    inputs, pairs = find_examples(first, last, tokens, job.cbow, places, plan, b)
    counts[EXAMPLES], counts[INPUTS], counts[PAIRS] = last - first, inputs, pairs

    # The distinct input words, and the place of each input among them.
    input_begins = plan.input_begins[b]
    for x in range(inputs):
        values[x] = u64(places[x]) << _SHIFT | u64(x)
    sort_items(values, other, inputs, size, counters)
    words, word_begins, items = plan.words[b], plan.word_begins[b], plan.word_examples[b]
    distinct = cut_runs(values, inputs, words, word_begins, items)
    counts[WORDS] = distinct
    input_places = plan.input_places[b]
    for p in range(distinct):
        for x in range(word_begins[p], word_begins[p + 1]):
            input_places[items[x]] = p
    for q in range(last - first):
        for x in range(input_begins[q], input_begins[q + 1]):
            places[x] = q
    for x in range(inputs):
        items[x] = places[items[x]]  # the example of an input

    # Their entries, sorted by row of E, and by row of P.
    offsets, k = vocabulary.offsets, job.tables.P.shape[1]
    entry_begins, e = plan.entry_begins[b], 0
    for p in range(distinct):
        entry_begins[p] = e
        for t in range(offsets[words[p]], offsets[words[p] + 1]):
            for i in range(k):
                bucket = vocabulary.buckets[t * k + i]
                values[e * k + i] = u64(bucket) << _SHIFT | u64(e * k + i)
                places[e * k + i] = p
            e += 1
    entry_begins[distinct] = e
    sort_items(values, other, e * k, job.num_buckets, counters)
    E_items, E_places = plan.E_items[b], plan.E_places[b]
    counts[E_ROWS] = cut_runs(values, e * k, plan.E_rows[b], plan.E_begins[b], E_items)
    for x in range(e * k):
        E_places[x] = places[E_items[x]]
    share_out(b, distinct, k, plan)
    e = 0
    for p in range(distinct):
        for t in range(offsets[words[p]], offsets[words[p] + 1]):
            values[e] = u64(vocabulary.rows[t]) << _SHIFT | u64(e)
            e += 1
    sort_items(values, other, e, job.num_rows, counters)
    counts[P_ROWS] = cut_runs(values, e, plan.P_rows[b], plan.P_begins[b], plan.P_items[b])

    # The rows of the output: words of pairs, and negatives.
    groups = -(-(last - first) // GROUP)
    negatives, pair_words = plan.negatives[b], plan.pair_words[b]
    draw_negatives(groups, number, job.seed, vocabulary.limits, vocabulary.aliases, negatives)
    for x in range(pairs):
        values[x] = u64(pair_words[x]) << _SHIFT | u64(x)
    for x in range(groups * NEGATIVES):
        values[pairs + x] = u64(negatives[x]) << _SHIFT | u64(pairs + x)
    count = pairs + groups * NEGATIVES
    sort_items(values, other, count, size, counters)
    counts[C_ROWS] = cut_runs(values, count, plan.C_rows[b], plan.C_begins[b], plan.C_items[b])
