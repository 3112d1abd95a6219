"""`WordVectors`: a vector for any word, learned from text without labels."""

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import numpy as np

from hashembed.core.arrays import F32, I64
from hashembed.hashing.spec import HashSpec
from hashembed.vectors.corpus import source_of
from hashembed.vectors.devices import check_device, trainer_on
from hashembed.vectors.id_store import Storage
from hashembed.vectors.keyed import KeyedMethods
from hashembed.vectors.layer_ids import ids_of_keys
from hashembed.vectors.model import VectorModel
from hashembed.vectors.settings import VectorSettings
from hashembed.vectors.training import VectorProgress, train_model


class NotTrainedError(ValueError):
    """Vectors were asked for before `fit` or `load`."""


class WordVectors(KeyedMethods):
    """Word vectors in a hash embedding: small, and for any word.

    A word's vector is the mean of the vectors of its character n-grams and, if the corpus had it
    often enough, of the word itself. These come from a hash embedding, so the table does not grow
    with the vocabulary.

    | to | use |
    |---|---|
    | learn; continue on new text | `fit`, `partial_fit` |
    | get vectors of words, of texts | `vectors[word]`, `transform` |
    | find near words | `nearest`, `analogy`; gensim's `most_similar`, `similarity`, and more |
    | keep and load them | `save`, `load`; a smaller file: `compress` |
    | exchange them with other programs | `export_word2vec`, `from_word2vec` |
    | begin a layer of torch with them | `HashEmbeddingBag.from_pretrained(vectors)`, `keys` |

    Args:
        model: "skipgram": a word predicts the words around it (default). "cbow": the other way.
        embedding_dim: d, the size of a vector (default 100).
        num_hashes: k, the components of a key (default 2).
        num_embeddings: K, rows of importance weights. None: by the size of the vocabulary.
        num_buckets: B, component vectors. None: by the size of the vocabulary.
        subwords: shortest and longest character n-grams of '<word>' (default 3 to 6), or None:
            words without n-grams, as in word2vec. Unknown words then have no vector.
        lowercase, punctuation: how text becomes words, as for `TextClassifier`.
        min_count: leave out words that are less frequent (default 5).
        max_words: keep at most this many words, the most frequent ones.
        phrases: the most words of a phrase, such as "new york", up to 4. 1 (default): no phrases. A
            phrase is an entry of the vocabulary like a word, and texts are divided into the longest
            phrases from left to right.
        phrase_threshold: of word2vec's score of a phrase (default 100); lower gives more phrases.
        window: the most words to either side that count as near (default 5).
        sample: frequent words are thinned out from this share of the corpus on. None: 1e-4, or
            more if there are less than 10,000 words.
        passes: over the corpus (default 5).
        learning_rate: at the start. None: by the number of passes.
        batch_size: words in a step. None: by the size of the corpus.
        seed: the same seed and texts give the same vectors, for any number of threads.
        threads: None is all cores.
        device: where `fit` trains: "cpu" (default), "cuda" or "cuda:N" for a GPU, or "auto": a GPU
            if there is one. A GPU rounds differently, so its vectors are slightly different.

    Example:
        >>> vectors = WordVectors(min_count=1).fit(["the cat sat on the mat", "the dog sat"])
        >>> vectors["cats"].shape
        (100,)
    """

    def __init__(
        self,
        model: Literal["skipgram", "cbow"] = "skipgram",
        embedding_dim: int = 100,
        *,
        num_hashes: int = 2,
        num_embeddings: int | None = None,
        num_buckets: int | None = None,
        subwords: tuple[int, int] | None = (3, 6),
        lowercase: bool = True,
        punctuation: Literal["drop", "keep"] = "drop",
        min_count: int = 5,
        max_words: int = 10_000_000,
        phrases: int = 1,
        phrase_threshold: float = 100.0,
        window: int = 5,
        sample: float | None = None,
        passes: int = 5,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        threads: int | None = None,
        device: str = "cpu",
    ) -> None:
        own = ("self", "threads", "device")
        given = {name: value for name, value in locals().items() if name not in (*own, "own")}
        self.settings = VectorSettings(**given)
        self.threads, self.device = threads, check_device(device)
        self._model: VectorModel | None = None

    # --- training ---

    def fit(
        self,
        texts: Any,
        on_progress: Callable[[VectorProgress], object] | None = None,
        *,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Learn from texts.

        Args:
            texts: a column of texts; or, for a corpus larger than memory, a function that returns
                an iterable of columns. It is called several times: to count the words, to find
                their strings, and to number them.
            on_progress: is called with a `VectorProgress` after each piece of the corpus.
            cache_dir: the folder for the numbers of the words, four bytes each, if they take more
                than 256 MB. None is the system's folder for temporary files. The file has no name,
                so nothing is left behind.
        """
        trainer, storage = trainer_on(self.device), Storage(cache_dir)
        self._set(train_model(texts, self.settings, self.threads, on_progress, storage, trainer))
        return self

    def partial_fit(
        self,
        texts: Any,
        on_progress: Callable[[VectorProgress], object] | None = None,
        *,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Continue on new texts; the first call is `fit`.

        Vectors that were loaded need a file of `save(path, for_training=True)`. All words of
        before stay. New words that occur at least `min_count` times in the new texts join them, but
        no new phrases.
        Sizes of tables stay, so choose `num_buckets` and `num_embeddings` for all text to come.

        Training makes `passes` over the new texts alone, from the full learning rate down. So it
        moves the vectors of words that occur in them or share n-grams with them, and the more so
        the more new text there is. To hold the old vectors, mix some of the old text into the new.

        Args:
            texts, on_progress, cache_dir: as for `fit`.
        """
        if self._model is None:
            return self.fit(texts, on_progress, cache_dir=cache_dir)
        from hashembed.vectors.continued import continue_training

        source, storage, trainer = source_of(texts), Storage(cache_dir), trainer_on(self.device)
        model = continue_training(self._model, source, self.threads, on_progress, storage, trainer)
        self._set(model)
        return self

    def _set(self, model: VectorModel) -> None:
        self.settings, self._model = model.settings, model
        self._forget()

    # --- vectors ---

    @property
    def model(self) -> VectorModel:  # type: ignore[override]
        """The dictionary, the hash and the tables."""
        if self._model is None:
            raise NotTrainedError("these vectors are not trained yet: call fit, or load a file")
        return self._model

    @property
    def losses_(self) -> list[float]:
        """The mean loss of each pass."""
        return self.model.losses

    @property
    def vector_size(self) -> int:
        """d."""
        return self.settings.embedding_dim

    def __len__(self) -> int:
        return len(self.model.dictionary)

    def __contains__(self, word: object) -> bool:
        """Whether the corpus had this word often enough. Other words have vectors, too."""
        return isinstance(word, str) and bool(self.model.ranks([word])[0] >= 0)

    def __getitem__(self, words: str | Sequence[str]) -> F32:
        """The vector of a word (d,), or of several words (n, d).

        Any word has one, unless there are no n-grams: then unknown words raise a `KeyError`.
        """
        if isinstance(words, str):
            return np.asarray(self[[words]][0])
        vectors = self.transform(words)
        if not self.model.has_unknown_words:
            missing = np.flatnonzero(~vectors.any(axis=1))
            for place in missing[np.asarray(self.model.ranks(words))[missing] < 0].tolist():
                raise KeyError(
                    f"{words[place]!r:.60} is not in the vocabulary, and there are no n-grams to "
                    "make a vector of"
                )
        return vectors

    def transform(self, texts: Any) -> F32:
        """The vectors (n, d) of strings. A string of several words gets the mean of its words."""
        return self.model.embed(texts)

    # --- layers of torch ---

    def keys(self, words: Any) -> tuple[I64, I64]:
        """Ids and offsets of words, for a layer of `HashEmbeddingBag.from_pretrained(vectors)`.

        Each word is a bag: its own key, if the corpus had it, and those of its n-grams. Without
        n-grams, unknown words are empty bags.

        Returns:
            ids (N,), and where the bag of each word begins, (n,).
        """
        keys, offsets = self.model.entries(words)
        ids = keys if not self.model.hashed else ids_of_keys(keys)
        return ids, np.ascontiguousarray(offsets[:-1], np.int64)

    def layer_tables(self) -> tuple[HashSpec, F32, F32]:
        """The hash, E (B, d) and P (K, k)."""
        model = self.model
        return model.spec, model.E.whole[:, : self.vector_size], model.importance

    # --- files ---

    def save(
        self, path: str | os.PathLike[str], *, bits: int | None = None, for_training: bool = False
    ) -> None:
        """Write a file for `load`.

        Args:
            path: of the file; it is replaced as a whole, or not at all.
            bits: of a number in the table: 8, 4, 3 or 2. None is what it has already, or 8.
            for_training: keep everything in full precision, so that training can continue.
        """
        from hashembed.vectors.file import bits_of, save_vectors

        save_vectors(self.model, path, bits or bits_of(self.model), for_training)

    def compress(self, size: str | int | None = None, *, bits: int | None = None) -> Self:
        """Smaller vectors, as a new object that cannot be trained further.

        Args:
            size: the largest size of the file that `save` writes, such as "5MB" or bytes. First the
                numbers get fewer bits; then the table gets fewer rows, and its rows are fitted to
                the vectors of the words anew; then the vectors get fewer dimensions. Cosines
                between words hardly change until a few MB for 60,000 words.
            bits: of a number in the table: 8, 4, 3 or 2. None: by the size.
        """
        from hashembed.vectors.compressing import compress_model

        return type(self).of(compress_model(self.model, size, bits))

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], threads: int | None = None, *, mmap: bool = False
    ) -> Self:
        """Read what `save` wrote.

        Args:
            path: of the file.
            threads: None is all cores.
            mmap: leave the tables in the file, and read only the rows that words need. Opening then
                takes milliseconds, however large the tables are. The checksum is not verified:
                a file that was changed may give wrong vectors. One that is cut off gives an error,
                when it is opened or later; so the file is read, and not mapped into memory.
                `vectors` and nearest words still decode all tables.
        """
        from hashembed.vectors.file import load_vectors

        return cls.of(load_vectors(path, threads, mmap))

    def export_word2vec(self, path: str | os.PathLike[str], binary: bool = False) -> None:
        """Write the words of the corpus and their vectors in word2vec's format.

        gensim, fastText and others read it. It holds no n-grams, so other words have no vectors
        there. The spaces of phrases become '_'.

        Args:
            path: of the file; it is replaced as a whole, or not at all. With the suffix .gz it is
                compressed.
            binary: numbers of four bytes instead of text. Both keep all bits.
        """
        from hashembed.vectors.word2vec_file import write_word2vec

        write_word2vec(self.model, path, binary)

    @classmethod
    def from_word2vec(
        cls,
        path: str | os.PathLike[str],
        binary: bool | None = None,
        threads: int | None = None,
    ) -> Self:
        """Read a file in word2vec's format, as fastText (.vec), gensim and others write it.

        Only the words of the file have vectors, each a row of its own. They are taken whole, so
        `vectors["New_York"]` is found if the file has it.

        Args:
            path: of the file; it may be compressed by gzip.
            binary: None (default) finds out.
            threads: None is all cores.
        """
        from hashembed.vectors.word2vec_file import read_word2vec

        return cls.of(read_word2vec(path, binary, threads))

    @classmethod
    def of(cls, model: VectorModel) -> Self:
        """Vectors of a model."""
        self = cls(threads=model.threads)
        self.settings, self._model = model.settings, model
        return self

    def __sklearn_clone__(self) -> Self:
        """Itself: an estimator that is cloned shares its vectors, which are large."""
        return self

    def __repr__(self) -> str:
        if self._model is None:
            return "WordVectors(not trained)"
        spec = self.model.spec
        return (
            f"WordVectors({len(self):,} words, d={self.vector_size}, B={spec.num_buckets:,}, "
            f"K={spec.num_embeddings:,})"
        )
