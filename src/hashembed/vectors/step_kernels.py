"""Training word vectors: all phases of a batch in one kernel.

    phase            owned by    what it does
    plan_batch       batches     which rows a batch reads and changes, sorted (`plan_kernels.py`)
    embed_words      words       the vector of each distinct input word: the mean of its entries
    learn_groups     groups      GROUP examples and the NEGATIVES that they share, as products of
                                 small matrices: scores, errors, gradients
    update_outputs   C rows      sum the gradient of a row, update it
    sum_gradients    words       the gradient of each input word
    update_buckets   E rows      the same for E; the gradients of the importance weights
    update_weights   P rows      the same for P

Workers own different rows, and wait for each other between phases. The order of every sum is fixed
by the plan, so the result is the same for any number of workers.

E and the output take steps of RMSprop with one accumulator for each row, which starts at the first
gradient: rare rows get full steps, and frequent rows do not slow down, as they would in Adagrad. P
takes steps of Adagrad.
"""

import numpy as np

from hashembed.core.arrays import I64
from hashembed.core.intrinsics import prefetch, sqrt32
from hashembed.core.njit import njit
from hashembed.core.threads import wait_for_all
from hashembed.engine.shallow.arrays import LANES
from hashembed.engine.shallow.parts import dot_rows, exp_of_negative, log
from hashembed.engine.shallow.vectors import load, plus, scaled, store, zero_vector
from hashembed.vectors.arrays import (
    C_ROWS,
    E_ROWS,
    EXAMPLES,
    GROUP,
    NEGATIVES,
    P_ROWS,
    PAIRS,
    PARTS,
    PLANNED,
    WORDS,
    Job,
)
from hashembed.vectors.plan_kernels import plan_batch

WIDE = 2 * LANES  # two sums of so many numbers fit into the registers of AVX2
_AHEAD = 3  # rows of E to prefetch, each of several cache lines
_ROWS_AHEAD = 8  # rows of P

_ZERO, _ONE = np.float32(0), np.float32(1)
_TINY = np.float32(1e-30)


@njit(inline="always")
def first_run(begins, runs, at):
    """The first run that begins at item `at` or later."""
    low, high = 0, runs
    while low < high:
        middle = (low + high) // 2
        if begins[middle] < at:
            low = middle + 1
        else:
            high = middle
    return low


@njit(inline="always")
def share_runs(begins, runs, worker, workers):
    """The runs that a worker owns: about the same number of items each."""
    items = np.int64(begins[runs])
    low = first_run(begins, runs, items * worker // workers)
    high = first_run(begins, runs, items * (worker + 1) // workers)
    return low, high if worker + 1 < workers else runs


@njit(inline="always")
def fetch_row(table, row):
    """Prefetch all cache lines of a row."""
    columns = table.shape[1]
    flat = table[row]
    for c in range(0, columns, LANES):
        prefetch(flat, c)


@njit(inline="always")
def weighted_sum(table, rows, weights, first, count, column, width):
    """The sum of weights[x] * table[rows[x]] for `count` x from `first` on: two chains of sums."""
    even, odd = zero_vector(width), zero_vector(width)
    for x in range(first, first + count - 1, 2):
        even = plus(even, scaled(weights[x], load(table, rows[x], column, width)))
        odd = plus(odd, scaled(weights[x + 1], load(table, rows[x + 1], column, width)))
    if count % 2:
        x = first + count - 1
        even = plus(even, scaled(weights[x], load(table, rows[x], column, width)))
    return plus(even, odd)


@njit(inline="always")
def add_row(target, row, factor, source, other, columns):
    """target[row] += factor * source[other]."""
    for c in range(0, columns - WIDE + 1, WIDE):
        more = scaled(factor, load(source, other, c, WIDE))
        store(target, row, c, plus(load(target, row, c, WIDE), more))
    for c in range(columns // WIDE * WIDE, columns, LANES):
        some = scaled(factor, load(source, other, c, LANES))
        store(target, row, c, plus(load(target, row, c, LANES), some))


@njit(inline="always")
def set_row(target, row, factor, source, other, columns):
    """target[row] = factor * source[other]."""
    for c in range(0, columns, LANES):
        store(target, row, c, scaled(factor, load(source, other, c, LANES)))


@njit(inline="always")
def clear_row(target, row, columns):
    """target[row] = 0."""
    for c in range(0, columns, LANES):
        store(target, row, c, zero_vector(LANES))


@njit(error_model="numpy")
def mix_weights(low, high, b, job):
    """weights = P over the number of entries, for the words from `low` to `high`."""
    offsets, rows, P = job.vocabulary.offsets, job.vocabulary.rows, job.tables.P
    words, begins = job.plan.words[b], job.plan.entry_begins[b]
    weights, scales, k = job.scratch.weights, job.scratch.scales, P.shape[1]
    for p in range(low, high):
        start, n = offsets[words[p]], offsets[words[p] + 1] - offsets[words[p]]
        scale, e = _ONE / np.float32(n), np.int64(begins[p]) * k
        scales[p] = scale
        for t in range(n):
            if t + _ROWS_AHEAD < n:
                prefetch(P[rows[start + t + _ROWS_AHEAD]], 0)
            for i in range(k):
                weights[e + t * k + i] = P[rows[start + t], i] * scale


@njit(error_model="numpy")
def embed_words(worker, workers, b, job):
    """vectors[p] = the mean over the entries of word p of sum_i P[row, i] E[bucket_i].

    The entries of a part of the words are in the order of the rows of E. That order is kind to
    memory, and the vectors of a part fit into a core's own cache.
    """
    plan, E, vectors = job.plan, job.tables.E, job.scratch.vectors
    rows, items, places = plan.mix_rows[b], plan.mix_items[b], plan.mix_places[b]
    begins, part_places, k = plan.entry_begins[b], plan.part_places[b], job.tables.P.shape[1]
    weights, columns = job.scratch.weights, E.shape[1]
    for part in range(PARTS * worker // workers, PARTS * (worker + 1) // workers):
        low, high = part_places[part], part_places[part + 1]
        mix_weights(low, high, b, job)
        for p in range(low, high):
            clear_row(vectors, p, columns)
        first, last = np.int64(begins[low]) * k, np.int64(begins[high]) * k
        for x in range(first, last):
            if x + _AHEAD < last:
                fetch_row(E, rows[x + _AHEAD])
            row, p = np.int64(rows[x]), np.int64(places[x])
            add_row(vectors, p, weights[items[x]], E, row, columns)


@njit(inline="always")
def sigmoid(x):
    """The probability of a score."""
    e = exp_of_negative(-abs(x))
    return (_ONE if x >= _ZERO else e) / (_ONE + e)


@njit(inline="always")
def product_block(weights, row, table, first, count, column, out, at):
    """out[at + i] = the sum over t of weights[row + i, t] * table[first + t], for four rows i."""
    a, b = zero_vector(LANES), zero_vector(LANES)
    c, d = zero_vector(LANES), zero_vector(LANES)
    for t in range(count):
        v = load(table, first + t, column, LANES)
        a = plus(a, scaled(weights[row, t], v))
        b = plus(b, scaled(weights[row + 1, t], v))
        c = plus(c, scaled(weights[row + 2, t], v))
        d = plus(d, scaled(weights[row + 3, t], v))
    store(out, at, column, a)
    store(out, at + 1, column, b)
    store(out, at + 2, column, c)
    store(out, at + 3, column, d)


@njit(inline="always")
def transposed_block(weights, row, place, table, first, count, column, out, at):
    """out[at + j] = the sum over t of weights[row + t, place + j] * table[first + t], four rows."""
    a, b = zero_vector(LANES), zero_vector(LANES)
    c, d = zero_vector(LANES), zero_vector(LANES)
    for t in range(count):
        v = load(table, first + t, column, LANES)
        a = plus(a, scaled(weights[row + t, place], v))
        b = plus(b, scaled(weights[row + t, place + 1], v))
        c = plus(c, scaled(weights[row + t, place + 2], v))
        d = plus(d, scaled(weights[row + t, place + 3], v))
    store(out, at, column, a)
    store(out, at + 1, column, b)
    store(out, at + 2, column, c)
    store(out, at + 3, column, d)


@njit(error_model="numpy")
def take_negatives(worker, g, b, job):
    """The output vectors of the negatives of a group, and the same transposed."""
    C, negatives = job.tables.C, job.plan.negatives[b]
    own, across, columns = job.scratch.own, job.scratch.across, C.shape[1]
    here, flat = worker * NEGATIVES, worker * columns
    for j in range(NEGATIVES):
        word = np.int64(negatives[g * NEGATIVES + j])
        for c in range(0, columns, LANES):
            store(own, here + j, c, load(C, word, c, LANES))
        for c in range(columns):
            across[flat + c, j] = own[here + j, c]


@njit(error_model="numpy")
def mean_inputs(first, last, end, b, job):
    """hidden[q] = the mean vector of the inputs of example q; zeros from `last` to `end`."""
    hidden, vectors, columns = job.scratch.hidden, job.scratch.vectors, job.tables.C.shape[1]
    begins, places = job.plan.input_begins[b], job.plan.input_places[b]
    for q in range(first, end):
        clear_row(hidden, q, columns)
        if q < last:
            part = _ONE / np.float32(max(np.int64(begins[q + 1]) - np.int64(begins[q]), 1))
            for x in range(begins[q], begins[q + 1]):
                add_row(hidden, q, part, vectors, np.int64(places[x]), columns)


@njit(error_model="numpy")
def negative_errors(scores, weight, negatives, words, low, high):
    """Scores of the negatives -> what they add to the gradient. Output words are no negatives."""
    for j in range(NEGATIVES):
        scores[j] = -weight * sigmoid(scores[j])
    for x in range(low, high):
        same = False
        for j in range(NEGATIVES):
            same |= negatives[j] == words[x]
        if same:
            for j in range(NEGATIVES):
                if negatives[j] == words[x]:
                    scores[j] = _ZERO


@njit(error_model="numpy")
def learn_group(worker, g, b, job):
    """One group of examples."""
    plan, scratch, C = job.plan, job.scratch, job.tables.C
    columns = C.shape[1]
    first, end = g * GROUP, (g + 1) * GROUP
    last = min(end, plan.counts[b, EXAMPLES])
    begins, words = plan.pair_begins[b], plan.pair_words[b]
    negatives = plan.negatives[b][g * NEGATIVES : (g + 1) * NEGATIVES]
    hidden, gradients, errors = scratch.hidden, scratch.gradients, scratch.errors
    here, flat, row = worker * NEGATIVES, worker * columns, worker * GROUP
    for x in range(begins[first], begins[last]):
        fetch_row(C, words[x])
    take_negatives(worker, g, b, job)
    mean_inputs(first, last, end, b, job)
    for q in range(0, GROUP, 4):
        for c in range(0, NEGATIVES, LANES):
            product_block(hidden, first + q, scratch.across, flat, columns, c, errors, row + q)
    loss = _ZERO
    for q in range(first, end):
        low = np.int64(begins[min(q, last)])
        high = np.int64(begins[min(q + 1, last)])
        scores = errors[row + q - first]
        weight = np.float32(job.negative_weight / NEGATIVES) * np.float32(high - low)
        if q == first and high > low:
            for j in range(NEGATIVES):
                loss -= weight * log(_ONE - sigmoid(scores[j]) + _TINY)
        negative_errors(scores, weight, negatives, words, low, high)
    for q in range(0, GROUP, 4):
        for c in range(0, columns, LANES):
            product_block(errors, row + q, scratch.own, here, NEGATIVES, c, gradients, first + q)
    for q in range(first, last):
        for x in range(begins[q], begins[q + 1]):
            word = np.int64(words[x])
            probability = sigmoid(dot_rows(hidden, q, C, word, columns, LANES))
            error = _ONE - probability
            scratch.pair_errors[x] = error
            if q == first:
                loss -= log(probability + _TINY)
            add_row(gradients, q, error, C, word, columns)
    scratch.losses[g] = loss / np.float32(max(np.int64(begins[first + 1]) - begins[first], 1))
    for j in range(0, NEGATIVES, 4):
        out = scratch.negative_gradients
        for c in range(0, columns, LANES):
            transposed_block(
                errors, row, j, hidden, first, GROUP, c, out, g * NEGATIVES + j
            )  # fmt: skip


@njit(inline="always")
def take_step(table, squares, row, sums, at, columns, part, rate, decay):
    """A step of RMSprop for table[row], whose gradient is sums[at]; `part` is 1 / d."""
    square = dot_rows(sums, at, sums, at, columns, LANES) * part
    if squares[row] > _ZERO:
        square = decay * squares[row] + (_ONE - decay) * square
    squares[row] = square + _TINY
    factor = rate / sqrt32(square + _TINY)
    add_row(table, row, factor, sums, at, columns)


@njit(error_model="numpy")
def update_outputs(worker, workers, b, job, rate):
    """Update the output vectors of the words of pairs and of the negatives."""
    plan, scratch = job.plan, job.scratch
    C, C_square, sums, columns = (
        job.tables.C,
        job.tables.C_square,
        scratch.sums,
        job.tables.C.shape[1],
    )
    rows, begins, items = plan.C_rows[b], plan.C_begins[b], plan.C_items[b]
    pairs, pair_examples = plan.counts[b, PAIRS], plan.pair_examples[b]
    errors, hidden, negatives = scratch.pair_errors, scratch.hidden, scratch.negative_gradients
    part, decay = np.float32(1 / job.dim), np.float32(job.decay)
    low, high = share_runs(begins, plan.counts[b, C_ROWS], worker, workers)
    for r in range(low, high):
        if r + _AHEAD < high:
            fetch_row(C, rows[r + _AHEAD])
            prefetch(C_square, rows[r + _AHEAD])
        clear_row(sums, 2 * worker, columns)
        for x in range(begins[r], begins[r + 1]):
            item = np.int64(items[x])
            if item < pairs:
                add_row(
                    sums, 2 * worker, errors[item], hidden, np.int64(pair_examples[item]), columns
                )
            else:
                add_row(sums, 2 * worker, _ONE, negatives, item - pairs, columns)
        take_step(C, C_square, np.int64(rows[r]), sums, 2 * worker, columns, part, rate, decay)


@njit(error_model="numpy")
def sum_gradients(worker, workers, b, job):
    """word_gradients[p] = the gradients of the examples that have word p as an input."""
    plan, scratch = job.plan, job.scratch
    gradients, out, columns = scratch.gradients, scratch.word_gradients, job.tables.E.shape[1]
    begins, examples = plan.word_begins[b], plan.word_examples[b]
    input_begins = plan.input_begins[b]
    low, high = share_runs(begins, plan.counts[b, WORDS], worker, workers)
    for p in range(low, high):
        clear_row(out, p, columns)
        for x in range(begins[p], begins[p + 1]):
            q = np.int64(examples[x])
            part = _ONE / np.float32(input_begins[q + 1] - input_begins[q])
            add_row(out, p, part, gradients, q, columns)


@njit(error_model="numpy")
def update_buckets(worker, workers, b, job, rate):
    """Update the rows of E; dots[x] = the gradient of importance weight x."""
    plan, scratch = job.plan, job.scratch
    E, E_square, columns, sums = (
        job.tables.E,
        job.tables.E_square,
        job.tables.E.shape[1],
        scratch.sums,
    )
    rows, begins = plan.E_rows[b], plan.E_begins[b]
    items, places = plan.E_items[b], plan.E_places[b]
    weights, dots, scales, words = (
        scratch.weights,
        scratch.dots,
        scratch.scales,
        scratch.word_gradients,
    )
    part, decay = np.float32(1 / job.dim), np.float32(job.decay)
    low, high = share_runs(begins, plan.counts[b, E_ROWS], worker, workers)
    for r in range(low, high):
        if r + _AHEAD < high:
            fetch_row(E, rows[r + _AHEAD])
            prefetch(E_square, rows[r + _AHEAD])
        row = np.int64(rows[r])
        for x in range(begins[r], begins[r + 1]):
            p, item = np.int64(places[x]), np.int64(items[x])
            if x == begins[r]:
                set_row(sums, 2 * worker, weights[item], words, p, columns)
            else:
                add_row(sums, 2 * worker, weights[item], words, p, columns)
            dots[item] = scales[p] * dot_rows(words, p, E, row, columns, LANES)
        take_step(E, E_square, row, sums, 2 * worker, columns, part, rate, decay)


@njit(error_model="numpy")
def update_weights(worker, workers, b, job, rate):
    """Update the rows of P."""
    plan, dots = job.plan, job.scratch.dots
    P, P_square, k = job.tables.P, job.tables.P_square, job.tables.P.shape[1]
    rows, begins, items = plan.P_rows[b], plan.P_begins[b], plan.P_items[b]
    low, high = share_runs(begins, plan.counts[b, P_ROWS], worker, workers)
    gradient = np.empty(k, np.float32)
    for r in range(low, high):
        row = rows[r]
        for i in range(k):
            gradient[i] = _ZERO
        for x in range(begins[r], begins[r + 1]):
            for i in range(k):
                gradient[i] += dots[items[x] * k + i]
        square = _ZERO
        for i in range(k):
            square += gradient[i] * gradient[i]
        P_square[row] += square * np.float32(1 / k) + _TINY
        factor = rate / sqrt32(P_square[row])
        for i in range(k):
            P[row, i] += factor * gradient[i]


@njit(native=True, nogil=True, error_model="numpy")
def train_words(worker: int, workers: int, barrier: I64, job: Job) -> int:
    """All batches of a piece of the corpus -> how many. It stops early if a loss is not finite."""
    rates, counts, losses, means = job.tokens.rates, job.plan.counts, job.scratch.losses, job.means
    batches = len(rates)
    for start in range(0, batches, PLANNED):
        planned = min(PLANNED, batches - start)
        for b in range(worker, planned, workers):
            plan_batch(worker, start + b, b, job)
        wait_for_all(barrier, workers)
        for b in range(planned):
            rate = rates[start + b]
            groups = -(-counts[b, EXAMPLES] // GROUP)
            embed_words(worker, workers, b, job)
            wait_for_all(barrier, workers)
            for g in range(groups * worker // workers, groups * (worker + 1) // workers):
                learn_group(worker, g, b, job)
            wait_for_all(barrier, workers)
            total = _ZERO
            for g in range(groups):
                total += losses[g]
            if not np.isfinite(total):
                return start + b
            if worker == 0:
                means[start + b] = total / np.float32(groups)
            update_outputs(worker, workers, b, job, rate)
            sum_gradients(worker, workers, b, job)
            wait_for_all(barrier, workers)
            update_buckets(worker, workers, b, job, rate)
            wait_for_all(barrier, workers)
            update_weights(worker, workers, b, job, np.float32(job.importance_rate))
            wait_for_all(barrier, workers)
    return batches
