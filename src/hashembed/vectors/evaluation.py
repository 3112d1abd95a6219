"""How well word vectors agree with people: word similarity sets, and analogies.

A similarity set has a pair of words and a score in each row. Its result is Spearman's correlation
between the scores and the cosines. All pairs count, also those with words that the corpus lacks.
An analogy file has lines of four words, and lines ': name' that begin a section.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import F64
from hashembed.vectors.model import VectorModel
from hashembed.vectors.neighbours import unit_rows

_BATCH = 256


class SimilarityResult(NamedTuple):
    """The correlations of one set, from -1 to 1; NaN with fewer than two pairs."""

    name: str
    pairs: int
    correlation: float
    unknown_pairs: int  # pairs with a word that the corpus lacks
    unknown_correlation: float  # of these alone


class AnalogyResult(NamedTuple):
    """One section of an analogy file."""

    name: str
    questions: int  # whose four words are all in the vocabulary
    right: int
    left_out: int


def ranks_of(values: F64) -> F64:
    """Ranks from 0; equal values share the mean of their ranks."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    sizes = np.diff(np.append(first, len(values)))
    ranks = np.empty(len(values), np.float64)
    ranks[order] = np.repeat(first + (sizes - 1) / 2, sizes)
    return ranks


def spearman(one: F64, other: F64) -> float:
    """Spearman's correlation; NaN if it is not defined."""
    if len(one) < 2:
        return float("nan")
    a, b = ranks_of(one), ranks_of(other)
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size else float("nan")


def read_pairs(path: str | os.PathLike[str]) -> list[tuple[str, str, float]]:
    """The rows of a similarity set: two words and a score, separated by white space or commas.

    A first row without a number is a header.
    """
    found = list[tuple[str, str, float]]()
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            parts = line.replace(",", " ").replace(";", " ").split()
            if not parts or line.startswith("#"):
                continue
            try:
                one, other, score = parts[0], parts[1], float(parts[2])
            except (IndexError, ValueError):
                if not found and number == 1:
                    continue
                raise ValueError(
                    f"{path}: line {number}: found {line.strip()[:60]!r}, expected two words and a "
                    "number"
                ) from None
            found.append((one, other, score))
    if not found:
        raise ValueError(f"{path}: found no pairs of words")
    return found


def evaluate_pairs(
    model: VectorModel, name: str, pairs: list[tuple[str, str, float]]
) -> SimilarityResult:
    """The correlation of one set."""
    firsts, seconds = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    one, other = (unit_rows(model.embed(words)) for words in (firsts, seconds))
    cosines = np.einsum("ij,ij->i", one, other, dtype=np.float64)
    scores = np.array([pair[2] for pair in pairs], np.float64)
    unknown = (model.ranks(firsts) < 0) | (model.ranks(seconds) < 0)
    return SimilarityResult(
        name,
        len(pairs),
        spearman(scores, cosines),
        int(unknown.sum()),
        spearman(scores[unknown], cosines[unknown]),
    )


def evaluate_folder(model: VectorModel, folder: str | os.PathLike[str]) -> list[SimilarityResult]:
    """All files of a folder (.txt, .csv, .tsv), or one file, by name."""
    path = Path(folder)
    files = (
        [path]
        if path.is_file()
        else sorted(file for file in path.iterdir() if file.suffix in (".txt", ".csv", ".tsv"))
    )
    if not files:
        raise ValueError(f"{folder}: found no file with the suffix .txt, .csv or .tsv")
    return [evaluate_pairs(model, file.stem, read_pairs(file)) for file in files]


def read_questions(path: str | os.PathLike[str]) -> Iterator[tuple[str, list[list[str]]]]:
    """The sections of an analogy file: name, questions of four words."""
    name, questions = Path(path).stem, list[list[str]]()
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if words[:1] == [":"]:
                if questions:
                    yield name, questions
                name, questions = " ".join(words[1:]), []
            elif len(words) == 4:
                questions.append(words)
            elif words:
                raise ValueError(f"{path}: line {number}: found {len(words)} words, expected four")
    if questions:
        yield name, questions


def evaluate_analogies(model: VectorModel, path: str | os.PathLike[str]) -> list[AnalogyResult]:
    """The share of questions whose fourth word is the nearest one to b - a + c."""
    results = []
    units = unit_rows(model.vectors)
    for name, questions in read_questions(path):
        ranks = np.stack([model.ranks([q[i] for q in questions]) for i in range(4)])
        known = (ranks >= 0).all(axis=0)
        a, b, c, d = ranks[:, known]
        right = 0
        for first in range(0, len(a), _BATCH):
            part = slice(first, first + _BATCH)
            cosines = (units[b[part]] - units[a[part]] + units[c[part]]) @ units.T
            for asked in (a[part], b[part], c[part]):
                cosines[np.arange(len(asked)), asked] = -np.inf
            right += int((cosines.argmax(axis=1) == d[part]).sum())
        results.append(AnalogyResult(name, len(a), right, int((~known).sum())))
    return results
