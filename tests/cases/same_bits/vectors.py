"""Word vectors: training, phrases, vectors of texts, nearest words, smaller tables."""

import numpy as np

from hashembed.vectors.neighbours import NearestRows
from hashembed.vectors.word_vectors import WordVectors

WORDS = [
    f"{a}{b}" for a in ("un", "re", "house", "cat", "walk", "x") for b in ("", "s", "ing", "er")
]


def cases():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 15)) for _ in range(60)] + ["new york city"] * 20
    for model, threads, dim, hashes in (("skipgram", 1, 13, 2), ("cbow", 3, 40, 1)):
        vectors = WordVectors(
            model, dim, num_hashes=hashes, min_count=1, passes=2, threads=threads, phrases=2,
            batch_size=70,
        ).fit(texts)  # fmt: skip
        state = vectors.model.state._asdict()
        yield f"{model}, tables", state
        yield f"{model}, words", [vectors.index_to_key, vectors.vectors]
        yield f"{model}, texts", vectors.transform(["unheard walkers", "", "new york", "cat"])
        yield f"{model}, nearest", [tuple(near) for near in vectors.nearest("walking", 5)]
    table = rng.standard_normal((5000, 45), np.float32)
    scan = NearestRows(table, 2)
    found = [scan.find(table[i], 10, np.array([i])) for i in range(20)]
    yield "scan", found
