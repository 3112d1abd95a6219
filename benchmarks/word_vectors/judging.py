"""How well vectors agree with people: the thirteen similarity sets, and analogies."""

from collections import Counter
from pathlib import Path

import numpy as np

from hashembed.vectors.evaluation import read_pairs, read_questions, spearman
from hashembed.vectors.neighbours import unit_rows

# The sets with more than 250 pairs: the others are small, and their results vary by several points.
LARGE = (
    "MEN-TR-3k", "MTurk-287", "MTurk-771", "RW-STANFORD", "SIMLEX-999", "SimVerb-3500",
    "WS-353-ALL",
)  # fmt: skip

Sets = dict[str, list[tuple[str, str, float]]]


def sets_of(folder: Path) -> Sets:
    """The similarity sets of a folder with data."""
    files = sorted((folder / "wordsim" / "faruqui").glob("EN-*.txt"))
    return {file.stem.removeprefix("EN-"): read_pairs(file) for file in files}


def judge(vectors, sets: Sets, known=None) -> dict[str, float]:
    """Correlations x 100 of all sets, and of rare words whose words are known or not.

    vectors: from words to their vectors (n, d).
    """
    found = {}
    for name, pairs in sets.items():
        one, other = (unit_rows(vectors([pair[i] for pair in pairs])) for i in (0, 1))
        cosines = np.einsum("ij,ij->i", one, other, dtype=np.float64)
        scores = np.array([pair[2] for pair in pairs])
        found[name] = 100 * spearman(scores, cosines)
        if known is not None and name.startswith("RW"):
            both = np.array([a in known and b in known for a, b, _ in pairs])
            found["rw_known"] = 100 * spearman(scores[both], cosines[both])
            found["rw_unknown"] = 100 * spearman(scores[~both], cosines[~both])
    found["mean"] = float(np.mean([found[name] for name in sets]))
    found["large"] = float(np.mean([found[name] for name in LARGE if name in sets]))
    return found


def analogies(vectors, words: list[str], path: Path) -> float:
    """The share of questions that are answered right, in percent; all with known words count."""
    units, place = unit_rows(vectors(words)), {word: i for i, word in enumerate(words)}
    right = asked = 0
    for _, questions in read_questions(path):
        rows = [[place.get(word.lower(), -1) for word in question] for question in questions]
        a, b, c, d = np.array([row for row in rows if min(row) >= 0]).reshape(-1, 4).T
        cosines = (units[b] - units[a] + units[c]) @ units.T
        for row in (a, b, c):
            cosines[np.arange(len(row)), row] = -np.inf
        right, asked = right + int((cosines.argmax(axis=1) == d).sum()), asked + len(d)
    return 100 * right / max(asked, 1)


def vocabulary_of(path: Path) -> list[str]:
    """Words that occur at least five times, the most frequent first: the same for all tools."""
    with open(path, encoding="utf-8") as file:
        counts = Counter(word for line in file for word in line.split())
    return [word for word, count in counts.most_common() if count >= 5]
