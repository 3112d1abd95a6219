"""Training steps that need nothing from the host: one CUDA graph, replayed.

All that a step reads has a fixed place on the GPU: documents in the order they come, rates, the
number of the step. The kernels of `triton_batches.py` make the batch from it. A batch of whatever
size runs in the graph for the next larger number of keys; keys behind the last document's count for
nothing.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
import triton
from torch import Tensor

from hashembed.nn import triton_batches
from hashembed.nn.cuda_rows import INTERPRETED, device_of

if TYPE_CHECKING:
    from hashembed.nn.deep import DeepModel

WIDEST = 256  # vectors that `softmax_head` takes
_TILE = 64 if INTERPRETED else 1024


class Steps:
    """Steps of one or several models on the same batches.

    Args:
        members: the models, on one device.
        keys: of all documents, on that device.
        batch_size: documents in a batch.
        steps: at most so many in one call of `run`.
        tokens: at most so many keys in a batch.
        streamed: whether `keys` are a place that keys pass through, instead of all there are.
    """

    def __init__(
        self,
        members: Sequence["DeepModel"],
        keys: Tensor,
        batch_size: int,
        steps: int,
        tokens: int,
        streamed: bool = False,
    ) -> None:
        self.streamed = streamed
        self.members, self.keys, self.batch_size = list(members), keys, batch_size
        self.max_steps, self.max_tokens = steps, rounded(tokens)
        self.device = members[0].device
        self.versions = [member.version for member in members]
        documents = steps * batch_size

        def empty(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=self.device)

        single = torch.float32
        # Of all documents, in order.
        self.starts, self.lengths = empty(documents), empty(documents)
        self.weights = empty(documents, dtype=single)
        self.rates = empty(steps, dtype=single)
        self.losses = empty(len(members), documents, dtype=single)
        self.labels = self.truth = None
        if members[0].multilabel:
            self.truth = empty(documents, members[0].num_classes, dtype=torch.bool)
        else:
            self.labels = empty(documents)
        # Of one step.
        self.step, self.before = empty(), empty()
        self.fine = empty(len(members), dtype=torch.int32)
        self.rate = empty(len(members), dtype=single)
        self._keys, self._offsets = empty(self.max_tokens), empty(batch_size + 1)
        self._shifts, self._labels = empty(batch_size), empty(batch_size)
        self._weights = empty(batch_size, dtype=single)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._seen: set[int] = set()
        self._pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None
        self._streams = (
            [torch.cuda.Stream(self.device) for _ in members]  # type: ignore[no-untyped-call]
            if self.device.type == "cuda" and len(members) > 1
            else []
        )

    def fits(
        self,
        members: Sequence["DeepModel"],
        keys: Tensor,
        batch_size: int,
        steps: int,
        tokens: int,
    ) -> bool:
        """Whether these steps can be run here too."""
        return (
            keys is self.keys
            and batch_size == self.batch_size
            and steps <= self.max_steps
            and tokens <= self.max_tokens
            and len(members) == len(self.members)
            and all(a is b for a, b in zip(members, self.members, strict=True))
            and self.versions == [member.version for member in members]
        )

    def begin(self, before: int) -> None:
        """The first step of a call, after `before` steps in the life of the models."""
        self.step.zero_()
        self.before.fill_(before)
        self.fine.fill_(1)

    def run(self, documents: int, tokens: int) -> None:
        """The next step, on so many documents that have so many keys; the host does not wait."""
        capacity = min(rounded(tokens), self.max_tokens)
        if documents != self.batch_size or self._pool is None:
            self._step(documents, capacity)
        elif capacity in self._graphs:
            self._graphs[capacity].replay()
        elif capacity in self._seen:
            graph = self._graphs[capacity] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                self._step(documents, capacity)
            graph.replay()
        else:  # the first one compiles kernels and makes the optimizers' state
            self._seen.add(capacity)
            self._step(documents, capacity)

    def _step(self, n: int, capacity: int) -> None:
        with device_of(self.keys):
            triton_batches.assemble[(1,)](
                self.starts,
                self.lengths,
                self.labels,
                self.weights,
                self.rates,
                self.step,
                self.fine,
                self._offsets,
                self._shifts,
                self._labels,
                self._weights,
                self.rate,
                n,
                self.batch_size,
                MEMBERS=len(self.members),
                T=_TILE,
            )
            keys, offsets = self._keys[:capacity], self._offsets[: n + 1]
            if capacity:
                tile = min(_TILE, 256)
                triton_batches.gather_keys[(triton.cdiv(capacity, tile),)](
                    self.keys, offsets, self._shifts, keys, capacity, n, n.bit_length(), T=tile
                )
        labels = self._labels[:n]
        if self.truth is not None:
            flat = self.truth.view(self.max_steps, -1)
            chosen = flat.index_select(0, self.step.view(1))
            labels = chosen.view(self.batch_size, -1)[:n]
        number = self.before + self.step
        batch = (keys, offsets, labels, self._weights[:n], number)
        if not self._streams:
            for i in range(len(self.members)):
                self._train(i, n, *batch)
        else:
            here = torch.cuda.current_stream(self.device)
            for i, stream in enumerate(self._streams):
                stream.wait_stream(here)
                with torch.cuda.stream(stream):
                    self._train(i, n, *batch)
            for stream in self._streams:
                here.wait_stream(stream)
        with device_of(self.keys):
            triton_batches.advance[(1,)](self.step, num_warps=1)

    def _train(
        self,
        i: int,
        n: int,
        keys: Tensor,
        offsets: Tensor,
        labels: Tensor,
        weights: Tensor,
        number: Tensor,
    ) -> None:
        model, fine, rate = self.members[i], self.fine[i], self.rate[i]
        model.set_rate(rate)
        vectors = model.network.vectors(keys, offsets, model.kept(len(keys), number))

        def note(losses: Tensor) -> None:
            with device_of(losses):
                triton_batches.note[(1,)](
                    losses, self.step, fine, rate, self.losses[i], n, self.batch_size, T=_TILE
                )

        learn(model, vectors, labels, weights, fine, model.scale(self.batch_size), note)
        model.update()


def rounded(tokens: int) -> int:
    """The next larger of 1, 1.25, 1.5 and 1.75 times a power of 2."""
    unit = 1 << max((tokens - 1).bit_length() - 3, 0)
    return -(-tokens // unit) * unit


def learn(
    model: "DeepModel",
    vectors: Tensor,
    labels: Tensor,
    weights: Tensor,
    fine: Tensor,
    scale: float,
    note: Callable[[Tensor], None],
) -> None:
    """The backward pass from a batch's vectors (n, D); `note` is told the losses (n,) before it."""
    network = model.network
    if model.multilabel or network.hidden or vectors.shape[1] > WIDEST:
        logits = network.layers(vectors)
        logits.register_hook(lambda slopes: torch.where(fine != 0, slopes, 0))  # type: ignore[no-untyped-call]
        losses = model.losses(logits, labels) * weights
        note(losses.detach())
        (losses.sum() * scale).backward()  # type: ignore[no-untyped-call]
        return
    W, bias, x = network.output.weight, network.output.bias, vectors.detach()
    losses, slopes, of_x = softmax_head(x, W.detach(), bias.detach(), labels, weights, scale)
    note(losses)
    W.grad, bias.grad = slopes.t() @ x, slopes.sum(0)
    vectors.backward(of_x)  # type: ignore[no-untyped-call]


def softmax_head(
    x: Tensor,
    W: Tensor,
    bias: Tensor,
    labels: Tensor,
    weights: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Cross entropy of x W' + bias for each document, and its slopes; see the kernel."""
    (n, d), C = x.shape, len(W)
    losses, slopes, of_x = x.new_empty(n), x.new_empty(n, C), torch.empty_like(x)
    D = max(16, triton.next_power_of_2(d))
    A = max(16, min(triton.next_power_of_2(C), 4096 // D))
    T = 16
    with device_of(x):
        triton_batches.softmax_head[(triton.cdiv(n, T),)](
            x, W, bias, labels, weights, losses, slopes, of_x, n, C, scale, d=d, T=T, D=D, A=A
        )
    return losses, slopes, of_x
