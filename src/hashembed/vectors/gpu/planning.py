"""From a chunk of the corpus to what all of its batches do, on the GPU.

`plan_chunk` gives what `plan_batch` of the CPU gives, for many batches at once: whole-array
operations, and one stable sort for each table. The order of items in a run is the CPU's.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hashembed.vectors.arrays import GROUP, NEGATIVES
from hashembed.vectors.gpu import plan_kernels as triton_plan
from hashembed.vectors.gpu.arrays import ChunkPlan, DeviceVocabulary, Runs
from hashembed.vectors.gpu.pieces import Chunk

INT = torch.int32


class Limits(NamedTuple):
    """Sizes that the plan needs."""

    num_rows: int  # K
    num_buckets: int  # B
    hashes: int  # k
    cbow: bool
    short: int  # most items of a short run of E and C
    short_weights: int  # the same of P
    together: int  # batches in a CUDA graph


class _Uses(NamedTuple):
    """Words that examples use, as inputs or as outputs."""

    begins: Tensor  # (examples + 1,)
    examples: Tensor  # (uses,): in the chunk
    words: Tensor  # (uses,)


class _Words(NamedTuple):
    """The distinct input words of all batches."""

    words: Tensor  # (words,)
    batches: Tensor  # (words,)
    local: Tensor  # (words,): the number of a word in its batch
    starts: Tensor  # (batches + 1,)
    use_begins: Tensor  # (words + 1,)
    use_examples: Tensor  # (inputs,): local
    of_inputs: Tensor  # (inputs,): the local word of each input


class _Batches(NamedTuple):
    number: int
    example_starts: Tensor  # (batches + 1,), int64
    of_examples: Tensor  # (examples,), int64
    local_examples: Tensor  # (examples,), int64


def plan_chunk(
    chunk: Chunk, vocabulary: DeviceVocabulary, limits: Limits, device: torch.device
) -> ChunkPlan:
    """The plan of all batches of a chunk, which has at least one."""

    def moved(array: object) -> Tensor:
        return torch.as_tensor(array, device=device)

    V, words = len(vocabulary.limits), moved(chunk.words).long()
    batches = _batches(moved(chunk.example_starts).long())
    near, alone = _find_uses(words, moved(chunk.texts), moved(chunk.windows))
    inputs, pairs = (near, alone) if limits.cbow else (alone, near)

    distinct = _distinct_words(inputs, batches, V)
    hidden_rows = batches.local_examples
    if not limits.cbow:  # an example without pairs has no input, and reads any row
        padded = torch.cat([distinct.of_inputs, distinct.of_inputs.new_zeros(1)])
        hidden_rows = padded[inputs.begins[:-1]]

    groups = (batches.example_starts.diff() + (GROUP - 1)) // GROUP
    group_starts = _begins(groups)
    group_batches = _repeat(torch.arange(batches.number, device=device), groups)
    pair_words, pair_begins = pairs.words.to(INT), pairs.begins.to(INT)
    negatives = torch.empty(len(group_batches) * NEGATIVES, dtype=INT, device=device)
    hits = torch.empty(len(words), dtype=torch.int64, device=device)
    grid = (len(group_batches),)
    triton_plan.draw_negatives[grid](
        group_batches, group_starts, moved(chunk.numbers), moved(chunk.seeds), vocabulary.limits,
        vocabulary.aliases, negatives, V, NEGATIVES=NEGATIVES, num_warps=1,
    )  # fmt: skip
    triton_plan.find_hits[grid](
        group_batches, group_starts, batches.example_starts, pair_begins, pair_words, negatives,
        hits, GROUP=GROUP, NEGATIVES=NEGATIVES, num_warps=4,
    )  # fmt: skip

    entries = _entries(distinct, vocabulary, batches.number, limits)
    outputs = _outputs(pairs, negatives, group_batches, group_starts, hidden_rows, batches, V)
    of_C = list_runs(outputs.keys, V, batches.number, limits.short)
    fill = limits.together

    return ChunkPlan(
        rates=_filled(moved(chunk.rates), -1, fill),
        example_starts=_filled(batches.example_starts, 0, fill).to(INT),
        group_starts=_filled(group_starts, 0, fill).to(INT),
        word_starts=_filled(distinct.starts, 0, fill).to(INT),
        pair_begins=pair_begins,
        pair_words=pair_words,
        pair_slots=outputs.slots,
        hidden_rows=hidden_rows.to(INT),
        negatives=negatives,
        hits=hits,
        input_begins=inputs.begins.to(INT),
        input_words=distinct.of_inputs.to(INT),
        use_begins=distinct.use_begins.to(INT),
        use_examples=distinct.use_examples.to(INT),
        word_firsts=vocabulary.offsets[distinct.words],
        entry_begins=entries.begins,
        E_slots=entries.E_slots,
        E_words=entries.E_words,
        P_slots=entries.P_slots,
        C_sources=outputs.sources,
        **_named("E", entries.of_E, fill),
        **_named("P", entries.of_P, fill),
        **_named("C", of_C, fill),
    )


def _named(table: str, runs: Runs, fill: int) -> dict[str, Tensor]:
    starts = _filled(runs.starts, 0, fill)
    # Batches that fill up a graph have no runs at all.
    long_starts = torch.cat([runs.long_starts, starts[len(runs.starts) :]])
    return {
        f"{table}_rows": runs.rows,
        f"{table}_begins": runs.begins,
        f"{table}_lengths": runs.lengths,
        f"{table}_starts": starts.to(INT),
        f"{table}_long_starts": long_starts.to(INT),
    }


def _filled(starts: Tensor, extra: int, multiple: int) -> Tensor:
    """Repeat the last number, for batches that fill up a CUDA graph."""
    batches = len(starts) - 1 - extra
    more = -batches % multiple
    return torch.cat([starts, starts[-1:].expand(more)])


def _begins(counts: Tensor) -> Tensor:
    """Counts (n,) -> the sums of those before each, and of all; (n + 1,)."""
    out = counts.new_zeros(len(counts) + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=out[1:])
    return out


def _repeat(values: Tensor, counts: Tensor) -> Tensor:
    return torch.repeat_interleave(values, counts)


def _batches(starts: Tensor) -> _Batches:
    count = len(starts) - 1
    of_examples = _repeat(torch.arange(count, device=starts.device), starts.diff())
    examples = torch.arange(len(of_examples), device=starts.device)
    return _Batches(count, starts, of_examples, examples - starts[of_examples])


def _find_uses(words: Tensor, texts: Tensor, windows: Tensor) -> tuple[_Uses, _Uses]:
    """The words around each example; and itself, unless there are none."""
    x = torch.arange(len(words), device=words.device)
    left = torch.minimum(windows, x - torch.searchsorted(texts, texts))
    right = torch.minimum(windows, torch.searchsorted(texts, texts, right=True) - 1 - x)
    counts = left + right
    begins = _begins(counts)
    examples = _repeat(x, counts)
    place = torch.arange(len(examples), device=words.device) - begins[examples]
    before = left[examples]
    near = examples - before + place + (place >= before)
    some = counts > 0
    alone = some.nonzero().flatten()
    return _Uses(begins, examples, words[near]), _Uses(_begins(some), alone, words[alone])


def _distinct_words(inputs: _Uses, batches: _Batches, V: int) -> _Words:
    of_inputs = batches.of_examples[inputs.examples]
    keys, order = _sorted(of_inputs * V + inputs.words, batches.number * V)
    changes = _changes(keys)
    firsts = changes.nonzero().flatten()
    first_keys = keys[firsts].long()
    word_batches = first_keys // V
    starts = _starts(word_batches, batches.number)
    run = changes.cumsum(0) - 1
    local = run - starts[word_batches[run]] if len(run) else run
    places = torch.empty_like(run)
    places[order] = local
    ends = firsts.new_full((1,), len(keys))
    return _Words(
        words=first_keys - word_batches * V,
        batches=word_batches,
        local=torch.arange(len(firsts), device=keys.device) - starts[word_batches],
        starts=starts,
        use_begins=torch.cat([firsts, ends]),
        use_examples=batches.local_examples[inputs.examples[order]],
        of_inputs=places,
    )


class _Entries(NamedTuple):
    begins: Tensor
    E_slots: Tensor
    E_words: Tensor
    P_slots: Tensor
    of_E: Runs
    of_P: Runs


def _entries(
    distinct: _Words, vocabulary: DeviceVocabulary, batches: int, limits: Limits
) -> _Entries:
    """The entries of all words, sorted by row of E, and by row of P."""
    K, B, k = limits.num_rows, limits.num_buckets, limits.hashes
    firsts = vocabulary.offsets[distinct.words]
    sizes = vocabulary.offsets[distinct.words + 1] - firsts
    begins = _begins(sizes)
    word = _repeat(torch.arange(len(sizes), device=sizes.device), sizes)
    entry = torch.arange(len(word), device=sizes.device)
    at = entry + (firsts - begins[:-1])[word]  # in the vocabulary
    batch = distinct.batches[word]

    P_keys, P_order = _sorted(batch * K + vocabulary.rows[at], batches * K)
    P_slots = torch.empty_like(entry, dtype=INT)
    P_slots[P_order] = entry.to(INT)

    buckets = vocabulary.buckets.view(-1, k)[at]  # (entries, k)
    E_keys, E_order = _sorted(((batch * B)[:, None] + buckets).flatten(), batches * B)
    E_slots = torch.empty_like(E_order, dtype=INT)
    E_slots[E_order] = torch.arange(len(E_order), dtype=INT, device=E_order.device)
    owner = E_order // k
    return _Entries(
        begins=begins.to(INT),
        E_slots=E_slots,
        E_words=distinct.local.to(INT)[word][owner],
        P_slots=P_slots[owner] * k + (E_order - owner * k).to(INT),
        of_E=list_runs(E_keys, B, batches, limits.short),
        of_P=list_runs(P_keys, K, batches, limits.short_weights),
    )


class _Outputs(NamedTuple):
    keys: Tensor  # (items,), sorted
    slots: Tensor  # (pairs,)
    sources: Tensor  # (items,)


def _outputs(
    pairs: _Uses,
    negatives: Tensor,
    group_batches: Tensor,
    group_starts: Tensor,
    hidden_rows: Tensor,
    batches: _Batches,
    V: int,
) -> _Outputs:
    """Pairs and negatives, sorted by batch and word; of one word, pairs come first."""
    of_pairs = batches.of_examples[pairs.examples] * V + pairs.words
    of_negatives = group_batches.repeat_interleave(NEGATIVES)
    number = torch.arange(len(negatives), device=negatives.device)
    local = number - group_starts[of_negatives] * NEGATIVES
    keys, order = _sorted(
        torch.cat([of_pairs, of_negatives * V + negatives]), batches.number * V
    )  # fmt: skip
    slots = torch.empty_like(order, dtype=INT)
    slots[order] = torch.arange(len(order), dtype=INT, device=order.device)
    sources = torch.cat([hidden_rows[pairs.examples], -1 - local]).to(INT)
    return _Outputs(keys, slots[: len(of_pairs)], sources[order])


def _sorted(keys: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """Stable; keys below 2^31 are sorted in half the time."""
    if limit < 2**31:
        keys = keys.to(INT)
    found = torch.sort(keys, stable=True)
    return found.values, found.indices


def _changes(keys: Tensor) -> Tensor:
    """Which sorted keys differ from the one before; (n,), bool."""
    changes = torch.ones_like(keys, dtype=torch.bool)
    torch.ne(keys[1:], keys[:-1], out=changes[1:])
    return changes


def _starts(batches: Tensor, count: int) -> Tensor:
    """Sorted numbers of batches -> where each begins; (count + 1,)."""
    return torch.searchsorted(batches, torch.arange(count + 1, device=batches.device))


def list_runs(keys: Tensor, rows: int, batches: int, short: int) -> Runs:
    """Sorted keys, batch * rows + row -> runs. A short run has at most `short` items."""
    begins = _changes(keys).nonzero().flatten()
    at = keys[begins].long()
    batch = at // rows
    lengths = torch.cat([begins, begins.new_full((1,), len(keys))]).diff()
    starts = _starts(batch, batches)
    is_long = lengths > short
    long_before = _begins(is_long)
    longs = long_before[starts]  # before each batch
    rank = long_before[:-1] - longs[batch]  # among the long runs of its batch
    long_starts = starts[1:] - longs.diff()
    number = torch.arange(len(begins), device=keys.device)
    place = torch.where(is_long, long_starts[batch] + rank, number - rank)

    def placed(values: Tensor) -> Tensor:
        out = torch.empty(len(begins), dtype=INT, device=keys.device)
        out[place] = values.to(INT)
        return out

    return Runs(placed(at - batch * rows), placed(begins), placed(lengths), starts, long_starts)
