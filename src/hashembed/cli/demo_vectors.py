"""The demonstration of word vectors: languages found without labels, on sentences of the package.

The sentences are few, so the vectors know word forms and languages rather than meanings.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import numpy as np

from hashembed.cli.demo_task import read_sentences
from hashembed.core.arrays import I64
from hashembed.text.pipeline import text_to_bags
from hashembed.vectors.neighbours import Neighbour, unit_rows
from hashembed.vectors.word_vectors import WordVectors

if TYPE_CHECKING:
    import pyarrow as pa

FILE = "vectors.safetensors"  # benchmarks/demo_vectors.py makes it
FILE_SENTENCES = 70_400
MIN_COUNT = 3
SETTINGS: dict[str, Any] = {"embedding_dim": 50, "min_count": MIN_COUNT, "passes": 20}
TOP = 10
ASKED = 500  # words whose nearest words are judged
DRAWS = 20  # of the labelled sentences
WORDS = ("trois", "gehen", "looked")
UNSEEN = "pensando"
ANALOGY = ("walk", "walked", "look")


@dataclass(frozen=True)
class Sentences:
    """Texts and languages. Training sees the texts only."""

    languages: list[str]
    train: "pa.ChunkedArray"
    train_languages: I64
    test: "pa.ChunkedArray"
    test_languages: I64


@dataclass(frozen=True)
class Judged:
    """What vectors know about languages."""

    words: int
    same_language: float  # of the nearest words of a word
    accuracy: float  # on test sentences, with one labelled sentence of each language


def load_sentences() -> Sentences:
    """The sentences that come with the package."""
    table = read_sentences()
    languages, labels = np.unique(table["language"].to_numpy(), return_inverse=True)
    split, texts = table["split"].to_numpy(), table["text"].combine_chunks()
    train, test = ((split == name).nonzero()[0] for name in ("train", "test"))
    return Sentences(
        list(languages), texts.take(train), labels[train], texts.take(test), labels[test]
    )


def train_now(sentences: Sentences) -> tuple[WordVectors, float]:
    """Vectors of the training sentences, and the seconds that it took."""
    start = time.perf_counter()
    vectors = WordVectors(**SETTINGS).fit(sentences.train)
    return vectors, time.perf_counter() - start


def of_package() -> tuple[WordVectors, int]:
    """The vectors that come with the package, and the bytes of their file."""
    with as_file(files("hashembed") / "data" / FILE) as path:
        return WordVectors.load(path), path.stat().st_size


def path_of_file() -> str:
    """Where the file is, for other commands."""
    return str(files("hashembed") / "data" / FILE)


def judge(vectors: WordVectors, sentences: Sentences) -> Judged:
    """Compare vectors with the languages that they were not told."""
    return Judged(
        len(vectors), same_language(vectors, sentences), one_label_accuracy(vectors, sentences)
    )


def same_language(vectors: WordVectors, sentences: Sentences) -> float:
    """How many of the nearest words are of the language of a word.

    The language of a word is the one that has it most often. Words that are rare in the sentences
    are left out, so that all vectors are judged by almost the same words.
    """
    model = vectors.model
    bags = text_to_bags(sentences.train, model.settings.words)
    ranks = model.dictionary.ranks(bags.keys)
    spoken = np.repeat(sentences.train_languages, bags.lengths)[ranks >= 0]
    counts = np.zeros((len(vectors), len(sentences.languages)), np.int64)
    np.add.at(counts, (ranks[ranks >= 0], spoken), 1)
    known, home = np.flatnonzero(counts.sum(axis=1) >= MIN_COUNT), counts.argmax(axis=1)
    units = unit_rows(vectors.vectors[known])
    asked = np.unique(np.linspace(0, len(known) - 1, ASKED).astype(np.int64))
    cosines = units[asked] @ units.T
    cosines[np.arange(len(asked)), asked] = -np.inf
    nearest = np.argpartition(-cosines, TOP, axis=1)[:, :TOP]
    return float((home[known[nearest]] == home[known[asked]][:, None]).mean())


def one_label_accuracy(vectors: WordVectors, sentences: Sentences) -> float:
    """One labelled sentence of each language; others get the language of the nearest of them."""
    train, test = (unit_rows(vectors.transform(s)) for s in (sentences.train, sentences.test))
    right = [
        (test @ train[labelled].T).argmax(axis=1) == sentences.test_languages
        for labelled in _drawn(sentences)
    ]
    return float(np.mean(right))


def _drawn(sentences: Sentences) -> Iterator[I64]:
    """The places of one training sentence of each language, several times."""
    rng = np.random.default_rng(0)
    of_each = [
        np.flatnonzero(sentences.train_languages == number)
        for number in range(len(sentences.languages))
    ]
    for _ in range(DRAWS):
        yield np.array([rng.choice(places) for places in of_each])


def nearest_words(vectors: WordVectors) -> list[tuple[str, list[Neighbour]]]:
    """Words of the corpus and one that it lacks, with the words nearest to them."""
    return [(word, vectors.nearest(word, 6)) for word in (*WORDS, UNSEEN)]
