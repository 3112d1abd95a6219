"""The plan of a chunk against plain Python."""

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
import torch

from hashembed.vectors.arrays import GROUP, NEGATIVES, Vocabulary
from hashembed.vectors.gpu.arrays import vocabulary_on
from hashembed.vectors.gpu.pieces import Chunk
from hashembed.vectors.gpu.planning import Limits, list_runs, plan_chunk

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
V, K, B, MASK = 7, 11, 5, 2**64 - 1


def random_bits(seed, counter):
    x = (seed + (counter + 1) * 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


def vocabulary(k):
    rng = np.random.default_rng(k)
    sizes = rng.integers(1, 5, V)
    entries = int(sizes.sum())

    def drawn(high, count):
        return rng.integers(0, high, count, np.uint32)

    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Vocabulary(
        offsets, drawn(K, entries), drawn(B, entries * k), drawn(2**32, V), drawn(V, V)
    )


@st.composite
def chunks(draw):
    """Chunks of one piece with batches of at most 40 examples."""
    texts = draw(st.lists(st.lists(st.integers(0, V - 1), max_size=20), min_size=1, max_size=6))
    words = np.array([word for text in texts for word in text], np.int32)
    if not len(words):
        words, texts = np.zeros(1, np.int32), [[0]]
    size = draw(st.integers(1, 40))
    starts = np.append(np.arange(0, len(words), size), len(words)).astype(np.int32)
    batches = len(starts) - 1
    return Chunk(
        [],
        words,
        np.repeat(np.arange(len(texts)), [len(text) for text in texts]).astype(np.int32),
        np.array([draw(st.integers(1, 4)) for _ in words], np.int32),
        starts,
        np.arange(batches, dtype=np.int64),
        np.full(batches, draw(st.integers(-(2**63), 2**63 - 1)), np.int64),
        np.arange(batches, dtype=np.float32),
    )


def windows_of(chunk):
    """The words around each example."""
    n = len(chunk.words)
    return [
        [
            int(chunk.words[y])
            for y in range(max(x - chunk.windows[x], 0), min(x + chunk.windows[x] + 1, n))
            if y != x and chunk.texts[y] == chunk.texts[x]
        ]
        for x in range(n)
    ]


def negatives_of(chunk, b, vocab):
    examples = int(chunk.example_starts[b + 1] - chunk.example_starts[b])
    out = []
    for x in range(-(-examples // GROUP) * NEGATIVES):
        bits = random_bits(int(chunk.seeds[b]), int(chunk.numbers[b]) * 2**20 + x)
        v = (bits >> 32) * V >> 32
        out.append(v if bits & 0xFFFFFFFF <= vocab.limits[v] else int(vocab.aliases[v]))
    return out


def runs_of(plan, table, b):
    """The runs of a batch: row -> (first item, items)."""
    starts, longs = plan[f"{table}_starts"], plan[f"{table}_long_starts"]
    lengths = plan[f"{table}_lengths"]
    assert all(lengths[starts[b] : longs[b]] <= 2)
    assert all(lengths[longs[b] : starts[b + 1]] > 2)
    own = slice(starts[b], starts[b + 1])
    found = zip(
        plan[f"{table}_rows"][own], plan[f"{table}_begins"][own], lengths[own], strict=True
    )  # fmt: skip
    return {int(row): (int(begin), int(length)) for row, begin, length in found}


@settings(deadline=None, max_examples=25)
@given(chunks(), st.booleans(), st.integers(1, 3))
def test_a_plan_does_what_loops_do(chunk, cbow, k):
    vocab = vocabulary(k)
    limits = Limits(K, B, k, cbow, 2, 2, 3)
    made = plan_chunk(chunk, vocabulary_on(vocab, DEVICE), limits, DEVICE)
    plan = {name: part.cpu().numpy() for name, part in made._asdict().items()}
    near = windows_of(chunk)
    batches = len(chunk.rates)
    assert len(plan["rates"]) % 3 == 0
    for name in ("example_starts", "group_starts", "word_starts", "E_starts", "P_starts"):
        assert len(plan[name]) == len(plan["rates"]) + 1
        assert (plan[name][batches:] == plan[name][batches]).all()
    for b in range(batches):
        check_batch(b, chunk, plan, vocab, near, cbow, k)


def check_batch(b, chunk, plan, vocab, near, cbow, k):
    first, last = chunk.example_starts[b], chunk.example_starts[b + 1]
    alone = [[int(word)] if found else [] for word, found in zip(chunk.words, near, strict=True)]
    inputs, pairs = (near, alone) if cbow else (alone, near)
    distinct = sorted({word for x in range(first, last) for word in inputs[x]})
    at = plan["word_starts"][b]
    assert plan["word_starts"][b + 1] - at == len(distinct)
    uses = [
        x - first for word in distinct for x in range(first, last) for w in inputs[x] if w == word
    ]
    begins = plan["use_begins"][at : at + len(distinct) + 1]
    assert plan["use_examples"][begins[0] : begins[-1]].tolist() == uses
    negatives = negatives_of(chunk, b, vocab)
    start = plan["group_starts"][b] * NEGATIVES
    assert plan["negatives"][start : start + len(negatives)].tolist() == negatives

    items = []  # of C: word, source
    slots = {}
    for x in range(first, last):
        own, mine = plan["input_begins"][x : x + 2], plan["pair_begins"][x : x + 2]
        assert [distinct[p] for p in plan["input_words"][slice(*own)]] == inputs[x]
        assert plan["pair_words"][slice(*mine)].tolist() == pairs[x]
        group = (x - first) // GROUP * NEGATIVES
        hits = sum(2**j for j in range(NEGATIVES) if negatives[group + j] in pairs[x])
        assert int(plan["hits"][x]) & MASK == hits
        source = x - first if cbow else distinct.index(chunk.words[x]) if pairs[x] else 0
        if pairs[x]:
            assert plan["hidden_rows"][x] == source
        for word, slot in zip(pairs[x], plan["pair_slots"][slice(*mine)], strict=True):
            slots[len(items)] = slot
            items.append((word, source))
    items += [(word, -1 - n) for n, word in enumerate(negatives)]
    runs = runs_of(plan, "C", b)
    assert set(runs) == {word for word, _ in items}
    for row, (begin, length) in runs.items():
        numbers = [n for n, (word, _) in enumerate(items) if word == row]
        sources = [items[n][1] for n in numbers]
        assert plan["C_sources"][begin : begin + length].tolist() == sources
        for place, n in enumerate(numbers):
            assert slots.get(n, begin + place) == begin + place

    check_entries(b, plan, vocab, distinct, at, k)


def check_entries(b, plan, vocab, distinct, at, k):
    E_runs, P_runs = runs_of(plan, "E", b), runs_of(plan, "P", b)
    E_items, P_items = {}, {}  # row -> places
    for p, word in enumerate(distinct):
        begin, end = plan["entry_begins"][at + p : at + p + 2]
        offset = vocab.offsets[word]
        assert plan["word_firsts"][at + p] == offset
        assert end - begin == vocab.offsets[word + 1] - offset
        for e in range(end - begin):
            P_row = int(vocab.rows[offset + e])
            P_items.setdefault(P_row, []).append(None)
            P_place = P_runs[P_row][0] + len(P_items[P_row]) - 1
            for i in range(k):
                row = int(vocab.buckets[(offset + e) * k + i])
                E_items.setdefault(row, []).append(None)
                place = E_runs[row][0] + len(E_items[row]) - 1
                assert plan["E_slots"][(begin + e) * k + i] == place
                assert plan["E_words"][place] == p
                assert plan["P_slots"][place] == P_place * k + i
    for runs, items in ((E_runs, E_items), (P_runs, P_items)):
        assert {row: length for row, (_, length) in runs.items()} == {
            row: len(found) for row, found in items.items()
        }


def test_keys_of_64_bits():
    """Many batches of large tables: the row of a key is still exact."""
    rows = 2**31
    keys = torch.tensor([5, 5, rows + 2**31 - 1, 3 * rows], device=DEVICE)
    runs = list_runs(keys, rows, 4, 1)
    assert runs.rows.tolist() == [5, 2**31 - 1, 0]
    assert runs.lengths.tolist() == [2, 1, 1]
    assert runs.starts.tolist() == [0, 1, 2, 2, 3]
    assert runs.long_starts.tolist() == [0, 2, 2, 3]
