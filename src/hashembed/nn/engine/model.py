"""The torch engine: a bag of hash vectors under any number of hidden layers, on any device."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hashembed.core.arrays import F32, I64
from hashembed.engine.labels import Labels
from hashembed.engine.protocol import (
    CHUNK,
    Snippets,
    State,
    check_arrays,
    check_class_weights,
    check_labels,
    check_rates,
    loss_not_finite,
    to_probabilities,
)
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec
from hashembed.nn.engine.batches import make_batch, to_device
from hashembed.nn.engine.learning import (
    Optimizer,
    check_options,
    make_optimizers,
    multilabel_losses,
)
from hashembed.nn.engine.network import Network, draw_kept
from hashembed.nn.engine.saved_state import check_optimizers
from hashembed.nn.engine.scoring import outputs
from hashembed.nn.engine.state import (
    Kept,
    check_shapes,
    copy_arrays,
    go_back,
    keep,
    layers_of,
    load_optimizers,
    named_tensors,
    optimizer_state,
    to_arrays,
    weights_of,
)
from hashembed.nn.layers import Aggregation, Mode
from hashembed.nn.ops.dispatch import HAS_TRITON, MAX_DIM
from hashembed.nn.optim.optimizers import RowAdam

if HAS_TRITON:
    from hashembed.nn.engine import transfer
    from hashembed.nn.engine.graph import Steps

GPU_CHUNK = 2**26


class DeepModel:
    """Hash vectors of a document's n-grams, hidden layers, a linear layer.

    Args:
        spec: the hash functions and table sizes: K, B, k, indexing, seed.
        embedding_dim: d, the width of a component vector.
        num_classes: C, the number of classes.
        hidden_layers: widths, each with ReLU; the paper's deep model has (1000, 1000, 1000). None
            is the shallow model, without normalisation.
        batch_norm: batch normalisation between all layers, as in the paper. On many sets it costs
            accuracy: see "Is it the normalisation?" in experiments/README.md.
        importance: False fixes all importance weights at 1. With k = 1 that is a standard
            embedding: the hashing trick, or a dictionary's under "identity" indexing with B = K.
        mode: "sum" or "mean" of a document's hash vectors.
        aggregation: as in `HashEmbedding`.
        append_importance: as in `HashEmbedding`.
        multilabel: a document may have any number of classes (sigmoids), not exactly one (softmax).
        optimizer: "adam" on the mean loss of a batch, with a first rate of 0.001 by default; or
            "adagrad" on the sum, with one accumulator for each row of E and P, as in `ShallowModel`
            (which also skips documents that are already learned).
        dropout: fraction of n-grams that training leaves out, drawn anew in every batch.
        seed: seed of the initial weights and of the dropout.
        device: where tables, layers and all keys of the training data live: "cpu", "cuda", ...
            On a GPU with Triton a step is a CUDA graph (see `nn/engine/graph.py`).

    On the CPU the same seed gives the same bits. Hash vectors and their updates do not depend on
    the number of threads. Matrix products and batch normalisation are PyTorch's: with hidden layers
    the last bits may depend on `torch.set_num_threads`, and those of scores on the number of
    documents scored together. On a GPU PyTorch's own sums may come in any order, unless
    `torch.use_deterministic_algorithms` forbids it. Scoring between two passes applies pending
    updates (see `RowAdam`), which changes later bits too: resume from where `fit` stopped.
    """

    def __init__(
        self,
        spec: HashSpec,
        embedding_dim: int,
        num_classes: int,
        hidden_layers: Sequence[int] = (),
        *,
        batch_norm: bool = True,
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
        check_options(hidden_layers, optimizer, dropout, device)
        self.spec, self.multilabel, self.seed = spec, multilabel, seed
        self.optimizer, self.device = optimizer, torch.device(device)
        self.steps = 0
        network = Network(
            spec,
            embedding_dim,
            num_classes,
            hidden_layers,
            batch_norm=batch_norm,
            importance=importance,
            mode=mode,
            aggregation=aggregation,
            append_importance=append_importance,
            dropout=dropout,
            device="meta",  # allocates nothing, and draws nothing from the global random state
        )
        # `to_empty` would import SymPy, which takes seconds.
        self.network: Network = network._apply(  # type: ignore[no-untyped-call]
            lambda t: torch.empty(t.shape, dtype=t.dtype, device=self.device)
        )
        self.network.reset_parameters(torch.Generator().manual_seed(seed))
        self.optimizers = make_optimizers(self.network, optimizer, in_backward=self.fast)
        self.version = 0  # counts replaced tensors, which graphs of steps would still read
        self.class_weights: Tensor | None = None  # (2, C) of the last training, see `Labels`
        self.gpu_steps: Steps | None = None  # those of the last training on a GPU

    def __getstate__(self) -> dict[str, Any]:
        """Without graphs of steps: a copy makes its own."""
        return {**self.__dict__, "gpu_steps": None}

    @classmethod
    def from_tensors(cls, spec: HashSpec, tensors: State, **options: Any) -> "DeepModel":
        """A model with the weights that `tensors` gave; options as in the constructor.

        Their shapes give d, C, the hidden layers and their normalisation, and whether there is a P.
        """
        hidden = layers_of(tensors)
        options["importance"] = "P" in tensors
        options["batch_norm"] = any(name.startswith("norms.") for name in tensors)
        check_shapes(spec, tensors, hidden, options)
        model = cls(spec, tensors["E"].shape[1], len(tensors["bias"]), hidden, **options)
        copy_arrays(named_tensors(model.network), tensors)
        return model

    @property
    def learning_rate(self) -> float | None:
        """The first rate if `train` gets none."""
        return 0.001 if self.optimizer == "adam" else None

    @property
    def num_classes(self) -> int:
        """C."""
        return self.network.output.out_features

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
        snippets: Snippets | None = None,
    ) -> F32:
        """Train on the documents of `order`, in batches, with one rate a batch -> their losses.

        `snippets`, from the method of that name, restrict each document to a run of its keys.
        """
        if self.fast:
            found = self.train_together(
                [self], bags, labels, order, rates, batch_size, weights, snippets
            )
            return found[0]  # type: ignore[no-any-return]
        self.use_class_weights(labels)
        batches = -(-len(order) // batch_size)
        check_rates(batches, rates)
        check_labels(labels, len(bags), self.num_classes, self.multilabel)
        starts, lengths = snippets or (bags.offsets[:-1], bags.lengths)
        out = torch.empty(len(order))
        self.network.train()
        for number, rate in enumerate(rates):
            begin = number * batch_size
            chosen = order[begin : begin + batch_size]
            batch = make_batch(bags.keys, starts[chosen], lengths[chosen], self.device)
            keep = self.dropout_mask(len(batch[0]), torch.tensor(self.steps, device=self.device))
            logits = self.network(*batch, keep)
            losses = self.losses(logits, self._truth(labels.take(chosen)))
            if weights is not None:
                losses = losses * to_device(weights[chosen], self.device)
            if not bool(losses.isfinite().all()):
                raise loss_not_finite(number, batches)
            self.set_rate(float(rate))
            (losses.sum() * self.scale(batch_size)).backward()  # type: ignore[no-untyped-call]
            self.update()
            self.steps += 1
            out[begin : begin + batch_size] = losses.detach()
        return out.numpy()

    @property
    def fast(self) -> bool:
        """Whether steps run on the GPU without the host; see `nn/engine/graph.py`."""
        narrow = self.network.bag.weight.shape[1] <= MAX_DIM
        return HAS_TRITON and self.device.type == "cuda" and narrow

    @property
    def chunk(self) -> int:
        """How many n-grams `train` should get at a time."""
        return GPU_CHUNK if self.fast else CHUNK

    def snippets(self, bags: Bags, seed: int, epoch: int, minimum: int, maximum: int) -> Snippets:
        """A run of keys of each document, drawn on the device, for `train`."""
        if self.fast:
            return transfer.draw_snippets(bags, self.device, seed, epoch, minimum, maximum)
        return bags.snippets(seed, epoch, minimum, maximum)

    @staticmethod
    def train_together(
        members: Sequence["DeepModel"],
        bags: Bags,
        labels: Labels,
        order: I64,
        rates: F32,
        batch_size: int,
        weights: F32 | None,
        snippets: Snippets | None,
    ) -> F32:
        """Train models on one GPU, all in the same step -> their losses (members, documents)."""
        for member in members:
            check_labels(labels, len(bags), member.num_classes, member.multilabel)
            member.network.train()
        found: F32 = transfer.train_members(
            members, bags, labels, order, rates, batch_size, weights, snippets
        )
        return found

    def scores(self, bags: Bags) -> F32:
        """Logits (documents, classes)."""
        return outputs(self.network.eval(), bags, self.num_classes, self.spec, self.device)

    def vectors(self, bags: Bags) -> F32:
        """The sums of hash vectors (documents, D), the input of the layers."""
        layers, width = self.network.eval().vectors, self.network.bag.output_dim
        return outputs(layers, bags, width, self.spec, self.device)

    def probabilities(self, bags: Bags) -> F32:
        """Softmax or sigmoids of the logits (documents, classes)."""
        return to_probabilities(self.scores(bags), self.multilabel)

    @torch.no_grad()
    def scale_logits(self, factor: float) -> None:
        """Multiply the logits by a factor."""
        self.network.output.weight.mul_(factor)
        self.network.output.bias.mul_(factor)

    def tensors(self) -> State:
        """Copies of the weights, E, P, W, bias and those of the hidden layers, for a file."""
        for optimizer in self.optimizers:
            if isinstance(optimizer, RowAdam):
                optimizer.flush()
        return to_arrays(named_tensors(self.network))

    def state(self) -> State:
        """Copies of everything that training changes: weights, optimizers, the number of steps."""
        tensors = {**named_tensors(self.network), **optimizer_state(self.optimizers)}
        return {**to_arrays(tensors), "steps": np.array(self.steps)}

    def check_state(self, state: State) -> None:
        """Raise a ValueError if `load_state` could not take it."""
        steps = state.get("steps", np.empty(0))
        if steps.shape != () or not 0 <= int(steps) < 2**62:
            raise ValueError("the number of steps is missing, or is none")
        check_arrays(named_tensors(self.network), weights_of(state))
        check_optimizers(self.optimizers, {n: a for n, a in state.items() if "/" in n})

    def load_state(self, state: State) -> None:
        """Return to that state."""
        self.check_state(state)
        copy_arrays(named_tensors(self.network), weights_of(state))
        self.steps = int(state["steps"])
        self.version += 1
        load_optimizers(self.optimizers, state)

    def keep(self) -> Kept:
        """Copies of the same on the device, for the time of a training run."""
        return keep(self.steps, self.network, self.optimizers)

    def go_back(self, kept: Kept) -> None:
        """Return to what was kept, in the same memory, so that graphs of steps stay valid."""
        self.steps = kept.steps
        self.version += go_back(kept, self.network, self.optimizers)

    def scale(self, batch_size: int) -> float:
        """What losses are multiplied by before they are added up.

        It is that of a full batch, so that documents of a last, short batch weigh the same.
        """
        return 1 / batch_size if self.optimizer == "adam" else 1.0

    def dropout_mask(self, n: int, step: Tensor) -> Tensor | None:
        """Which of n tokens the dropout leaves."""
        dropout = self.network.dropout
        return draw_kept(n, dropout, self.seed, step) if dropout else None

    def losses(self, logits: Tensor, truth: Tensor) -> Tensor:
        """Cross entropy of each document; with several labels, the sum over all classes.

        truth: classes (n,), or which document has which (n, classes).
        """
        if self.multilabel:
            return multilabel_losses(logits, truth, self.class_weights)
        return F.cross_entropy(logits, truth, reduction="none")

    def use_class_weights(self, labels: Labels) -> None:
        """Train with the class weights of these labels from now on."""
        before, now = self.class_weights, None
        if labels.class_weights is not None:
            weights = check_class_weights(labels, self.multilabel, self.num_classes)
            now = to_device(weights, self.device)
        same = before is now if before is None or now is None else torch.equal(before, now)
        if not same:
            self.class_weights = now
            self.version += 1  # graphs of steps read the old tensor

    def set_rate(self, rate: float | Tensor) -> None:
        """Set the rate of the next step, before its backward pass, which may update rows."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate

    def update(self, finite: Tensor | None = None) -> None:
        """Update by the gradients of the last backward pass, and delete them.

        finite: 0 if the batch has no gradients and must not change the statistics either.
        """
        for optimizer in self.optimizers:
            optimizer.step()
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                parameter.grad = None  # `zero_grad` would import TorchDynamo
        self.network.accept(finite)

    def _truth(self, labels: Labels) -> Tensor:
        truth = labels.matrix(self.num_classes) if self.multilabel else labels.labels
        return to_device(truth, self.device)
