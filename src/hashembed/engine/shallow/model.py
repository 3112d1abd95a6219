"""The shallow model of the paper on the CPU: bag -> linear -> softmax, without torch."""

from typing import Any
from weakref import ref

import numpy as np

from hashembed.core.arrays import F32, F64, I64
from hashembed.core.draws import fill_normal
from hashembed.core.threads import cpu_count, run_workers
from hashembed.engine.coded import CodedTable, Stored
from hashembed.engine.labels import Labels
from hashembed.engine.packed import PackedTable
from hashembed.engine.protocol import (
    CHUNK,
    State,
    check_arrays,
    check_class_weights,
    check_labels,
    check_rates,
    loss_not_finite,
    to_probabilities,
)
from hashembed.engine.shallow.arrays import (
    Documents,
    Job,
    Tables,
    aligned,
    make_batches,
    make_scratch,
    padded,
    padded_rows,
    record_width,
)
from hashembed.engine.shallow.kernel import Kernels, kernels_for
from hashembed.hashing.bags import Bags
from hashembed.hashing.initial import IMPORTANCE_STD, WEIGHT_STD
from hashembed.hashing.locate import indexing_code
from hashembed.hashing.spec import HashSpec, derive_seeds

OUTPUT_RANGE = 0.25

MARGIN = 0.02  # a document without a larger error is learned: it only updates the output layer

# In Adagrad's denominator: gradients well below this are noise, and rows that get no others should
# not take full steps.
EPSILON = 1e-3


class ShallowModel:
    """Hash vectors of a document's n-grams, summed, and a linear layer on top.

    Args:
        spec: the hash: K, B, k, indexing, seed.
        embedding_dim: d.
        num_classes: C.
        importance: False fixes all importance weights at 1, the hashing trick.
        multilabel: a document may have any number of classes (sigmoids), not exactly one (softmax).
        seed: of the initial weights.
        threads: how many to use; None is all cores. The result does not depend on it.
    """

    learning_rate: float | None = None
    text_scorer: object = None  # of `engine/shallow/texts.py`
    _TRANSIENT = ("_checked", "_checked_labels", "text_scorer")
    _checked: ref[I64] | None = None  # keys whose range is known to be right
    _checked_labels: ref[Labels] | None = None

    def __init__(
        self,
        spec: HashSpec,
        embedding_dim: int,
        num_classes: int,
        *,
        importance: bool = True,
        multilabel: bool = False,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        self.spec, self.importance, self.multilabel = spec, importance, multilabel
        self.threads = threads or cpu_count()
        B, d, seed = spec.num_buckets, embedding_dim, seed & (2**63 - 1)
        self._prepare(B, d, num_classes)
        tables = self.tables
        fill_normal(tables.E, WEIGHT_STD, (seed, 0), self.threads)
        rng = np.random.default_rng((seed, 1))
        tables.W[:] = rng.uniform(-OUTPUT_RANGE, OUTPUT_RANGE, (num_classes, d))
        if importance:
            fill_normal(self.importance_weights, IMPORTANCE_STD, (seed, 2), self.threads)

    def __getstate__(self) -> dict[str, Any]:
        """For pickling and copying: without the weak references to what was checked."""
        return {n: v for n, v in vars(self).items() if n not in self._TRANSIENT}

    @classmethod
    def from_tensors(
        cls,
        spec: HashSpec,
        tensors: Stored,
        *,
        multilabel: bool = False,
        threads: int | None = None,
    ) -> "ShallowModel":
        """A model with the weights and, unless they are left out, accumulators of `tensors`."""
        self = cls.__new__(cls)
        self.spec, self.importance, self.multilabel = spec, "P" in tensors, multilabel
        self.threads = threads or cpu_count()
        num_buckets, d = tensors["E"].shape
        self._prepare(num_buckets, d, tensors["W"].shape[0])
        arrays = self._arrays()
        if unknown := tensors.keys() - arrays.keys():
            raise ValueError(f"tensors that are not known: {', '.join(sorted(unknown))}")
        for name, tensor in tensors.items():
            if isinstance(tensor, CodedTable | PackedTable):
                tensor.fill(arrays[name])
            else:
                np.copyto(arrays[name], tensor)
        return self

    def _prepare(self, num_buckets: int, d: int, num_classes: int) -> None:
        """Tables without weights, with everything else at zero."""
        self.embedding_dim = d
        k = self.spec.num_hashes
        rows = self.spec.num_embeddings if self.importance else 1
        records = aligned(rows, record_width(k), make=np.zeros)
        W = padded_rows(num_classes, d)
        self.memory = Tables(
            E=padded_rows(num_buckets, d),
            E_square=np.zeros(num_buckets, np.float32),
            records=records,
            slots=records.view(np.uint32),
            W=W,
            W_square=np.zeros_like(W),
            bias=np.zeros(num_classes, np.float32),
            bias_square=np.zeros(num_classes, np.float32),
            seeds=derive_seeds(self.spec.seed, k),
        )

    @property
    def tables(self) -> Tables:
        """The tables without the padding of their rows, which is zero: views."""
        memory, d = self.memory, self.embedding_dim
        return memory._replace(
            E=memory.E[:, :d], W=memory.W[:, :d], W_square=memory.W_square[:, :d]
        )

    @property
    def table_spec(self) -> HashSpec:
        """The hash that the kernels compute: `spec`, unless a model replaces keys beforehand."""
        return self.spec

    def components(self, keys: I64) -> F64:
        """The k rows of E of each key, without their weights: (n, k, d)."""
        return self.tables.E[self.spec(keys)[1]].astype(np.float64)

    @property
    def parts(self) -> tuple["ShallowModel"]:
        """Itself: an ensemble has several parts (`engine/linear.py`)."""
        return (self,)

    def mean_squares(self) -> dict[str, float]:
        """The mean accumulator of the rows that were ever touched, for each table."""
        means = {}
        for name, array in self._arrays().items():
            if name.endswith("_square"):
                touched = array[array > 0]
                means[name] = float(touched.mean(dtype=np.float64)) if touched.size else 0.0
        return means

    def fill_squares(self, means: dict[str, float]) -> None:
        """Set every accumulator to its table's mean: for a model that was saved without them."""
        arrays = self._arrays()
        for name, mean in means.items():
            arrays[name].fill(mean)

    def scale_logits(self, factor: float) -> None:
        """Multiply the logits by a factor."""
        self.memory.W[:] *= np.float32(factor)
        self.memory.bias[:] *= np.float32(factor)

    def grow(self, num_classes: int) -> None:
        """Add classes. They start without evidence, as unlikely as the least likely class.

        The logits of the others do not change.
        """
        tables, more = self.memory, num_classes - len(self.memory.bias)
        if more < 0:
            raise ValueError(f"found {len(tables.bias)} classes, cannot shrink to {num_classes}")

        def longer(array: F32, value: float = 0.0) -> F32:
            tail = np.full((more, *array.shape[1:]), value, np.float32)
            return np.concatenate([array, tail])

        self.memory = tables._replace(
            W=longer(tables.W),
            W_square=longer(tables.W_square),
            bias=longer(tables.bias, float(tables.bias.min(initial=0))),
            bias_square=longer(tables.bias_square),
        )

    @property
    def importance_weights(self) -> F32:
        """P (K, k), a view."""
        return self.tables.records[:, : self.spec.num_hashes]

    @property
    def chunk(self) -> int:
        """N-grams that one call of `train` should get."""
        return CHUNK

    @property
    def num_parameters(self) -> int:
        """Parameters of the embedding and of the layer on top."""
        tables = self.tables
        weights = self.spec.num_embeddings * self.spec.num_hashes if self.importance else 0
        return int(tables.E.size + weights + tables.W.size + tables.bias.size)

    def train(
        self,
        bags: Bags,
        labels: Labels,
        order: I64,
        rates: F32,
        *,
        batch_size: int = 256,
        weights: F32 | None = None,
        snippets: tuple[I64, I64] | None = None,
    ) -> F32:
        """Train on the documents of `order`, in batches with one rate each -> their losses.

        `snippets` (starts, lengths) restricts each document to a run of its keys.
        """
        documents = self._documents(bags, labels, weights, snippets)
        if len(order) and not 0 <= order.min() <= order.max() < len(bags):
            raise ValueError(
                f"there are {len(bags):,} documents, found {order.min()} to {order.max()}"
            )
        batches, tokens = make_batches(documents.lengths, order, rates, batch_size)
        check_rates(len(batches.shards), rates)
        shards = int(batches.shards.max(initial=1))
        workers = min(self.threads, shards)
        job = Job(
            tables=self.memory,
            documents=documents,
            batches=batches,
            scratch=make_scratch(self.memory, batch_size, tokens, shards, workers),
            num_rows=self.table_spec.num_embeddings,
            num_buckets=self.table_spec.num_buckets,
            dim=self.embedding_dim,
            importance=self.importance,
            indexing=indexing_code(self.table_spec),
            multilabel=self.multilabel,
            margin=np.float32(MARGIN),
            epsilon=np.float32(EPSILON),
        )
        done = run_workers(self._kernels.train, workers, job)
        if done[0] < len(rates):
            raise loss_not_finite(int(done[0]), len(rates))
        return batches.losses

    def scores(self, bags: Bags) -> F32:
        """Logits (documents, classes)."""
        return self._outputs(bags, self.memory.W, self.memory.bias)

    def vectors(self, bags: Bags) -> F32:
        """The sums of hash vectors (documents, d) that the linear layer sees."""
        d = self.embedding_dim
        return self._outputs(bags, np.eye(d, padded(d), dtype=np.float32), np.zeros(d, np.float32))

    def _outputs(self, bags: Bags, W: F32, bias: F32) -> F32:
        """A linear layer of these weights on top of the document vectors."""
        self._check_ids(bags.keys)
        tables, spec = self.memory, self.table_spec
        out = np.empty((len(bags), len(bias)), np.float32)
        run_workers(
            self._kernels.scores,
            self.threads if len(bags.keys) > 10_000 else 1,
            tables.E,
            tables.records,
            W,
            bias,
            tables.seeds,
            bags.keys,
            bags.offsets,
            spec.num_embeddings,
            spec.num_buckets,
            self.importance,
            indexing_code(spec),
            out,
        )
        return out

    def probabilities(self, bags: Bags) -> F32:
        """Softmax or sigmoids of the logits (documents, classes)."""
        return to_probabilities(self.scores(bags), self.multilabel)

    def tensors(self) -> State:
        """Copies of the weights, E, W, bias and, unless it has none, P, for a file."""
        tables = self.tables
        arrays = {"E": tables.E, "W": tables.W, "bias": tables.bias}
        if self.importance:
            arrays["P"] = self.importance_weights
        return {name: array.copy() for name, array in arrays.items()}

    def state(self) -> State:
        """Copies of everything that training changes."""
        return {name: array.copy() for name, array in self._arrays().items()}

    def check_state(self, state: State) -> None:
        """Raise a ValueError if `load_state` could not take this state."""
        check_arrays(self._arrays(), state)
        for name, array in state.items():
            if name.endswith("_square") and array.min(initial=0) < 0:
                raise ValueError(f"{name} must hold sums of squares, found {array.min()}")

    def load_state(self, state: State) -> None:
        """Return to that state."""
        self.check_state(state)
        for name, array in self._arrays().items():
            np.copyto(array, state[name])
        for table in (self.memory.E, self.memory.W, self.memory.W_square):
            table[:, self.embedding_dim :] = 0  # a loss that is not finite may have spoiled it

    def keep(self) -> State:
        """The same as `state`: a copy for `go_back`."""
        return self.state()

    def go_back(self, kept: State) -> None:
        """Return to a state that was kept."""
        self.load_state(kept)

    def snippets(
        self, bags: Bags, seed: int, epoch: int, minimum: int, maximum: int
    ) -> tuple[I64, I64]:
        """A run of keys of each document, for `train`."""
        return bags.snippets(seed, epoch, minimum, maximum)

    def _arrays(self) -> State:
        tables, k = self.tables, self.spec.num_hashes
        names = ("E", "E_square", "W", "W_square", "bias", "bias_square")
        arrays = {name: getattr(tables, name) for name in names}
        return {**arrays, "P": tables.records[:, :k], "P_square": tables.records[:, k]}

    @property
    def _kernels(self) -> Kernels:
        return kernels_for(self.table_spec, self.embedding_dim, self.importance)

    def _documents(
        self,
        bags: Bags,
        labels: Labels,
        weights: F32 | None = None,
        snippets: tuple[I64, I64] | None = None,
    ) -> Documents:
        self._check_ids(bags.keys)
        self._check_labels(labels, len(bags))
        starts, lengths = snippets or (bags.offsets[:-1], bags.lengths)
        if weights is None:
            weights = np.ones(len(bags), np.float32)
        elif len(weights) != len(bags):
            raise ValueError(f"found {len(bags):,} documents, but {len(weights):,} weights")
        return Documents(
            keys=bags.keys,
            starts=np.ascontiguousarray(starts),
            lengths=lengths,
            labels=labels.labels,
            label_offsets=labels.offsets,
            weights=np.ascontiguousarray(weights, np.float32),
            class_weights=self._class_weights(labels),
        )

    def _class_weights(self, labels: Labels) -> F32:
        """The class weights for the kernels."""
        if labels.class_weights is None:
            return np.empty((2, 0), np.float32)
        return check_class_weights(labels, self.multilabel, len(self.memory.bias))

    def _check_ids(self, keys: I64) -> None:
        """With `identity` indexing keys index the tables. Each array is checked once."""
        if self.spec.indexing != "identity" or (self._checked and self._checked() is keys):
            return
        if keys.size and not 0 <= keys.min() <= keys.max() < self.spec.num_embeddings:
            raise ValueError(
                f"identity indexing takes ids from 0 to {self.spec.num_embeddings - 1}, "
                f"found ids from {keys.min()} to {keys.max()}"
            )
        self._checked = ref(keys)

    def _check_labels(self, labels: Labels, documents: int) -> None:
        """Each set of labels is checked once: a pass calls this many times."""
        if self._checked_labels and self._checked_labels() is labels and len(labels) == documents:
            return
        check_labels(labels, documents, len(self.memory.bias), self.multilabel)
        self._checked_labels = ref(labels)
