"""Keys, strings behind keys, counts and dictionaries of awkward texts."""

import random

import numpy as np
import pyarrow as pa

from hashembed.hashing.bags import Bags
from hashembed.text.config import TextConfig
from hashembed.text.counts.distinct import DistinctCounter, count_distinct
from hashembed.text.counts.frequent import HeavyHitters
from hashembed.text.dictionary import Dictionary
from hashembed.text.pipeline import text_to_bags
from hashembed.text.spans import ngrams_of

CONFIGS = {
    "words": TextConfig(),
    "case": TextConfig((2, 4), lowercase=False),
    "nine": TextConfig((1, 9)),
    "subwords": TextConfig((1, 3), subwords=(3, 6)),
    "letters": TextConfig((1, 1), subwords=(1, 2), punctuation="keep"),
    "punctuation": TextConfig((1, 2), punctuation="keep"),
    "damped": TextConfig((1, 2), subwords=(2, 3), repeats="damp"),
    "once": TextConfig((1, 3), repeats="once"),
}
PARTS = (
    *(" ", "\n", "\t\t", " ", "\u2003", ".", "...", "…", "¿", "。", "-", ":-)", "'", "_", "\0"),
    *("a", "I", "The", "fifteen__chars", "exactly15bytes_", "sixteen_bytes___", "W" * 63, "w" * 64),
    *(
        "é",
        "Straße",
        "ΟΔΟΣ",
        "İ",
        "ŉ",
        "ﬃ",
        "ΐ",
        "日本語",
        "🎉",
        "👩‍👩‍👧",
        "\ufffd",
        "a\u0301",
        "\U0010ffff",
    ),
)
BROKEN = (
    b"\x80",
    b"\xc3",
    b"\xe2\x80",
    b"\xf0\x9f",
    b"\xed\xa0\x80",
    b"\xff",
    b"\xc0\xaf",
    b"\xe3",
)


def awkward(seed, count):
    """Texts of all lengths up to a few hundred bytes."""
    draw = random.Random(seed)
    return ["".join(draw.choices(PARTS, k=draw.randrange(40))) for _ in range(count)]


def broken(seed, count):
    """Bytes that are not UTF-8."""
    draw = random.Random(seed)
    parts = [*(part.encode() for part in PARTS), *BROKEN * 3]
    return [b"".join(draw.choices(parts, k=draw.randrange(40))) for _ in range(count)]


def cases():
    texts, bad = awkward(0, 300), pa.array([*broken(1, 300), None], pa.large_binary())
    long = " ".join(awkward(2, 20)) * 4000  # several segments
    for name, config in CONFIGS.items():
        for kind, column in (
            ("few", texts[:60]),
            ("one", texts[3:4]),
            ("all", texts),
            ("bad", bad),
        ):
            for threads in (1, 3):
                bags = text_to_bags(column, config, threads)
                yield f"{name} {kind} {threads}", (bags.keys, bags.offsets)
        keys, ngrams = ngrams_of(" ".join(texts[:8]), config)
        yield f"{name} spans", (keys, [str(ngram) for ngram in ngrams])
    bags = text_to_bags([long, "end"], CONFIGS["punctuation"], 2)
    yield "long", (bags.keys, bags.offsets)
    dictionary = Dictionary.count(texts, TextConfig((1, 4)), 500, min_count=2)
    tensors = dictionary.tensors()
    again = Dictionary.from_tensors(tensors, dictionary.config)
    ranks = dictionary.bags([*texts, *awkward(3, 50)], "share")
    yield "dictionary", (dictionary.keys, dictionary.counts, dictionary.strings, tensors)
    yield "dictionary again", (again.keys, again.strings, ranks.keys, ranks.offsets)
    keys = np.random.default_rng(4).zipf(1.3, 50_000).astype(np.int64) * 0x9E3779B97F4A7C1
    hitters = HeavyHitters(memory=1 << 13, threshold=5, threads=2)
    yield "frequent", (hitters.update(keys), hitters.items(), hitters.floor, hitters.distinct())
    counter = DistinctCounter()
    counter.update(keys)
    yield "distinct", (counter.registers, counter.estimate(), count_distinct(keys))
    bags = Bags(keys, np.arange(0, len(keys) + 1, 50))
    chosen = bags.take(np.random.default_rng(5).permutation(len(keys) // 50))
    yield "bags", (chosen.keys, chosen.offsets)
