"""The bag-of-words rivals of table 3, each as its authors describe it, on our rows.

Words are those of the library, case folded. Settings that the authors leave open are chosen on 5%
of the training rows; the model is then trained on all of them. Seconds of training are from text to
model, without the search for settings.
"""

import tempfile
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from experiments.data.datasets import Dataset
from experiments.rivals.regression import MultinomialRegression
from hashembed.engine.labels import split
from hashembed.text.config import TextConfig
from hashembed.text.dictionary import Dictionary

HELD = 0.05
CHOOSING = 50_000  # at most so many rows train a linear model in the search for settings


def count_matrix(bags, columns: int):
    """Counts of n-grams, (documents, n-grams)."""
    from scipy.sparse import csr_matrix

    ones = np.ones(len(bags.keys), np.float32)
    shape = (len(bags), columns)
    matrix = csr_matrix((ones, bags.keys.astype(np.int32), bags.offsets), shape)
    matrix.sum_duplicates()
    return matrix


def chosen(settings, fit, X, y, seed: int):
    """The setting with the best accuracy on held-out rows, trained on at most `CHOOSING` rows."""
    kept, held = split(len(y), HELD, seed)
    kept = np.random.default_rng(seed).permutation(kept)[:CHOOSING]
    scores = [fit(X[kept], y[kept], s).score(X[held], y[held]) for s in settings]
    return settings[int(np.argmax(scores))]


@dataclass(frozen=True)
class LinearModel:
    """Zhang et al.: counts (or TFIDF) of the most frequent n-grams, multinomial regression.

    Zhang et al. do not mention regularisation: C is chosen on held-out rows.
    """

    ngrams: tuple[int, int]
    size: int
    tfidf: bool = False
    strengths: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0)
    passes: int = 20

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
        else:  # scale documents of median length to 1, as TFIDF does; this changes only C
            scale = 1 / np.sqrt(max(np.median(np.asarray(X.multiply(X).sum(axis=1))), 1))
            X, Z = X * np.float32(scale), Z * np.float32(scale)

        def fit(X, y, C: float) -> MultinomialRegression:
            return MultinomialRegression(C, self.passes, seed).fit(X, y)

        ready = time.perf_counter()
        best = chosen(self.strengths, fit, X, data.train.labels, seed)
        choosing = time.perf_counter() - ready
        model = fit(X, data.train.labels, best)
        return {
            "test_accuracy": model.score(Z, data.test.labels),
            "parameters": model.W.size,
            "chosen": {"C": best},
            "gap": model.gap,
            "train_seconds": time.perf_counter() - start - choosing,
        }


@dataclass(frozen=True)
class NaiveBayesSVM:
    """Wang and Manning 2012: a linear SVM on binary n-grams, scaled by their log-count ratios.

    One class against the rest; alpha = 1 and beta = 0.25 as they recommend, C = 1, and the
    tolerance that LIBLINEAR has by itself.
    """

    ngrams: tuple[int, int] = (1, 2)
    size: int = 1_000_000
    alpha: float = 1.0
    beta: float = 0.25
    C: float = 1.0
    tolerance: float = 0.1

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
            svm = LinearSVC(C=self.C, tol=self.tolerance, random_state=seed)
            w = svm.fit(scaled(X, ratio), mine).coef_[0]
            mixed = (1 - self.beta) * np.abs(w).mean() + self.beta * w
            scores[:, column] = scaled(Z, ratio) @ mixed + svm.intercept_[0]
        found = scores.argmax(axis=1) if len(classes) > 1 else scores[:, 0] > 0
        return {
            "test_accuracy": float((found == data.test.labels).mean()),
            "parameters": len(classes) * (2 * len(dictionary) + 1),
            "train_seconds": time.perf_counter() - start,
        }


def scaled(binary, ratio: np.ndarray):
    """A binary CSR matrix, its columns multiplied."""
    from scipy.sparse import csr_matrix

    values = ratio[binary.indices].astype(np.float64)
    return csr_matrix((values, binary.indices, binary.indptr), binary.shape)


@dataclass(frozen=True)
class FastText:
    """Joulin et al. 2016: bigrams, 10 dimensions, 5 passes, the rate chosen on held-out rows.

    It is chosen once and serves all seeds.
    """

    dim: int = 10
    epochs: int = 5
    word_ngrams: int = 2
    buckets: int = 10_000_000
    rates: tuple[float, ...] = (0.05, 0.1, 0.25, 0.5)

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        rate = self._rate(data, threads)
        start = time.perf_counter()
        train = shuffled_lines(data.train, seed)
        accuracy, parameters = self._accuracy(train, lines(data.test), rate, seed, threads)
        return {
            "test_accuracy": accuracy,
            "parameters": parameters,
            "chosen": {"lr": rate},
            "train_seconds": time.perf_counter() - start,
        }

    @lru_cache(maxsize=1)  # noqa: B019 (a frozen dataclass)
    def _rate(self, data: Dataset, threads: int | None) -> float:
        train = shuffled_lines(data.train, 0)
        held = max(1, round(HELD * len(train)))
        scores = [self._accuracy(train[held:], train[:held], r, 0, threads)[0] for r in self.rates]
        return self.rates[int(np.argmax(scores))]

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


def shuffled_lines(part, seed: int) -> list[str]:
    """Shuffled lines: fastText does not shuffle."""
    return lines(part.take(np.random.default_rng(seed).permutation(len(part))))


def lines(part) -> list[str]:
    """Lines in fastText's format: case folded, without punctuation."""
    import re

    plain = re.compile(r"[^\w\s]|_")
    return [
        f"__label__{label} " + " ".join(plain.sub(" ", text.lower()).split())
        for text, label in zip(part.texts.to_pylist(), part.labels.tolist(), strict=True)
    ]
