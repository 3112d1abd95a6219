"""The bag-of-words rivals of table 3, each as its authors describe it, on our rows.

Words are those of the library, case folded. What a rival leaves open is chosen on 5% of the
training rows, and the model is then trained on all of them.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.datasets import Dataset
from hashembed.dictionary import Dictionary
from hashembed.labels import split
from hashembed.text import TextConfig

HELD = 0.05


def count_matrix(bags, columns: int):
    """Documents x n-grams, how often each occurs."""
    from scipy.sparse import csr_matrix

    ones = np.ones(len(bags.keys), np.float32)
    shape = (len(bags), columns)
    matrix = csr_matrix((ones, bags.keys.astype(np.int32), bags.offsets), shape)
    matrix.sum_duplicates()
    return matrix


def chosen(settings, fit, X, y, seed: int):
    """The setting with the best accuracy on held-out rows."""
    if len(settings) == 1:
        return settings[0]
    kept, held = split(len(y), HELD, seed)
    scores = [fit(X[kept], y[kept], s).score(X[held], y[held]) for s in settings]
    return settings[int(np.argmax(scores))]


@dataclass(frozen=True)
class LinearModel:
    """Zhang et al.: counts (or TFIDF) of the most frequent n-grams, multinomial regression.

    Zhang et al. say nothing of regularisation: C is chosen on held-out rows.
    """

    ngrams: tuple[int, int]
    size: int
    tfidf: bool = False
    strengths: tuple[float, ...] = (0.1, 1.0, 10.0)
    iterations: int = 100

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        from sklearn.feature_extraction.text import TfidfTransformer

        start = time.perf_counter()
        dictionary = Dictionary.count(data.train.texts, TextConfig(self.ngrams), self.size)
        X, Z = (
            count_matrix(dictionary.bags(part.texts), len(dictionary))
            for part in (data.train, data.test)
        )
        if self.tfidf:
            weigh = TfidfTransformer().fit(X)
            X, Z = weigh.transform(X), weigh.transform(Z)
        else:  # to the scale of one, which the solver needs; it changes C and nothing else
            scale = 1 / np.sqrt(X.multiply(X).sum(axis=1).mean())
            X, Z = X * scale, Z * scale
        best = chosen(self.strengths, self._fit, X, data.train.labels, seed)
        model = self._fit(X, data.train.labels, best)
        return {
            "test_accuracy": float(model.score(Z, data.test.labels)),
            "parameters": int(model.coef_.size + model.intercept_.size),
            "chosen": {"C": best},
            "train_seconds": time.perf_counter() - start,
        }

    def _fit(self, X, y, C: float):
        import warnings

        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # iterations are limited on purpose
            return LogisticRegression(C=C, max_iter=self.iterations).fit(X, y)


@dataclass(frozen=True)
class NaiveBayesSVM:
    """Wang and Manning 2012: a linear SVM on binary n-grams, scaled by their log-count ratios.

    One class against the rest; alpha = 1 and beta = 0.25 as they recommend, C = 1.
    """

    ngrams: tuple[int, int] = (1, 2)
    size: int = 1_000_000
    alpha: float = 1.0
    beta: float = 0.25
    C: float = 1.0

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        from sklearn.svm import LinearSVC

        start = time.perf_counter()
        dictionary = Dictionary.count(data.train.texts, TextConfig(self.ngrams), self.size)
        X, Z = (
            count_matrix(dictionary.bags(part.texts), len(dictionary)).sign()
            for part in (data.train, data.test)
        )
        classes = [1] if data.classes == 2 else range(data.classes)
        scores = np.zeros((len(data.test), len(classes)))
        for column, c in enumerate(classes):
            mine = data.train.labels == c
            p, q = (self.alpha + np.asarray(X[rows].sum(axis=0))[0] for rows in (mine, ~mine))
            ratio = np.log(p / p.sum()) - np.log(q / q.sum())
            svm = LinearSVC(C=self.C, random_state=seed).fit(X.multiply(ratio).tocsr(), mine)
            w = svm.coef_[0]
            mixed = (1 - self.beta) * np.abs(w).mean() + self.beta * w
            scores[:, column] = Z.multiply(ratio).tocsr() @ mixed + svm.intercept_[0]
        found = scores.argmax(axis=1) if len(classes) > 1 else scores[:, 0] > 0
        return {
            "test_accuracy": float((found == data.test.labels).mean()),
            "parameters": len(classes) * (2 * len(dictionary) + 1),
            "train_seconds": time.perf_counter() - start,
        }


@dataclass(frozen=True)
class FastText:
    """Joulin et al. 2016: bigrams, 10 dimensions, 5 passes, the rate chosen on held-out rows."""

    dim: int = 10
    epochs: int = 5
    word_ngrams: int = 2
    buckets: int = 10_000_000
    rates: tuple[float, ...] = (0.05, 0.1, 0.25, 0.5)

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        start = time.perf_counter()
        order = np.random.default_rng(seed).permutation(len(data.train))  # it does not shuffle
        train, test = lines(data.train.take(order)), lines(data.test)
        held = max(1, round(HELD * len(train)))
        scores = [
            self._accuracy(train[held:], train[:held], r, seed, threads)[0] for r in self.rates
        ]
        best = self.rates[int(np.argmax(scores))]
        accuracy, parameters = self._accuracy(train, test, best, seed, threads)
        return {
            "test_accuracy": accuracy,
            "parameters": parameters,
            "chosen": {"lr": best},
            "train_seconds": time.perf_counter() - start,
        }

    def _accuracy(self, train, test, rate, seed, threads) -> tuple[float, int]:
        import fasttext

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "train.txt"
            path.write_text("\n".join(train) + "\n", encoding="utf8")
            model = fasttext.train_supervised(
                str(path),
                lr=rate,
                dim=self.dim,
                epoch=self.epochs,
                wordNgrams=self.word_ngrams,
                bucket=self.buckets,
                thread=threads or 2,
                seed=seed,
                verbose=0,
            )
            path.write_text("\n".join(test) + "\n", encoding="utf8")
            _, accuracy, _ = model.test(str(path))
        rows = len(model.words) + self.buckets + len(model.labels)
        return float(accuracy), rows * self.dim


def lines(part) -> list[str]:
    """fastText's format, words as it needs them: case folded, without punctuation."""
    import re

    plain = re.compile(r"[^\w\s]|_")
    return [
        f"__label__{label} " + " ".join(plain.sub(" ", text.lower()).split())
        for text, label in zip(part.texts.to_pylist(), part.labels.tolist(), strict=True)
    ]
