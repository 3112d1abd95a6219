"""`TextVectorizer`: documents as dense features, with the API of scikit-learn."""

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from hashembed.classify.estimator import Estimator

if TYPE_CHECKING:
    import os

    from hashembed.vectors.word_vectors import WordVectors


# Arguments of `WordVectors`, too.
LEARNING = (
    "embedding_dim",
    "model",
    "subwords",
    "lowercase",
    "punctuation",
    "window",
    "min_count",
    "passes",
    "seed",
    "threads",
)


class TextVectorizer(Estimator):
    """Turns texts into vectors: the means of their word vectors.

    Args:
        vectors: trained `WordVectors`, or the path of a file with them. None (default) learns
            vectors from the texts that `fit` gets. They need no labels.
        normalize: scale the vector of each text to length 1 (default True).
        embedding_dim: d, the size of a vector (default 100).
        model: "skipgram" (default) or "cbow", as in `WordVectors`.
        subwords: shortest and longest character n-grams of a word (default 3 to 6), or None.
        lowercase: ignore case (default True).
        punctuation: "drop" it (default), or "keep" each run of it as a word.
        window: the most words to either side that count as near (default 5).
        min_count: leave out words that are less frequent. None (default) chooses by the size of
            the corpus: 2 for fewer than a million words, otherwise 5.
        passes: over the texts. None (default) chooses by the size of the corpus, from 3 to 50.
        seed: the same seed and texts give the same vectors, for any number of threads.
        threads: None (default) uses all cores.

    If `vectors` is given, only `normalize` and `threads` matter.

    Attributes:
        vectors_: the `WordVectors`.

    Example:
        >>> vectorizer = TextVectorizer(min_count=1).fit(["the cat sat", "the dog sat", "a cat"])
        >>> vectorizer.transform(["a dog", "cats"]).shape
        (2, 100)
    """

    vectors_: "WordVectors"
    _estimator_type = "transformer"
    _fit_methods = "fit"

    def __init__(
        self,
        *,
        vectors: "WordVectors | str | os.PathLike[str] | None" = None,
        normalize: bool = True,
        embedding_dim: int = 100,
        model: Literal["skipgram", "cbow"] = "skipgram",
        subwords: tuple[int, int] | None = (3, 6),
        lowercase: bool = True,
        punctuation: Literal["drop", "keep"] = "drop",
        window: int = 5,
        min_count: int | None = None,
        passes: int | None = None,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        self.vectors = vectors
        self.normalize = normalize
        self.embedding_dim = embedding_dim
        self.model = model
        self.subwords = subwords
        self.lowercase = lowercase
        self.punctuation = punctuation
        self.window = window
        self.min_count = min_count
        self.passes = passes
        self.seed = seed
        self.threads = threads

    def fit(self, texts: Any, y: Any = None) -> Self:
        """Learn vectors from texts, unless `vectors` is given.

        Args:
            texts: one str for each document: a list, or an Arrow, NumPy or pandas column.
            y: ignored; pipelines pass labels here.
        """
        from hashembed.classify.pretrained.sources import defaults_for, model_of
        from hashembed.text.arrow import to_arrow
        from hashembed.vectors.word_vectors import WordVectors

        if not isinstance(self.normalize, bool | np.bool_):
            raise TypeError(f"normalize must be True or False, found {self.normalize!r}")
        if self.vectors is not None:
            self.vectors_ = WordVectors.of(model_of(self.vectors, self.threads, "vectors"))
            return self
        column = to_arrow(texts)
        defaults = defaults_for(column.nbytes)
        settings = {name: getattr(self, name) for name in LEARNING}
        by_size = {n: value for n, value in defaults.items() if settings.get(n) is None}
        self.vectors_ = WordVectors(**{**settings, **by_size}).fit(column)
        return self

    def transform(self, texts: Any) -> Any:
        """Return the vectors of texts (texts, d), float32. A text without words has zeros."""
        from hashembed.classify.pretrained.sources import unit_means

        self._check_fitted()
        model = self.vectors_.model
        return self._output(
            unit_means(model, texts) if self.normalize else model.embed(texts), texts
        )

    def fit_transform(self, texts: Any, y: Any = None) -> Any:
        """Learn vectors with `fit`, then return the vectors of the same texts."""
        return self.fit(texts, y).transform(texts)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """Return the column names of `transform`: textvectorizer0, textvectorizer1, ..."""
        self._check_fitted()
        name = type(self).__name__.lower()
        return np.array([f"{name}{i}" for i in range(self.vectors_.vector_size)], object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "vectors_")

    def __sklearn_tags__(self) -> Any:
        """Describe the transformer to scikit-learn."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=["float32"]),
            input_tags=InputTags(one_d_array=True, two_d_array=False, string=True),
        )
