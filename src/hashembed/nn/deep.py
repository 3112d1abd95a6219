"""The torch engine: a bag of hash vectors under any number of hidden layers, on any device."""

import weakref
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hashembed.bags import Bags
from hashembed.engine import F32, I64, LossNotFiniteError, State, to_probabilities
from hashembed.hashing import HashSpec, id_keys
from hashembed.labels import Labels
from hashembed.nn.batches import Keys, make_batch, place_keys, to_device
from hashembed.nn.layers import Aggregation, Mode
from hashembed.nn.network import Network
from hashembed.nn.optim import RowAdagrad, RowAdam
from hashembed.shallow import EPSILON as ADAGRAD_EPSILON
from hashembed.validation import one_of, whole_number

Optimizer = Literal["adam", "adagrad"]

NGRAMS_AT_ONCE, DOCUMENTS_AT_ONCE = 2**18, 2**12  # when scoring

# The names that tensors have in files; those of the shallow model are the same there.
_NAMES = {"bag.weight": "E", "bag.importance": "P", "output.weight": "W", "output.bias": "bias"}


class DeepModel:
    """Hash vectors of a document's n-grams, hidden layers with batch normalisation, a linear layer.

    Args:
        spec: the hash: K, B, k, indexing, seed.
        embedding_dim: d.
        num_classes: C.
        hidden_layers: widths, each with ReLU, batch normalisation between all layers; the paper's
            deep model has (1000, 1000, 1000). None is the shallow model, without normalisation.
        importance: False fixes all importance weights at 1. With k = 1 that is a standard
            embedding: the hashing trick, or a dictionary's under "identity" indexing with B = K.
        mode: "sum" or "mean" of a document's hash vectors.
        aggregation, append_importance: as in `HashEmbedding`.
        multilabel: a document may have any number of classes (sigmoids), not exactly one (softmax).
        optimizer: "adam", whose first rate is 0.001 unless the training says otherwise, on the mean
            loss of a batch; or "adagrad" on the sum, with one accumulator for each row of E and P,
            as in `ShallowModel` (which in addition leaves learned documents alone).
        dropout: the part of the n-grams that is left out in training, drawn anew in every batch.
        seed: of the initial weights and of the dropout.
        device: where tables, layers and all keys of the training data live: "cpu", "cuda", ...

    On the CPU the same seed gives the same bits. Hash vectors and their updates do not depend on
    the number of threads; but products of matrices and batch normalisation are PyTorch's, and with
    hidden layers their last bits may differ with `torch.set_num_threads`, and those of scores with
    the number of documents scored together. On a GPU PyTorch's own sums come in any order, unless
    `torch.use_deterministic_algorithms` forbids it. Scoring between two passes lets rows catch up
    with Adam (see `RowAdam`), which changes later bits too: resume from where `fit` was.
    """

    def __init__(
        self,
        spec: HashSpec,
        embedding_dim: int,
        num_classes: int,
        hidden_layers: Sequence[int] = (),
        *,
        importance: bool = True,
        mode: Mode = "sum",
        aggregation: Aggregation = "sum",
        append_importance: bool = False,
        multilabel: bool = False,
        optimizer: Optimizer = "adam",
        dropout: float = 0.0,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        for width in hidden_layers:
            whole_number("hidden_layers", width, 1, 2**31 - 1)
        one_of("optimizer", optimizer, ("adam", "adagrad"))
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be from 0 to below 1, found {dropout}")
        self.spec, self.multilabel, self.seed = spec, multilabel, seed
        self.optimizer, self.device = optimizer, torch.device(device)
        self.steps = 0
        self.network = Network(
            spec,
            embedding_dim,
            num_classes,
            hidden_layers,
            importance=importance,
            mode=mode,
            aggregation=aggregation,
            append_importance=append_importance,
            dropout=dropout,
            device="meta",  # neither values yet, nor numbers drawn from the global random state
        ).to_empty(device=self.device)
        self.network.reset_parameters(torch.Generator().manual_seed(seed))
        self._optimizers = self._make_optimizers()
        self._resident: tuple[weakref.ref[I64], Tensor] | None = None

    @classmethod
    def from_tensors(cls, spec: HashSpec, tensors: State, **options: Any) -> "DeepModel":
        """A model with the weights that `tensors` gave; options as in the constructor.

        What the tensors show is taken from them: d, C, the hidden layers, whether there is a P.
        """
        hidden: list[int] = []
        while f"hidden.{len(hidden)}.bias" in tensors:
            hidden.append(len(tensors[f"hidden.{len(hidden)}.bias"]))
        options["importance"] = "P" in tensors
        model = cls(spec, tensors["E"].shape[1], len(tensors["bias"]), hidden, **options)
        own = model._weights()
        if own.keys() != tensors.keys():
            different = ", ".join(sorted(own.keys() ^ tensors.keys()))
            raise ValueError(f"tensors must be those of one model, missing or unknown: {different}")
        _copy_all(own, tensors)
        return model

    @property
    def learning_rate(self) -> float | None:
        """The first rate where the training names none."""
        return 0.001 if self.optimizer == "adam" else None

    @property
    def num_parameters(self) -> int:
        """Parameters of the embedding and of the layers on top."""
        return sum(p.numel() for p in self.network.parameters())

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
        """Train on the documents of `order`, in batches, with one rate a batch -> their losses.

        `snippets` (starts, lengths) restricts each document to a run of its keys.
        """
        batches = -(-len(order) // batch_size)
        if len(rates) != batches:
            raise ValueError(f"there are {batches} batches, but {len(rates)} rates")
        keys = self._training_keys(bags)
        starts, lengths = snippets or (bags.offsets[:-1], bags.lengths)
        out = torch.empty(len(order))
        self.network.train()
        for number, rate in enumerate(rates):
            begin = number * batch_size
            chosen = order[begin : begin + batch_size]
            batch = make_batch(keys, starts[chosen], lengths[chosen])
            losses = self._losses(self.network(*batch, self._generator()), labels.take(chosen))
            if weights is not None:
                losses = losses * to_device(weights[chosen], self.device)
            if not bool(losses.isfinite().all()):
                raise LossNotFiniteError(
                    f"the loss is no longer a finite number after {number} of {batches} batches: "
                    "try a smaller learning rate"
                )
            # Divided by the size of full batches, a document weighs the same in a last, short one.
            loss = losses.sum() / (batch_size if self.optimizer == "adam" else 1)
            self._step(loss, float(rate))
            out[begin : begin + batch_size] = losses.detach()
        return out.numpy()

    @torch.no_grad()
    def scores(self, bags: Bags) -> F32:
        """Logits (documents, classes)."""
        out = np.empty((len(bags), self.network.output.out_features), np.float32)
        keys = place_keys(bags.keys, self.spec, self.device)
        self.network.eval()
        offsets, lengths, begin = bags.offsets, bags.lengths, 0
        while begin < len(bags):
            fitting = int(np.searchsorted(offsets, offsets[begin] + NGRAMS_AT_ONCE, "right")) - 1
            end = min(max(fitting, begin + 1), begin + DOCUMENTS_AT_ONCE)
            batch = make_batch(keys, offsets[begin:end], lengths[begin:end])
            out[begin:end] = self.network(*batch).cpu().numpy()
            begin = end
        return out

    def probabilities(self, bags: Bags) -> F32:
        """Softmax or sigmoids of the logits (documents, classes)."""
        return to_probabilities(self.scores(bags), self.multilabel)

    def tensors(self) -> State:
        """Copies of the weights, E, P, W, bias and those of the hidden layers, for a file."""
        for optimizer in self._optimizers:
            if isinstance(optimizer, RowAdam):
                optimizer.flush()
        return {name: _to_array(tensor) for name, tensor in self._weights().items()}

    def state(self) -> State:
        """Copies of everything that training changes: weights, optimizers, the number of steps."""
        tensors = {**self._weights(), **self._optimizer_state()}
        arrays = {name: _to_array(value) for name, value in tensors.items()}
        return {**arrays, "steps": np.array(self.steps)}

    def load_state(self, state: State) -> None:
        """Back to that state."""
        _copy_all(self._weights(), state)
        self.steps = int(state["steps"])
        for number, optimizer in enumerate(self._optimizers):
            saved: dict[int, dict[str, Any]] = {}
            for name, array in state.items():
                kind, _, rest = name.partition("/")
                if kind == f"optimizer{number}":
                    which, parameter, key = rest.split("/")
                    value = torch.from_numpy(array.copy()) if which == "tensor" else array.item()
                    saved.setdefault(int(parameter), {})[key] = value
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": saved, "param_groups": groups})

    def _make_optimizers(self) -> list[torch.optim.Optimizer]:
        """One for the tables' rows, one for all the rest; their rates come with each batch."""
        bag = self.network.bag
        tables = [p for p in (bag.weight, bag.importance) if p is not None]
        rest = [p for n, p in self.network.named_parameters() if not n.startswith("bag.")]
        if self.optimizer == "adam":
            return [RowAdam(tables), torch.optim.Adam(rest, fused=True)]
        rows = RowAdagrad(tables, eps=ADAGRAD_EPSILON, rowwise=True)
        for p in tables:  # of rows, even where gradients are dense, as they are on a GPU
            rows.state[p]["sum"] = torch.zeros(len(p), 1, device=p.device)
        return [rows, torch.optim.Adagrad(rest, eps=ADAGRAD_EPSILON)]

    def _step(self, loss: Tensor, rate: float) -> None:
        """Gradients, updates, statistics."""
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad()
        self.network.accept()
        self.steps += 1

    def _losses(self, logits: Tensor, labels: Labels) -> Tensor:
        """Cross entropy of each document; with several labels, the sum over all classes."""
        if self.multilabel:
            truth = to_device(labels.matrix(logits.shape[1]), self.device).to(logits.dtype)
            return F.binary_cross_entropy_with_logits(logits, truth, reduction="none").sum(1)
        return F.cross_entropy(logits, to_device(labels.labels, self.device), reduction="none")

    def _generator(self) -> torch.Generator:
        """For this step's dropout: from the seed and the number of steps alone."""
        mixed = int(id_keys(id_keys(self.seed) ^ np.int64(self.steps)))
        return torch.Generator(self.device).manual_seed(mixed)

    def _training_keys(self, bags: Bags) -> Keys:
        """The keys of bags that will be asked for again and again: they move to the device once."""
        if self._resident is None or self._resident[0]() is not bags.keys:
            keys = place_keys(bags.keys, self.spec, self.device)
            if not isinstance(keys, Tensor):
                return keys
            self._resident = weakref.ref(bags.keys), keys
        return self._resident[1]

    def _weights(self) -> dict[str, Tensor]:
        """Parameters and statistics by name; the hash functions follow from the spec."""
        return {
            _NAMES.get(name, name): tensor
            for name, tensor in self.network.state_dict().items()
            if not name.startswith("bag.hash_")
        }

    def _optimizer_state(self) -> dict[str, Any]:
        out = {}
        for number, optimizer in enumerate(self._optimizers):
            for i, entries in optimizer.state_dict()["state"].items():
                for key, value in entries.items():
                    kind = "tensor" if isinstance(value, Tensor) else "number"
                    out[f"optimizer{number}/{kind}/{i}/{key}"] = value
        return out


def _to_array(value: Any) -> Any:
    """A tensor or a number, copied."""
    return value.detach().cpu().numpy().copy() if isinstance(value, Tensor) else np.array(value)


@torch.no_grad()
def _copy_all(tensors: dict[str, Tensor], arrays: State) -> None:
    for name, tensor in tensors.items():
        if tensor.shape != arrays[name].shape:
            raise ValueError(
                f"{name} must have the shape {tuple(tensor.shape)}, found {arrays[name].shape}"
            )
        tensor.copy_(torch.from_numpy(np.require(arrays[name], requirements=["C", "W"])))
