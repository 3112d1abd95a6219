"""Triton kernels of a step. Their order, and what may overlap, is in `steps.py`.

    kernel            a program handles
    embed_words       words             the mean of the components of a word
    mean_inputs       an example        CBOW: the mean of its input words
    learn_pairs       an example        its output words: errors, its gradient
    learn_negatives   a tile            its negatives: products of small matrices
    update_outputs    rows of C         sum the gradients of a row, take a step
    sum_gradients     words             the gradient of each input word
    update_buckets    rows of E         as in C; and the gradients of importance weights
    update_weights    rows of P         as in C

The batch is number cursor + step of the chunk. Grids do not depend on it: programs share what there
is, or find nothing to do. Programs that update rows take tiles of short runs, where a run is a row
of the tile; the first `LONG` programs take long runs, where the items of a run are the rows of the
tile, one run after the other. Nothing is added atomically, so every run gives the same bits.
"""

import triton
import triton.language as tl

from hashembed.nn.gpu.kernels.optimizer_rules import product

TINY = tl.constexpr(1e-30)


@triton.jit
def sigmoid(x):
    """The probability of a score."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, e) / (1.0 + e)


@triton.jit
def row_places(table, rows, cols, W: tl.constexpr):
    """The addresses (R, D) of rows (R,) of a table of width W."""
    return table + rows.to(tl.int64)[:, None] * W + cols[None, :]


@triton.jit
def read_rows(table, rows, live, cols, W: tl.constexpr):
    """Rows (R,) of a table, as (R, D); zeros for others, and in columns from W on."""
    mask = live[:, None] & (cols < W)[None, :]
    return tl.load(row_places(table, rows, cols, W), mask=mask, other=0.0)


@triton.jit(do_not_specialize=["step"])
def embed_words(
    cursor, word_starts, word_firsts, entry_begins, E_slots, rows, buckets, E, P, weights, scales,
    vectors, step, k: tl.constexpr, W: tl.constexpr, T: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """vectors[p] = the mean over the entries of word p of sum_i P[row, i] E[bucket_i]."""
    b = tl.load(cursor) + step
    first, last = tl.load(word_starts + b), tl.load(word_starts + b + 1)
    cols = tl.arange(0, D)
    for p in range(first + tl.program_id(0), last, tl.num_programs(0)):
        start = tl.load(word_firsts + p)
        e = tl.load(entry_begins + p)
        n = tl.load(entry_begins + p + 1) - e
        scale = 1.0 / n.to(tl.float32)
        total = tl.zeros([T, D], tl.float32)
        for x0 in range(0, n * k, T):
            x = x0 + tl.arange(0, T)
            live = x < n * k
            row = tl.load(rows + start + x // k, mask=live, other=0).to(tl.int64)
            bucket = tl.load(buckets + start * k + x, mask=live, other=0)
            slot = tl.load(E_slots + e * k + x, mask=live, other=0)
            weight = tl.load(P + row * k + x % k, mask=live, other=0.0) * scale
            total += weight[:, None] * read_rows(E, bucket, live, cols, W)
            tl.store(weights + slot, weight, mask=live)
        own = p - first
        tl.store(scales + own, scale)
        tl.store(vectors + own * W + cols, tl.sum(total, axis=0), mask=cols < W)


@triton.jit(do_not_specialize=["step"])
def mean_inputs(
    cursor, example_starts, input_begins, input_words, vectors, hidden, step, W: tl.constexpr,
    T: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """hidden[q] = the mean of the vectors of the input words of example q."""
    b = tl.load(cursor) + step
    q, first = tl.program_id(0), tl.load(example_starts + b)
    if q < tl.load(example_starts + b + 1) - first:
        begin, end = tl.load(input_begins + first + q), tl.load(input_begins + first + q + 1)
        cols = tl.arange(0, D)
        total = tl.zeros([T, D], tl.float32)
        for x0 in range(begin, end, T):
            x = x0 + tl.arange(0, T)
            live = x < end
            total += read_rows(vectors, tl.load(input_words + x, mask=live, other=0), live, cols, W)
        part = 1.0 / tl.maximum(end - begin, 1).to(tl.float32)
        tl.store(hidden + q * W + cols, part * tl.sum(total, axis=0), mask=cols < W)


@triton.jit(do_not_specialize=["step"])
def learn_pairs(
    cursor, example_starts, pair_begins, pair_words, pair_slots, hidden_rows, hidden, C, errors,
    gradients, losses, step, GROUP: tl.constexpr, GROUPS: tl.constexpr, W: tl.constexpr,
    T: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """The errors of the pairs of an example, and its gradient from them."""
    b = tl.load(cursor) + step
    q, first = tl.program_id(0), tl.load(example_starts + b)
    if q < tl.load(example_starts + b + 1) - first:
        begin, end = tl.load(pair_begins + first + q), tl.load(pair_begins + first + q + 1)
        cols = tl.arange(0, D)
        row = tl.load(hidden_rows + first + q).to(tl.int64)
        width = tl.where(begin < end, W, 0)
        own = tl.load(hidden + row * W + cols, mask=cols < width, other=0.0)
        total, loss = tl.zeros([T, D], tl.float32), tl.zeros([T], tl.float32)
        for x0 in range(begin, end, T):
            x = x0 + tl.arange(0, T)
            live = x < end
            slot = tl.load(pair_slots + x, mask=live, other=0)
            outputs = read_rows(C, tl.load(pair_words + x, mask=live, other=0), live, cols, W)
            scores = tl.sum(product(outputs, tl.broadcast_to(own[None, :], [T, D])), axis=1)
            probability = sigmoid(scores)
            error = tl.where(live, 1.0 - probability, 0.0)
            tl.store(errors + slot, error, mask=live)
            total += error[:, None] * outputs
            loss += tl.where(live, -tl.log(probability + TINY), 0.0)
        tl.store(gradients + q * W + cols, tl.sum(total, axis=0), mask=cols < W)
        if q % GROUP == 0:
            mean = tl.sum(loss, axis=0) / tl.maximum(end - begin, 1).to(tl.float32)
            tl.store(losses + b * 2 * GROUPS + q // GROUP, mean)


@triton.jit(do_not_specialize=["step"])
def learn_negatives(
    cursor, example_starts, group_starts, pair_begins, hidden_rows, hits, negatives, hidden, C,
    gradients, negative_gradients, losses, step, WEIGHT: tl.constexpr, GROUP: tl.constexpr,
    GROUPS: tl.constexpr, NEGATIVES: tl.constexpr, Q: tl.constexpr, W: tl.constexpr,
    D: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Scores of Q examples and the negatives of their group, and both gradients.

    WEIGHT: of one negative, for each output word of an example.
    """
    b = tl.load(cursor) + step
    tile, first = tl.program_id(0), tl.load(example_starts + b)
    count = tl.load(example_starts + b + 1) - first
    if tile * Q < count:
        q, j, cols = tile * Q + tl.arange(0, Q), tl.arange(0, NEGATIVES), tl.arange(0, D)
        inside, every = q < count, j >= 0
        group = tl.load(group_starts + b) + tile * Q // GROUP
        words = tl.load(negatives + group * NEGATIVES + j)
        rows = tl.load(hidden_rows + first + q, mask=inside, other=0)
        pairs = tl.load(pair_begins + first + q + 1, mask=inside, other=0)
        pairs -= tl.load(pair_begins + first + q, mask=inside, other=0)
        hit = tl.load(hits + first + q, mask=inside, other=0)
        live = pairs > 0
        scores = tl.zeros([Q, NEGATIVES], tl.float32)
        for c in range(0, W, D):
            own = read_rows(hidden, rows, live, cols + c, W)
            outputs = read_rows(C, words, every, cols + c, W)
            scores = tl.dot(own, tl.trans(outputs), scores, input_precision=PRECISION)
        probability = sigmoid(scores)
        strength = WEIGHT * pairs.to(tl.float32)
        is_hit = (hit[:, None] >> j[None, :].to(tl.int64)) & 1
        error = tl.where(is_hit != 0, 0.0, -strength[:, None] * probability)
        for c in range(0, W, D):
            own = read_rows(hidden, rows, live, cols + c, W)
            outputs = read_rows(C, words, every, cols + c, W)
            mine = tl.dot(error, outputs, input_precision=PRECISION)
            theirs = tl.dot(tl.trans(error), own, input_precision=PRECISION)
            columns = (cols + c < W)[None, :]
            tl.store(row_places(gradients, q, cols + c, W), mine, mask=inside[:, None] & columns)
            places = row_places(negative_gradients, tile * NEGATIVES + j, cols + c, W)
            tl.store(places, theirs, mask=every[:, None] & columns)
        if tile * Q % GROUP == 0:
            terms = tl.sum(-tl.log(1.0 - probability + TINY), axis=1)
            mean = tl.sum(tl.where((q == tile * Q) & live, WEIGHT * terms, 0.0), axis=0)
            tl.store(losses + (b * 2 + 1) * GROUPS + tile * Q // GROUP, mean)


@triton.jit
def take_step(
    table, squares, rows, live, before, gradient, cols, rate, PART: tl.constexpr,
    DECAY: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """A step of RMSprop for rows (R,) of a table, with one accumulator each; PART is 1 / d."""
    square = tl.sum(product(gradient, gradient), axis=1) * PART
    old = tl.load(squares + rows, mask=live, other=0.0)
    square = tl.where(old > 0, DECAY * old + (1.0 - DECAY) * square, square) + TINY
    tl.store(squares + rows, square, mask=live)
    mask = live[:, None] & (cols < W)[None, :]
    after = before + (rate / tl.sqrt(square))[:, None] * gradient
    tl.store(row_places(table, rows, cols, W), after, mask=mask)


@triton.jit
def output_terms(
    x, live, sources, errors, hidden, negative_gradients, examples, cols, NEGATIVES: tl.constexpr,
    TILES: tl.constexpr, Q: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """What items x (R,) add to the gradients of their rows of C; (R, D).

    A pair adds its error times a hidden vector; a negative adds a row from each tile of its group.
    """
    source = tl.load(sources + x, mask=live, other=0)
    is_pair = live & (source >= 0)
    error = tl.load(errors + x, mask=is_pair, other=0.0)
    terms = error[:, None] * read_rows(hidden, source, is_pair, cols, W)
    negative = -1 - source
    for part in tl.static_range(TILES):
        tile = negative // NEGATIVES * TILES + part
        filled = live & (source < 0) & (tile * Q < examples)
        place = tile * NEGATIVES + negative % NEGATIVES
        terms += read_rows(negative_gradients, place, filled, cols, W)
    return terms


@triton.jit(do_not_specialize=["step"])
def update_outputs(
    cursor, rates, run_rows, run_begins, run_lengths, run_starts, long_starts, example_starts,
    sources, errors, hidden, negative_gradients, C, C_square, step, PART: tl.constexpr,
    DECAY: tl.constexpr, NEGATIVES: tl.constexpr, TILES: tl.constexpr, Q: tl.constexpr,
    LONG: tl.constexpr, W: tl.constexpr, R: tl.constexpr, T: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Update the output vectors of the words of pairs and of the negatives."""
    b = tl.load(cursor) + step
    rate, middle = tl.load(rates + b), tl.load(long_starts + b)
    examples = tl.load(example_starts + b + 1) - tl.load(example_starts + b)
    cols, program = tl.arange(0, D), tl.program_id(0)
    if program < LONG:
        for r in range(middle + program, tl.load(run_starts + b + 1), LONG):
            one = r + tl.arange(0, 1)
            live = one >= 0
            row = tl.load(run_rows + one)
            begin, length = tl.load(run_begins + r), tl.load(run_lengths + r)
            before = read_rows(C, row, live, cols, W)
            total = tl.zeros([T, D], tl.float32)
            for x0 in range(0, length, T):
                x = x0 + tl.arange(0, T)
                total += output_terms(
                    begin + x, x < length, sources, errors, hidden, negative_gradients, examples,
                    cols, NEGATIVES, TILES, Q, W,
                )  # fmt: skip
            gradient = tl.sum(total, axis=0)[None, :]
            take_step(C, C_square, row, live, before, gradient, cols, rate, PART, DECAY, W)
    else:
        stride = (tl.num_programs(0) - LONG) * R
        for r0 in range(tl.load(run_starts + b) + (program - LONG) * R, middle, stride):
            r = r0 + tl.arange(0, R)
            live = r < middle
            row = tl.load(run_rows + r, mask=live, other=0)
            begin = tl.load(run_begins + r, mask=live, other=0)
            length = tl.load(run_lengths + r, mask=live, other=0)
            before = read_rows(C, row, live, cols, W)
            total = tl.zeros([R, D], tl.float32)
            for x in range(tl.max(length, axis=0)):
                total += output_terms(
                    begin + x, x < length, sources, errors, hidden, negative_gradients, examples,
                    cols, NEGATIVES, TILES, Q, W,
                )  # fmt: skip
            take_step(C, C_square, row, live, before, total, cols, rate, PART, DECAY, W)


@triton.jit(do_not_specialize=["step"])
def sum_gradients(
    cursor, word_starts, use_begins, use_examples, example_starts, input_begins, gradients,
    word_gradients, step, BATCH: tl.constexpr, W: tl.constexpr, T: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """word_gradients[p] = the gradients of the examples that have word p as an input."""
    b = tl.load(cursor) + step
    first, last = tl.load(word_starts + b), tl.load(word_starts + b + 1)
    examples = tl.load(example_starts + b)
    cols = tl.arange(0, D)
    for p in range(first + tl.program_id(0), last, tl.num_programs(0)):
        end = tl.load(use_begins + p + 1)
        total = tl.zeros([T, D], tl.float32)
        for x0 in range(tl.load(use_begins + p), end, T):
            x = x0 + tl.arange(0, T)
            live = x < end
            q = tl.load(use_examples + x, mask=live, other=0)
            inputs = tl.load(input_begins + examples + q + 1, mask=live, other=1)
            inputs -= tl.load(input_begins + examples + q, mask=live, other=0)
            both = read_rows(gradients, q, live, cols, W)
            both += read_rows(gradients + BATCH * W, q, live, cols, W)
            total += (1.0 / inputs.to(tl.float32))[:, None] * both
        tl.store(word_gradients + (p - first) * W + cols, tl.sum(total, axis=0), mask=cols < W)


@triton.jit
def bucket_terms(
    x, live, before, words, P_slots, weights, scales, word_gradients, dots, cols, W: tl.constexpr
):
    """What items x (R,) add to the gradients of their rows of E; (R, D).

    before (R, D): the rows. Their products with the gradients of the words are those of importance
    weights, and go to `dots`.
    """
    word = tl.load(words + x, mask=live, other=0)
    weight = tl.load(weights + x, mask=live, other=0.0)
    slot = tl.load(P_slots + x, mask=live, other=0)
    scale = tl.load(scales + word, mask=live, other=0.0)
    gradient = read_rows(word_gradients, word, live, cols, W)
    tl.store(dots + slot, scale * tl.sum(product(gradient, before), axis=1), mask=live)
    return weight[:, None] * gradient


@triton.jit(do_not_specialize=["step"])
def update_buckets(
    cursor, rates, run_rows, run_begins, run_lengths, run_starts, long_starts, words, P_slots,
    weights, scales, word_gradients, dots, E, E_square, step, PART: tl.constexpr,
    DECAY: tl.constexpr, LONG: tl.constexpr, W: tl.constexpr, R: tl.constexpr, T: tl.constexpr,
    D: tl.constexpr,
):  # fmt: skip
    """Update the rows of E, and compute the gradients of the importance weights."""
    b = tl.load(cursor) + step
    rate, middle = tl.load(rates + b), tl.load(long_starts + b)
    cols, program = tl.arange(0, D), tl.program_id(0)
    if program < LONG:
        for r in range(middle + program, tl.load(run_starts + b + 1), LONG):
            one = r + tl.arange(0, 1)
            live = one >= 0
            row = tl.load(run_rows + one)
            begin, length = tl.load(run_begins + r), tl.load(run_lengths + r)
            before = read_rows(E, row, live, cols, W)
            total = tl.zeros([T, D], tl.float32)
            for x0 in range(0, length, T):
                x = x0 + tl.arange(0, T)
                total += bucket_terms(
                    begin + x, x < length, tl.broadcast_to(before, [T, D]), words, P_slots,
                    weights, scales, word_gradients, dots, cols, W,
                )  # fmt: skip
            gradient = tl.sum(total, axis=0)[None, :]
            take_step(E, E_square, row, live, before, gradient, cols, rate, PART, DECAY, W)
    else:
        stride = (tl.num_programs(0) - LONG) * R
        for r0 in range(tl.load(run_starts + b) + (program - LONG) * R, middle, stride):
            r = r0 + tl.arange(0, R)
            live = r < middle
            row = tl.load(run_rows + r, mask=live, other=0)
            begin = tl.load(run_begins + r, mask=live, other=0)
            length = tl.load(run_lengths + r, mask=live, other=0)
            before = read_rows(E, row, live, cols, W)
            total = tl.zeros([R, D], tl.float32)
            for x in range(tl.max(length, axis=0)):
                total += bucket_terms(
                    begin + x, x < length, before, words, P_slots, weights, scales,
                    word_gradients, dots, cols, W,
                )  # fmt: skip
            take_step(E, E_square, row, live, before, total, cols, rate, PART, DECAY, W)


@triton.jit
def take_weight_step(
    P, P_square, rows, live, gradient, i, RATE: tl.constexpr, k: tl.constexpr
):  # fmt: skip
    """A step of Adagrad for rows (R,) of P, with one accumulator each; gradient (R, k)."""
    square = tl.load(P_square + rows, mask=live, other=0.0)
    square += tl.sum(product(gradient, gradient), axis=1) * (1.0 / k) + TINY
    tl.store(P_square + rows, square, mask=live)
    mask = live[:, None] & (i < k)[None, :]
    places = row_places(P, rows, i, k)
    after = tl.load(places, mask=mask, other=0.0) + (RATE / tl.sqrt(square))[:, None] * gradient
    tl.store(places, after, mask=mask)


@triton.jit(do_not_specialize=["step"])
def update_weights(
    cursor, run_rows, run_begins, run_lengths, run_starts, long_starts, dots, P, P_square, step,
    RATE: tl.constexpr, LONG: tl.constexpr, k: tl.constexpr, R: tl.constexpr, T: tl.constexpr,
    KP: tl.constexpr,
):  # fmt: skip
    """Update the rows of P, whose items lie side by side in `dots`."""
    b = tl.load(cursor) + step
    middle = tl.load(long_starts + b)
    i, program = tl.arange(0, KP), tl.program_id(0)
    if program < LONG:
        for r in range(middle + program, tl.load(run_starts + b + 1), LONG):
            one = r + tl.arange(0, 1)
            begin, length = tl.load(run_begins + r), tl.load(run_lengths + r)
            total = tl.zeros([T, KP], tl.float32)
            for x0 in range(0, length, T):
                x = x0 + tl.arange(0, T)
                total += read_rows(dots, begin + x, x < length, i, k)
            gradient = tl.sum(total, axis=0)[None, :]
            take_weight_step(
                P, P_square, tl.load(run_rows + one), one >= 0, gradient, i, RATE, k
            )  # fmt: skip
    else:
        stride = (tl.num_programs(0) - LONG) * R
        for r0 in range(tl.load(run_starts + b) + (program - LONG) * R, middle, stride):
            r = r0 + tl.arange(0, R)
            live = r < middle
            row = tl.load(run_rows + r, mask=live, other=0)
            begin = tl.load(run_begins + r, mask=live, other=0)
            length = tl.load(run_lengths + r, mask=live, other=0)
            total = tl.zeros([R, KP], tl.float32)
            for x in range(tl.max(length, axis=0)):
                total += read_rows(dots, begin + x, x < length, i, k)
            take_weight_step(P, P_square, row, live, total, i, RATE, k)


@triton.jit
def advance(cursor, COUNT: tl.constexpr):
    """Point to the batches behind the next COUNT."""
    tl.store(cursor, tl.load(cursor) + COUNT)
