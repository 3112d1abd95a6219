"""The network of the torch engine: a bag of hash vectors, hidden layers, logits."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashembed.hashing.spec import HashSpec
from hashembed.nn.layers import Aggregation, HashEmbeddingBag, Mode
from hashembed.nn.ops import dispatch as ops
from hashembed.nn.ops.indexing import id_keys, unpack

if TYPE_CHECKING:
    from hashembed.nn.gpu.call import Call
    from hashembed.nn.gpu.places import Places

KEPT = 0.9  # each batch multiplies the weight of older ones in the statistics by this
EPSILON = 1e-3  # added to a variance, as in Keras: vectors that are still tiny stay small


class BatchNorm(nn.Module):
    """Batch normalisation with usable statistics from the first batch on.

    `nn.BatchNorm1d` starts with a mean of 0 and a variance of 1 and takes dozens of batches to
    forget them, and a last batch of two documents counts as much as a full one. Here statistics are
    averages over documents, with more weight on recent ones. `accept` adds a batch to them, so a
    batch whose loss is not finite changes nothing. A batch of one document has no variance: it is
    normalised by the statistics, as in evaluation.
    """

    mean: Tensor
    variance: Tensor
    documents: Tensor

    def __init__(self, width: int, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, device=device))
        self.bias = nn.Parameter(torch.empty(width, device=device))
        for name, shape in (("mean", (width,)), ("variance", (width,)), ("documents", ())):
            self.register_buffer(name, torch.empty(shape, device=device))
        self._batch: tuple[int, Tensor, Tensor] | None = None

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """The identity."""
        for tensor, value in ((self.weight, 1), (self.bias, 0), (self.variance, 1)):
            tensor.fill_(value)
        self.mean.zero_()
        self.documents.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """(documents, width) -> the same, normalised."""
        learning = self.training and len(x) > 1
        mean, variance, self._batch = self.mean, self.variance, None
        if learning:
            mean, variance = torch.zeros_like(mean), torch.zeros_like(variance)
            self._batch = len(x), mean, variance  # filled by the call below
        return F.batch_norm(
            x, mean, variance, self.weight, self.bias, learning, momentum=1.0, eps=EPSILON
        )

    @torch.no_grad()
    def accept(self, finite: Tensor | None = None) -> None:
        """Add the last batch to the statistics, unless `finite`, on its device, is 0."""
        if self._batch is not None:
            count, mean, variance = self._batch
            documents = self.documents * KEPT + count
            part = count / documents
            for old, new in (
                (self.documents, documents),
                (self.mean, self.mean.lerp(mean, part)),
                (self.variance, self.variance.lerp(variance, part)),
            ):
                old.copy_(new if finite is None else torch.where(finite != 0, new, old))
            self._batch = None


def draw_kept(n: int, dropout: float, seed: int, step: Tensor) -> Tensor:
    """Which of n tokens the dropout leaves (n,); depends on seed and step number, a tensor."""
    stream = id_keys(id_keys(torch.full_like(step, seed)) ^ step)
    lane, _ = unpack(id_keys(torch.arange(n, device=step.device) ^ stream))
    return lane >= int(dropout * 2**32)


class Network(nn.Module):
    """Bag -> (batch normalisation -> linear -> ReLU)* -> batch normalisation -> linear.

    Without hidden layers it is the paper's shallow model, bag -> linear; with three of 1000 it is
    the paper's deep one; without `batch_norm` bag -> (linear -> ReLU)* -> linear. See `DeepModel`
    for the arguments.
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
        dropout: float = 0.0,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.bag = HashEmbeddingBag(
            spec.num_embeddings,
            embedding_dim,
            mode=mode,
            num_buckets=spec.num_buckets,
            num_hashes=spec.num_hashes,
            indexing=spec.indexing,
            seed=spec.seed,
            importance=importance,
            aggregation=aggregation,
            append_importance=append_importance,
            device=device,
        )
        widths = [self.bag.output_dim, *hidden_layers]
        normalised = widths if hidden_layers and batch_norm else []
        self.norms = nn.ModuleList(BatchNorm(width, device) for width in normalised)
        self.hidden = nn.ModuleList(nn.Linear(a, b, device=device) for a, b in pairwise(widths))
        self.output = nn.Linear(widths[-1], num_classes, device=device)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw initial values: hash vectors as their layer does, all else as Keras does."""
        self.bag.reset_parameters(generator)
        for layer in (*self.hidden, self.output):
            assert isinstance(layer, nn.Linear)
            limit = math.sqrt(6 / (layer.in_features + layer.out_features))
            draw = torch.empty(layer.weight.shape, device=generator.device)
            layer.weight.copy_(draw.uniform_(-limit, limit, generator=generator))
            layer.bias.zero_()
        for norm in self.norms:
            assert isinstance(norm, BatchNorm)
            norm.reset_parameters()

    def forward(self, keys: Tensor, offsets: Tensor, keep: Tensor | None = None) -> Tensor:
        """Keys (N,), offsets (n + 1,) -> logits (n, classes); `keep` (N,): tokens that count."""
        return self.layers(self.vectors(keys, offsets, keep))

    def vectors(
        self,
        keys: Tensor,
        offsets: Tensor,
        keep: Tensor | None = None,
        places: "Places | None" = None,
    ) -> Tensor:
        """The sums or means of hash vectors (n, D); `places`: see `ops.hash_embedding_bag`."""
        bag = self.bag
        x = ops.hash_embedding_bag(
            keys,
            offsets,
            bag.weight,
            bag.importance,
            bag.hash_seeds,
            bag.spec,
            keep=keep,
            mode=bag.mode,
            aggregation=bag.aggregation,
            append_importance=bag.append_importance,
            places=places,
        )
        if keep is not None and bag.mode == "sum":
            x = x / (1 - self.dropout)
        return x

    def call(self, keys: Tensor, offsets: Tensor, keep: Tensor | None) -> "Call":
        """The arguments of `vectors` as the Triton kernels take them."""
        bag = self.bag
        return ops.gpu_call(
            keys, offsets, bag.weight, bag.importance, bag.hash_seeds, bag.spec, keep
        )

    def layers(self, x: Tensor) -> Tensor:
        """Vectors (n, D) -> logits (n, classes)."""
        for number, layer in enumerate(self.hidden):
            x = F.relu(layer(self._normalised(x, number)))
        logits: Tensor = self.output(self._normalised(x, len(self.hidden)))
        return logits

    def _normalised(self, x: Tensor, number: int) -> Tensor:
        return self.norms[number](x) if self.norms else x

    def accept(self, finite: Tensor | None = None) -> None:
        """Add the last batch to the statistics of the normalisation, unless `finite` is 0."""
        for norm in self.norms:
            assert isinstance(norm, BatchNorm)
            norm.accept(finite)
