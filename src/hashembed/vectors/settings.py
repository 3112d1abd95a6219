"""The settings of word vectors: their defaults, their checks, and their form in files."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from hashembed.core.checks import one_of, whole_number
from hashembed.core.wording import named

if TYPE_CHECKING:
    from hashembed.text.config import TextConfig

Model = Literal["skipgram", "cbow"]

MAX_DIM = 4096
MAX_WINDOW = 100
MAX_PHRASE = 4  # words
# Default sizes: docs/results/vectors.md has experiments with them.
LARGEST_BUCKETS, LARGEST_EMBEDDINGS = 200_000, 500_000
BUCKETS_PER_KEY, EMBEDDINGS_PER_KEY = 0.6, 1.45
LARGEST_BATCH, SMALLEST_BATCH = 2048, 256
BATCHES = 4000  # at least this many steps, if batches of SMALLEST_BATCH give so many
SAMPLE = 1e-4
FEW_PASSES = 2  # up to this many, the rate starts higher and does not fall to 0


class Recipe(NamedTuple):
    """What is the same for all corpora. benchmarks/bench_vectors_settings.py compares others."""

    power: float = 0.5  # of the counts, in the distribution of negatives
    negative_weight: float = 10.0  # of all negatives of an example together, for each output word
    importance_rate: float = 0.03  # the learning rate of P
    decay: float = 0.99  # of the running mean squares of RMSprop


RECIPE = Recipe()


@dataclass(frozen=True)
class VectorSettings:
    """How vectors are learned. `WordVectors` describes the fields."""

    model: Model = "skipgram"
    embedding_dim: int = 100
    num_hashes: int = 2
    num_embeddings: int | None = None
    num_buckets: int | None = None
    subwords: tuple[int, int] | None = (3, 6)
    lowercase: bool = True
    punctuation: Literal["drop", "keep"] = "drop"
    min_count: int = 5
    max_words: int = 10_000_000
    phrases: int = 1
    phrase_threshold: float = 100.0
    window: int = 5
    sample: float | None = None
    passes: int = 5
    learning_rate: float | None = None
    batch_size: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("model", self.model, get_args(Model))
        whole_number("embedding_dim", self.embedding_dim, 1, MAX_DIM)
        whole_number("num_hashes", self.num_hashes, 1, 64)
        for name in ("num_embeddings", "num_buckets"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), self.num_hashes, 2**31)
        whole_number("min_count", self.min_count, 1, 2**31 - 1)
        whole_number("max_words", self.max_words, 1, 2**31 - 1)
        whole_number("phrases", self.phrases, 1, MAX_PHRASE)
        self._positive("phrase_threshold", self.phrase_threshold)
        whole_number("window", self.window, 1, MAX_WINDOW)
        whole_number("passes", self.passes, 1, 10**6)
        whole_number("seed", self.seed, -(2**63), 2**63 - 1)
        if self.batch_size is not None:
            whole_number("batch_size", self.batch_size, 1, 1 << 16)
        for name in ("sample", "learning_rate"):
            if getattr(self, name) is not None:
                self._positive(name, getattr(self, name))
        if self.subwords is not None:
            object.__setattr__(self, "subwords", tuple(self.subwords))
        from hashembed.text.config import TextConfig  # imports NumPy, which --help does without

        TextConfig((1, 1), self.lowercase, self.subwords, self.punctuation)  # checks them

    @staticmethod
    def _positive(name: str, value: object) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < float(value) <= 10**6:  # type: ignore[arg-type]
            raise ValueError(f"{named(name)} must be a number above 0, found {value!r}")

    @property
    def words(self) -> "TextConfig":
        """How text becomes words."""
        from hashembed.text.config import TextConfig

        return TextConfig((1, 1), lowercase=self.lowercase, punctuation=self.punctuation)

    def sizes(self, keys: int) -> tuple[int, int]:
        """K and B for a vocabulary with this many distinct keys."""
        least = max(64, self.num_hashes)
        K = self.num_embeddings or max(
            least, min(int(EMBEDDINGS_PER_KEY * keys), LARGEST_EMBEDDINGS)
        )
        B = self.num_buckets or max(least, min(int(BUCKETS_PER_KEY * keys), LARGEST_BUCKETS))
        return K, B

    def sample_for(self, words: int) -> float:
        """From which share of the corpus on words are thinned out, for a vocabulary of this size.

        In a small vocabulary all words are frequent. Hardly any would be left.
        """
        return self.sample or max(SAMPLE, 1 / max(words, 1))

    def batch_for(self, words: int) -> int:
        """Words in a step, for a corpus with this many words after frequent ones were thinned."""
        if self.batch_size is not None:
            return self.batch_size
        size = words * self.passes // BATCHES
        return min(max(size // 32 * 32, SMALLEST_BATCH), LARGEST_BATCH)

    def rate_at(self, progress: float) -> float:
        """The learning rate after a part of the training, from 0 to 1."""
        if self.passes <= FEW_PASSES:
            return (self.learning_rate or 0.025) * (1 - 0.8 * progress)
        return (self.learning_rate or 0.0175) * max(1 - progress, 1e-4)

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` needs, as JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "VectorSettings":
        """The settings that `to_dict` described."""
        known = {name: saved[name] for name in cls.__dataclass_fields__ if name in saved}
        if isinstance(known.get("subwords"), list):
            known["subwords"] = tuple(known["subwords"])
        return cls(**known)
