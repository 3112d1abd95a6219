"""What gensim's `KeyedVectors` offers, under its names and with its results.

Unlike there, a word that the corpus lacks has a vector too, if there are n-grams. Nearest words are
always words of the corpus.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from hashembed.core.arrays import F32, F64, I64
from hashembed.vectors.model import VectorModel
from hashembed.vectors.neighbours import NearestRows, Neighbour, cosines_with, unit_rows

Key = str | F32 | tuple[Any, float]  # a word, a vector, or one of these with a weight


class KeyedMethods:
    """Nearest words, similarities, and the order of the words."""

    model: VectorModel

    def transform(self, texts: Any) -> F32:
        """The vectors (n, d) of strings."""
        raise NotImplementedError

    def __getitem__(self, words: str | Sequence[str]) -> F32:
        raise NotImplementedError

    # --- words ---

    @property
    def vectors(self) -> F32:
        """The vectors (V, d) of all words of the corpus, the most frequent first."""
        return self.model.vectors

    @cached_property
    def index_to_key(self) -> list[str]:
        """The words of the corpus, the most frequent first."""
        return list(self.model.dictionary.strings.to_pylist())

    @cached_property
    def key_to_index(self) -> dict[str, int]:
        """The place of each word in `index_to_key`."""
        return {word: place for place, word in enumerate(self.index_to_key)}

    def get_index(self, key: str, default: int | None = None) -> int:
        """The place of a word; the default, or a `KeyError`, if the corpus lacks it."""
        place = int(self.model.ranks([key])[0])
        if place >= 0:
            return place
        if default is None:
            raise KeyError(f"{key!r:.60} is not in the vocabulary")
        return default

    def has_index_for(self, key: str) -> bool:
        """Whether a word is in the vocabulary."""
        return bool(self.model.ranks([key])[0] >= 0)

    def get_vector(self, key: str, norm: bool = False) -> F32:
        """The vector (d,) of a word; with `norm`, its length is 1."""
        vector = self[key]
        return unit_rows(vector[None])[0] if norm else vector

    # --- two words, or many ---

    def similarity(self, w1: str, w2: str) -> float:
        """The cosine of the vectors of two words."""
        return float(cosines_with(self[[w1]], _direction(self[w2]))[0])

    def distance(self, w1: str, w2: str) -> float:
        """1 - the cosine."""
        return 1 - self.similarity(w1, w2)

    def distances(self, word_or_vector: str | F32, other_words: Sequence[str] = ()) -> F32:
        """1 - the cosine with each of the other words; with none, with all of the vocabulary."""
        given = self[word_or_vector] if isinstance(word_or_vector, str) else word_or_vector
        others = self[list(other_words)] if len(other_words) else self.vectors
        return np.asarray(1 - cosines_with(others, _direction(given)))

    def n_similarity(self, ws1: Sequence[str], ws2: Sequence[str]) -> float:
        """The cosine of the mean vectors of two lists of words."""
        if not len(ws1) or not len(ws2):
            raise ValueError("n_similarity needs two lists of words, found an empty one")
        one, other = (self[list(words)].mean(axis=0, dtype=np.float64) for words in (ws1, ws2))
        return float(cosines_with(one[None], _direction(other))[0])

    def doesnt_match(self, words: Sequence[str]) -> str:
        """The word that is farthest from the mean of all."""
        if not len(words):
            raise ValueError("doesnt_match needs words, found none")
        units = unit_rows(self[list(words)])
        mean = units.mean(axis=0, dtype=np.float64)
        return words[int(np.argmin(cosines_with(units, _direction(mean))))]

    def closer_than(self, key1: str, key2: str) -> list[str]:
        """All words of the vocabulary that are closer to the first word than the second is."""
        cosines = cosines_with(self.vectors, _direction(self[key1]))
        closer = np.flatnonzero(cosines > np.float32(self.similarity(key2, key1)))
        own = int(self.model.ranks([key1])[0])
        return [self.index_to_key[place] for place in closer.tolist() if place != own]

    def rank(self, key1: str, key2: str) -> int:
        """The place of the second word among the words nearest to the first; 1 is the nearest."""
        return len(self.closer_than(key1, key2)) + 1

    # --- nearest words ---

    def nearest(self, word: str | F32, top: int = 10) -> list[Neighbour]:
        """The words of the corpus with the largest cosine to a word, or to a vector (d,)."""
        vector = self[word] if isinstance(word, str) else np.asarray(word, np.float32)
        left_out = self.model.ranks([word]) if isinstance(word, str) else np.empty(0, np.int64)
        return self._named(vector, top, left_out)

    def most_similar(
        self,
        positive: Key | Iterable[Key] = (),
        negative: Key | Iterable[Key] = (),
        topn: int = 10,
        *,
        restrict_vocab: int | None = None,
    ) -> list[tuple[str, float]]:
        """Words near the sum of some words, as unit vectors, minus others.

        Args:
            positive, negative: words, vectors (d,), or pairs of one of these and a weight; or
                several of these.
            topn: how many words.
            restrict_vocab: only the so many most frequent words.
        """
        items = [(key, 1.0) for key in _listed(positive)]
        items += [(key, -1.0) for key in _listed(negative)]
        if not items:
            raise ValueError("most_similar needs at least one word or vector, found none")
        words, vector = list[str](), np.zeros(self.model.settings.embedding_dim, np.float64)
        for item, sign in items:
            key, weight = item if isinstance(item, tuple) else (item, 1.0)
            words += [key] if isinstance(key, str) else []
            # As in gensim, vectors count with their length, and words do not.
            given = self.get_vector(key, norm=True) if isinstance(key, str) else np.asarray(key)
            vector += sign * weight * given
        left_out = self.model.ranks(words) if words else np.empty(0, np.int64)
        found = self._named(vector.astype(np.float32), topn, left_out, restrict_vocab)
        return [(near.word, near.cosine) for near in found]

    def similar_by_word(
        self, word: str, topn: int = 10, restrict_vocab: int | None = None
    ) -> list[tuple[str, float]]:
        """The words nearest to a word."""
        return self.most_similar([word], topn=topn, restrict_vocab=restrict_vocab)

    similar_by_key = similar_by_word

    def similar_by_vector(
        self, vector: F32, topn: int = 10, restrict_vocab: int | None = None
    ) -> list[tuple[str, float]]:
        """The words nearest to a vector (d,)."""
        return self.most_similar([vector], topn=topn, restrict_vocab=restrict_vocab)

    def analogy(self, a: str, b: str, c: str, top: int = 10) -> list[Neighbour]:
        """What is to c as b is to a: words near b - a + c, without the three."""
        return [Neighbour(*found) for found in self.most_similar([b, c], [a], top)]

    @cached_property
    def _nearest(self) -> NearestRows:
        return NearestRows(self.vectors, self.model.threads)

    def _named(
        self, vector: F32, top: int, left_out: I64, restrict: int | None = None
    ) -> list[Neighbour]:
        finder = self._nearest
        if restrict is not None:
            finder = NearestRows(self.vectors[:restrict], self.model.threads)
        found = finder.find(vector, top, left_out[left_out >= 0])
        strings = self.model.dictionary.strings
        return [Neighbour(strings[row].as_py(), cosine) for row, cosine in found]

    def _forget(self) -> None:
        """The model has changed: drop all that was made of the old one."""
        for name in ("index_to_key", "key_to_index", "_nearest"):
            self.__dict__.pop(name, None)


def _direction(vector: F32 | F64) -> F64:
    wide = np.asarray(vector).astype(np.float64)
    return np.asarray(wide / max(float(np.sqrt((wide * wide).sum())), 1e-30))


def _listed(keys: Key | Iterable[Key] | None) -> list[Key]:
    """One key or several -> a list."""
    if keys is None:
        return []
    one = isinstance(keys, str) or (isinstance(keys, np.ndarray) and keys.ndim == 1)
    weighted = isinstance(keys, tuple) and len(keys) == 2 and isinstance(keys[1], int | float)
    return [keys] if one or weighted else list(keys)  # type: ignore[list-item,arg-type]
