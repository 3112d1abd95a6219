"""Whether fewer buckets regularise: accuracy on training and test rows, pass by pass."""

from dataclasses import dataclass, replace

import numpy as np

from experiments.data.datasets import Dataset
from experiments.models.shallow import Shallow
from hashembed.engine.defaults import TrainConfig, default_rate
from hashembed.engine.labels import Labels, split
from hashembed.engine.loop import evaluate, fit
from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing.bags import Bags

HELD = 0.2


def with_noise(labels: np.ndarray, share: float, classes: int, seed: int) -> np.ndarray:
    """The same labels, with a share of them replaced by wrong ones."""
    rng = np.random.default_rng([seed, 1])
    wrong = rng.random(len(labels)) < share
    other = (labels + rng.integers(1, classes, len(labels))) % classes
    return np.where(wrong, other, labels)


@dataclass(frozen=True)
class Gap(Shallow):
    """Many passes at a constant rate, which is chosen on a fifth of the training rows.

    noise: the share of wrong labels in the training rows; test rows are as they are.
    passes: the passes after which to measure. rates: to choose from, multiples of the default.
    """

    noise: float = 0.0
    passes: tuple[int, ...] = (1, 2, 5, 10, 20)
    rates: tuple[float, ...] = (0.25, 1.0, 4.0)

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        """Train and test -> metrics; `test_accuracy` is that after the chosen pass."""
        bags, test = self._bags(data)
        given = with_noise(data.train.labels, self.noise, data.classes, seed)
        labels, truth = Labels.single(given), Labels.single(data.test.labels)
        kept, held = split(len(bags), HELD, seed)
        most, best, chosen = -1.0, self.rates[0], self.passes[0]
        for scale in self.rates:
            model = self._model(data.classes, seed, threads)
            parts = (bags.take(held), labels.take(held))
            for row in self._curve(
                model, bags.take(kept), labels.take(kept), scale, seed, {"held": parts}
            ):
                if row["held_accuracy"] > most:
                    most, best, chosen = row["held_accuracy"], scale, row["passes"]
        model = self._model(data.classes, seed, threads)
        looks = {"train": (bags, labels), "test": (test, truth)}
        curve = self._curve(model, bags, labels, best, seed, looks)
        reached = next(row for row in curve if row["passes"] == chosen)
        return {
            "test_accuracy": reached["test_accuracy"],
            "train_accuracy": reached["train_accuracy"],
            "validation_accuracy": most,
            "chosen": {"rate": best, "passes": chosen},
            "curve": curve,
            "parameters": model.num_parameters,
            "train_seconds": 0.0,
        }

    def _curve(
        self,
        model: ShallowModel,
        bags: Bags,
        labels: Labels,
        scale: float,
        seed: int,
        looks: dict[str, tuple[Bags, Labels]],
    ) -> list[dict]:
        """Train through all passes -> loss and accuracy on each part after those in `passes`."""
        rate = scale * default_rate(bags, int(labels.labels.max()) + 1)
        rows = []
        for number in range(1, max(self.passes) + 1):
            config = TrainConfig(learning_rate=rate, seed=1000 * seed + number)
            fit(model, bags, labels, config)
            if number in self.passes:
                row: dict = {"passes": number}
                for part, rows_of in looks.items():
                    reached = evaluate(model, *rows_of)
                    row[f"{part}_accuracy"] = reached["validation_accuracy"]
                    row[f"{part}_loss"] = reached["validation_loss"]
                rows.append(row)
        return rows


HASH = Gap(num_embeddings=1_000_000, num_buckets=100_000)
STANDARD = replace(HASH, num_buckets=1_000_000, num_hashes=1, importance=False)
MODELS = {
    "hash, B = 500": replace(HASH, num_buckets=500),
    "hash, B = 10,000": replace(HASH, num_buckets=10_000),
    "hash, B = 100,000": HASH,
    "standard, small start": replace(STANDARD, weight_scale=0.0005),
    "standard": STANDARD,
}
NOISE = (0.0, 0.3)
PLAN = {
    f"{name}, {noise:.0%} wrong labels": replace(model, noise=noise)
    for noise in NOISE
    for name, model in MODELS.items()
}
SETS = ("yahoo_small", "amazon_full_small", "yelp_full_small")
