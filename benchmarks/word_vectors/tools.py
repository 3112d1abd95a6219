"""The tools that are compared: each learns from a text file and has vectors for words."""

import os
from pathlib import Path

import numpy as np

THREADS = int(os.environ.get("BENCH_THREADS", "2"))
DIM, WINDOW, MIN_COUNT, SAMPLE = 100, 5, 5, 1e-4


class Hashembed:
    """WordVectors with its defaults."""

    def train(self, path: Path, passes: int) -> None:
        from hashembed import WordVectors
        from hashembed.readers import read_text_batches

        def columns():
            return (batch.texts for batch in read_text_batches([str(path)], format="lines"))

        self.model = WordVectors(passes=passes, threads=THREADS).fit(columns)

    def numbers(self) -> int:
        model = self.model.model
        return len(model.E) * model.settings.embedding_dim + model.P.size

    def vectors(self, words: list[str]):
        return self.model.transform(words)

    def sizes(self, folder: Path):
        """The sizes of files, and how well each of them does."""
        for bits in (8, 4, 3, 2):
            self.model.save(folder / "vectors.safetensors", bits=bits)
            small = type(self.model).load(folder / "vectors.safetensors", threads=THREADS)
            size = (folder / "vectors.safetensors").stat().st_size
            yield f"{bits} bits", size, small.transform


class FastText:
    """fastText 0.9.2 with its own defaults: n-grams of 3 to 6, two million buckets."""

    def train(self, path: Path, passes: int) -> None:
        import fasttext

        fasttext.FastText.eprint = lambda x: None
        self.model = fasttext.train_unsupervised(
            str(path), "skipgram", dim=DIM, ws=WINDOW, minCount=MIN_COUNT, t=SAMPLE, epoch=passes,
            minn=3, maxn=6, thread=THREADS, verbose=0,
        )  # fmt: skip

    def numbers(self) -> int:
        return int(self.model.get_input_matrix().size)

    def vectors(self, words: list[str]):
        return np.stack([self.model.get_word_vector(word) for word in words])

    def sizes(self, folder: Path):
        path = folder / "model.bin"
        self.model.save_model(str(path))
        yield "", path.stat().st_size, self.vectors
        path.unlink()


class Gensim:
    """word2vec of gensim: words without n-grams."""

    def train(self, path: Path, passes: int) -> None:
        from gensim.models.word2vec import LineSentence, Word2Vec

        self.model = Word2Vec(
            LineSentence(str(path)), vector_size=DIM, window=WINDOW, min_count=MIN_COUNT, sg=1,
            negative=5, sample=SAMPLE, epochs=passes, workers=THREADS, seed=1,
        ).wv  # fmt: skip

    def numbers(self) -> int:
        return int(self.model.vectors.size)

    def vectors(self, words: list[str]):
        nothing = np.zeros(DIM, np.float32)
        return np.stack([self.model[w] if w in self.model.key_to_index else nothing for w in words])

    def sizes(self, folder: Path):
        path = folder / "vectors.bin"
        self.model.save_word2vec_format(str(path), binary=True)
        yield "", path.stat().st_size, self.vectors


TOOLS = {"hashembed": Hashembed, "fastText": FastText, "gensim": Gensim}
