"""Models of the torch engine with the paper's protocol: shallow or deep, dictionary, ensemble."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.data.datasets import Dataset
from hashembed.engine.defaults import TrainConfig
from hashembed.engine.ensemble import Ensemble, member_seeds
from hashembed.engine.labels import Labels, split
from hashembed.engine.loop import evaluate, fit
from hashembed.engine.protocol import Engine
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec
from hashembed.text.config import TextConfig
from hashembed.text.dictionary import NGRAMS, SIZE, Dictionary
from hashembed.text.pipeline import text_to_bags

VALIDATION = 0.05
STEPS = 100  # at least, in a pass; small sets with the smallest batch have fewer
BATCHES = (64, 1024)


@lru_cache(maxsize=1)
def hashed_bags(data: Dataset, ngrams: tuple[int, int]) -> tuple[Bags, Bags]:
    """The keys of train and test rows, cached for the next run."""
    text = TextConfig(ngrams, lowercase=False)
    return text_to_bags(data.train.texts, text), text_to_bags(data.test.texts, text)


@lru_cache(maxsize=1)
def ranked_bags(data: Dataset) -> tuple[Bags, Bags, int]:
    """The ranks of the most frequent n-grams in train and test rows, and how many there are."""
    found = Dictionary.count(data.train.texts, TextConfig(NGRAMS, lowercase=False), SIZE)
    return found.bags(data.train.texts), found.bags(data.test.texts), len(found)


def cut(bags: Bags, size: int) -> Bags:
    """Keep the ranks below `size`: the same as a dictionary of that size gives."""
    kept = bags.keys < size
    return Bags(bags.keys[kept], np.concatenate([[0], np.cumsum(kept)])[bags.offsets])


def rule_for_batch(rows: int) -> int:
    """The batch size, which the paper does not give: a power of two with at least `STEPS` steps."""
    low, high = BATCHES
    return int(np.clip(2 ** int(np.log2(max(rows / STEPS, 1))), low, high))


@dataclass(frozen=True)
class Deep:
    """A model of the torch engine with the paper's protocol. Its defaults are table 2's hash.

    The protocol: case kept, snippets of 4 to 100 n-grams, Adam at a constant 0.001, 5% of the
    training rows to stop by, patience 10 on accuracy, whole documents at test time.

    dictionary: how many of the most frequent 1- to 9-grams to keep. Their ranks replace D1, and
    num_embeddings and ngrams are not used. None: hashing.
    num_buckets: None is a standard embedding, with a vector for each n-gram (set one hash function
    and no importance weights).
    members: size of the ensemble. Members have different hash functions and initial weights. They
    have the first one, two, ... of `hidden_layers` in turn.
    batch_norm: whether there is batch normalisation between the layers.
    weight_scale: a factor of the initial component vectors.
    mode: "sum" or "mean" of a document's vectors. snippets: None trains on whole documents.
    batch_size: None is `rule_for_batch`. passes: at most.
    device: where it runs; not part of the configuration.
    """

    dictionary: int | None = None
    ngrams: tuple[int, int] = (1, 2)
    num_embeddings: int = 10_000_000
    num_buckets: int | None = 1_000_000
    num_hashes: int = 2
    importance: bool = True
    embedding_dim: int = 20
    hidden_layers: tuple[int, ...] = ()
    members: int = 1
    batch_norm: bool = True
    weight_scale: float = 1.0
    optimizer: str = "adam"
    learning_rate: float = 0.001
    batch_size: int | None = None
    passes: int = 200
    mode: str = "sum"
    snippets: tuple[int, int] | None = (4, 100)
    device: str = "auto"

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        """Train and test -> metrics. `device` is the name of the GPU, None for the CPU."""
        import torch

        if threads:
            torch.set_num_threads(threads)
        place = self.device
        if place == "auto":
            place = "cuda" if torch.cuda.is_available() else "cpu"
        bags, test, size = self._bags(data)
        labels, truth = Labels.single(data.train.labels), Labels.single(data.test.labels)
        kept, held = split(len(bags), VALIDATION, seed)
        model = self._model(data.classes, size, seed, place)
        config = TrainConfig.paper(
            passes=self.passes,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size or rule_for_batch(len(kept)),
            snippets=self.snippets,
            seed=seed,
        )
        validation = bags.take(held), labels.take(held)
        history = fit(model, bags.take(kept), labels.take(kept), config, validation=validation)
        reached = evaluate(model, test, truth)
        return {
            "test_accuracy": reached["validation_accuracy"],
            "test_loss": reached["validation_loss"],
            "validation_accuracy": history.best.validation_accuracy,
            "best_pass": history.best.number + 1,
            "passes": len(history.epochs),
            "batch_size": config.batch_size,
            "dictionary": None if self.dictionary is None else size,
            "parameters": model.num_parameters,
            "train_seconds": history.seconds,
            "stopped": history.stopped,
            "device": torch.cuda.get_device_name() if place == "cuda" else None,
        }

    def _bags(self, data: Dataset) -> tuple[Bags, Bags, int]:
        """Train and test rows, and K."""
        if self.dictionary is None:
            return *hashed_bags(data, self.ngrams), self.num_embeddings
        train, test, size = ranked_bags(data)
        if self.dictionary >= size:
            return train, test, size
        return cut(train, self.dictionary), cut(test, self.dictionary), self.dictionary

    def _model(self, classes: int, size: int, seed: int, place: str) -> Any:
        if self.members == 1:
            return self._member(classes, size, seed, place, self.hidden_layers)
        return Ensemble(
            [
                self._member(classes, size, own, place, self._layers(number))
                for number, own in enumerate(member_seeds(seed, self.members))
            ],
            votes="probabilities",
        )

    def _layers(self, number: int) -> tuple[int, ...]:
        return self.hidden_layers[: 1 + number % max(len(self.hidden_layers), 1)]

    def _member(
        self, classes: int, size: int, seed: int, place: str, layers: tuple[int, ...]
    ) -> Engine:
        import torch

        from hashembed.nn.engine.model import DeepModel

        indexing = "independent" if self.dictionary is None else "identity"
        model = DeepModel(
            HashSpec(size, self.num_buckets or size, self.num_hashes, indexing, seed),
            self.embedding_dim,
            classes,
            layers,
            batch_norm=self.batch_norm,
            importance=self.importance,
            mode=self.mode,
            optimizer=self.optimizer,
            seed=seed,
            device=place,
        )
        with torch.no_grad():
            model.network.bag.weight.mul_(self.weight_scale)
        return model
