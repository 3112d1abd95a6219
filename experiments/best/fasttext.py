"""fastText in a file of a given size: the peer of `sized.py`."""

import tempfile
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments.best.sized import HELD
from experiments.data.datasets import Dataset
from experiments.rivals.bags_of_words import lines

START = {"lr": 0.5, "wordNgrams": 2, "epoch": 5, "dim": 10}
CHOICES: dict[str, tuple[Any, ...]] = {
    "lr": (0.1, 0.25, 0.5, 1.0),
    "wordNgrams": (1, 2, 3),
    "epoch": (5, 10),
    "dim": (10, 20),
}
BUCKETS = 2_000_000
FIRST_GUESS, TRIES = 16, 6  # bytes for each n-gram that is kept; attempts to fit the size


@lru_cache(maxsize=1)
def search(data: Dataset, threads: int) -> tuple[dict, float]:
    """Choose settings one after the other on a fifth of the training rows, for all sizes."""
    with tempfile.TemporaryDirectory() as folder:
        most, rest, _, _ = files(data, Path(folder), 0)
        best, reached = dict(START), score(train(most, START, 0, threads), rest)
        for name, values in CHOICES.items():
            for value in values:
                if value != best[name]:
                    other = {**best, name: value}
                    found = score(train(most, other, 0, threads), rest)
                    if found > reached:
                        best, reached = other, found
    return best, reached


@dataclass(frozen=True)
class SizedFastText:
    """fastText in a file of at most that many megabytes, quantised unless it fits already.

    Rate, order of n-grams, passes and width are chosen on a fifth of the training rows, for all
    sizes at once. Then the order of n-grams is chosen again at this size. Models are quantised with
    `retrain`, `qnorm` and as many n-grams as fit (`cutoff`).
    """

    megabytes: float

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        """Search, train, quantise, test -> metrics."""
        threads = threads or 2
        settings, _ = search(data, threads)
        with tempfile.TemporaryDirectory() as folder:
            most, rest, whole, test = files(data, Path(folder), seed)
            path = Path(folder) / "model"
            scores = {
                order: score(
                    self._fitted(most, path, {**settings, "wordNgrams": order}, threads)[0], rest
                )
                for order in range(1, settings["wordNgrams"] + 1)
            }
            settings = {**settings, "wordNgrams": max(scores, key=scores.__getitem__)}
            start = time.perf_counter()
            model, kept = self._fitted(whole, path, settings, threads, seed)
            seconds = time.perf_counter() - start
            return {
                "test_accuracy": score(model, test),
                "validation_accuracy": max(scores.values()),
                "file_bytes": path.stat().st_size,
                "chosen": {**settings, "kept": kept},
                "parameters": (kept or len(model.words) + BUCKETS) * settings["dim"],
                "train_seconds": seconds,
            }

    def _fitted(
        self,
        rows: str,
        path: Path,
        settings: dict,
        threads: int,
        seed: int = 0,
        guess: int | None = None,
    ) -> tuple[Any, int | None]:
        """A model whose file at `path` fits, and how many n-grams it keeps; None is all.

        `guess`: the number of n-grams to try first.
        """
        import fasttext

        room = 1e6 * self.megabytes
        whole = str(path.with_suffix(".whole"))
        model = train(rows, settings, seed, threads)
        model.save_model(whole)
        if Path(whole).stat().st_size <= room:
            Path(whole).replace(path)
            return model, None
        most = len(model.words) + BUCKETS  # quantised, all of them may fit
        kept, fits = min(guess or int(room / FIRST_GUESS), most), 0
        for _ in range(TRIES):  # the size follows from what is kept, not from the retraining
            model = fasttext.load_model(whole)
            model.quantize(cutoff=kept, qnorm=True)
            model.save_model(str(path))
            size = path.stat().st_size
            if size <= room:
                fits = max(fits, kept)
            if 0.93 * room < size <= room or fits == most:
                break
            kept = min(int(kept * 0.97 * room / size), most)
        model = fasttext.load_model(whole)
        model.quantize(rows, cutoff=fits, retrain=True, qnorm=True, thread=threads, verbose=1)
        model.save_model(str(path))
        return model, fits


def files(data: Dataset, folder: Path, seed: int) -> tuple[str, str, str, str]:
    """Most training rows, the rest, all of them, test rows: in fastText's format, shuffled."""
    order = np.random.default_rng(seed).permutation(len(data.train))  # it does not shuffle
    rows, test = lines(data.train.take(order)), lines(data.test)
    held = round(HELD * len(rows))
    names = []
    for name, part in zip("abcd", (rows[held:], rows[:held], rows, test), strict=True):
        (folder / name).write_text("\n".join(part) + "\n", encoding="utf8")
        names.append(str(folder / name))
    return names[0], names[1], names[2], names[3]


def train(rows: str, settings: dict, seed: int, threads: int) -> Any:
    """A model with hashed n-grams."""
    import fasttext

    fixed = {"bucket": BUCKETS, "thread": threads, "seed": seed, "verbose": 0}
    return fasttext.train_supervised(rows, **settings, **fixed)


def score(model: Any, rows: str) -> float:
    """Accuracy."""
    return float(model.test(rows)[1])
