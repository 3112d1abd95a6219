"""Hash embeddings under sentence models: a convolutional and a recurrent one over words.

The paper has bags only and leaves these to future work. Both models see the words in their order.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from experiments.data.datasets import Dataset
from hashembed.engine.labels import split
from hashembed.hashing.bags import Bags
from hashembed.text.config import TextConfig
from hashembed.text.pipeline import text_to_bags

HELD = 0.1
LONGEST = 64  # words of a text; the rest is cut off
RATE, BATCH = 0.002, 64
DROPOUT = 0.5
FILTERS, WINDOWS = 64, (3, 4, 5)  # Kim 2014, with fewer filters
STATE = 64  # of the recurrent model, in each direction
FIRST_WORD = 2  # ids of a dictionary: 0 is no word, 1 an unknown one


@dataclass(frozen=True)
class Sentence:
    """A sentence model over an embedding of words.

    model: "convolution", three widths and the maximum over time, as in Kim 2014; or "recurrent", a
    GRU in both directions and the maximum over time. embedding: "dictionary" is `nn.Embedding` over
    the most frequent words of the training rows (`size`; None is all), one unknown word, initial
    values N(0, 0.1); "hash" is `HashEmbedding` with K = `size` and `buckets` component vectors
    ("trick": without importance weights, k = 1).
    Adam at 0.002, batches of 64, dropout before the last layer; the best of `passes` on a tenth of
    the training rows.
    """

    model: str
    embedding: str
    size: int | None = None
    buckets: int | None = None
    dim: int = 50
    passes: dict[str, int] = field(default_factory=lambda: {"trec": 8, "sst2": 2})

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        """Train and test -> metrics."""
        import time

        import torch

        from experiments.models.sentence_networks import accuracy, build, one_pass

        if threads:
            torch.set_num_threads(threads)
        torch.manual_seed(seed)
        train, test = self.ids(data)
        labels, truth = torch.from_numpy(data.train.labels), torch.from_numpy(data.test.labels)
        kept, held = split(len(train), HELD, seed)
        network = build(self, int(train.max()) + 1, data.classes, seed)
        optimizer = torch.optim.Adam(network.parameters(), RATE)
        best, state, chosen = -1.0, {}, 0
        start = time.perf_counter()
        for number in range(self.passes.get(data.name, 10)):
            order = np.random.default_rng([seed, number]).permutation(kept)
            one_pass(network, optimizer, train, labels, order)
            reached = accuracy(network, train[held], labels[held])
            if reached > best:
                best, chosen = reached, number + 1
                state = {name: value.clone() for name, value in network.state_dict().items()}
        network.load_state_dict(state)
        weights = {name: p.numel() for name, p in network.named_parameters()}
        return {
            "test_accuracy": accuracy(network, test, truth),
            "validation_accuracy": best,
            "chosen": {"passes": chosen},
            "parameters": sum(weights.values()),
            "embedding_parameters": sum(weights[n] for n in weights if n.startswith("embedding.")),
            "train_seconds": time.perf_counter() - start,
        }

    def ids(self, data: Dataset) -> tuple[Any, Any]:
        """Word ids of training and test rows, (texts, words); 0 is padding."""
        import torch

        words = TextConfig((1, 1))
        parts = [text_to_bags(part.texts, words) for part in (data.train, data.test)]
        if self.embedding == "dictionary":
            ranked = ranking(parts[0].keys)
            size = len(ranked) if self.size is None else min(self.size, len(ranked))
            parts = [Bags(ranks(bags.keys, ranked[:size]), bags.offsets) for bags in parts]
        train, test = (torch.from_numpy(table(bags)) for bags in parts)
        return train, test


def ranking(keys: np.ndarray) -> np.ndarray:
    """Distinct keys, the most frequent first."""
    found, counts = np.unique(keys, return_counts=True)
    return found[np.argsort(-counts, kind="stable")]


def ranks(keys: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The index of each key among the words, from `FIRST_WORD`; 1 for unknown words."""
    order = np.argsort(words)
    place = np.searchsorted(words, keys, sorter=order).clip(max=len(words) - 1)
    known = words[order[place]] == keys
    return np.where(known, order[place] + FIRST_WORD, 1)


def table(bags: Bags) -> np.ndarray:
    """The first words of each bag in order, padded with zeros: (bags, words)."""
    lengths = np.minimum(bags.lengths, LONGEST)
    columns = np.arange(max(int(lengths.max(initial=0)), max(WINDOWS)))
    filled = columns < lengths[:, None]
    out = np.zeros(filled.shape, np.int64)
    out[filled] = bags.keys[(bags.offsets[:-1, None] + columns)[filled]]
    return out


EMBEDDINGS: dict[str, dict] = {
    "dictionary, all words": {"embedding": "dictionary"},
    "dictionary, 1,300 words": {"embedding": "dictionary", "size": 1_300},
    "hashing trick, B = 1,300": {"embedding": "trick", "buckets": 1_300},
    "hash, K = 8,000, B = 1,000": {"embedding": "hash", "size": 8_000, "buckets": 1_000},
    "hash, K = 16,000, B = 3,000": {"embedding": "hash", "size": 16_000, "buckets": 3_000},
}
PLAN = {
    f"{model}, {name}": replace(Sentence(model, "dictionary"), **settings)
    for model in ("convolution", "recurrent")
    for name, settings in EMBEDDINGS.items()
}
SETS = ("trec", "sst2")
