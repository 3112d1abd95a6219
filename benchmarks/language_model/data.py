"""wikitext-2 as word ids: the most frequent word is 0, and each line ends with a token."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

END, UNKNOWN = "<eos>", "<unk>"
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Corpus:
    """The ids of each split, in the order of the text."""

    words: list[str]
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def read(folder: Path) -> Corpus:
    """The folder has train.txt, validation.txt and test.txt; words are separated by spaces.

    The vocabulary is that of the training text. Empty lines are left out.
    """
    texts = {split: words_of(folder / f"{split}.txt") for split in SPLITS}
    counts = Counter(texts["train"])
    counts.setdefault(UNKNOWN, 0)
    words = sorted(counts, key=lambda word: (-counts[word], word))
    ranks = {word: rank for rank, word in enumerate(words)}
    unknown = ranks[UNKNOWN]
    ids = {
        split: np.array([ranks.get(word, unknown) for word in text], np.int64)
        for split, text in texts.items()
    }
    return Corpus(words, **ids)


def words_of(path: Path) -> list[str]:
    if not path.is_file():
        needed = ", ".join(f"{split}.txt" for split in SPLITS)
        raise SystemExit(f"{path} is missing: the folder must have {needed}")
    lines = path.read_text(encoding="utf8").splitlines()
    return [word for line in lines if line.strip() for word in (*line.split(), END)]
