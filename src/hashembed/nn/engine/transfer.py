"""Copies documents to the GPU, for the steps of `nn/engine/graph.py`: all at once, or streamed.

Keys, lengths and labels of a training set are copied once and stay on the GPU for as long as the
arrays live. If the keys need too much memory they are streamed: while the GPU trains on one part of
the batches, the keys of the next part are collected and copied.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from hashembed.core.arrays import F32, I64
from hashembed.core.threads import cpu_count, run_workers
from hashembed.engine.labels import Labels
from hashembed.engine.protocol import LossNotFiniteError, check_rates, loss_not_finite
from hashembed.hashing.bags import Bags
from hashembed.hashing.gather import gather
from hashembed.hashing.spec import id_keys
from hashembed.nn.engine.batches import place_keys, placed, to_device
from hashembed.nn.engine.graph import Steps
from hashembed.nn.engine.member import Member
from hashembed.nn.engine.prepare import BUFFERS
from hashembed.nn.gpu.tiles import on_stream
from hashembed.nn.ops import indexing

PART = 1 << 23  # keys that are copied at a time
_training = Lock()


class Trained(Member, Protocol):
    """A member that keeps the steps of its last training, to use them again."""

    gpu_steps: Steps | None


class Snippets(NamedTuple):
    """A run of keys of each document: where it starts, its length, and the most it can be."""

    starts: Tensor
    lengths: Tensor
    longest: int


def draw_snippets(
    bags: Bags, device: torch.device, seed: int, epoch: int, minimum: int, maximum: int
) -> Snippets:
    """`Bags.snippets`, bit-identical, drawn on the device."""
    offsets = placed(bags.offsets, device)
    starts, sizes = offsets[:-1], offsets.diff()
    stream = int(id_keys(id_keys(seed) ^ np.int64(epoch)))
    numbers = torch.arange(len(bags), device=device) ^ stream
    a, b = indexing.unpack(indexing.id_keys(numbers))
    drawn = minimum + indexing.reduce_range(a, maximum - minimum + 1)
    lengths = torch.minimum(drawn, sizes)
    return Snippets(starts + indexing.reduce_range(b, sizes - lengths + 1), lengths, maximum)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """GPU work of one thread would become part of the graph that another thread captures."""
    with _training:
        yield


@_one_at_a_time()
def train_members(
    members: Sequence[Trained],
    bags: Bags,
    labels: Labels,
    order: I64,
    rates: F32,
    batch_size: int,
    weights: F32 | None,
    snippets: Snippets | None,
) -> F32:
    """Train models together on the same batches -> losses (members, documents)."""
    check_rates(-(-len(order) // batch_size), rates)
    for member in members:
        member.use_class_weights(labels)
    if len(order) == 0:
        return np.empty((len(members), 0), np.float32)
    lengths = np.diff(bags.offsets)[order]
    if snippets is not None:
        lengths = np.minimum(lengths, snippets.longest)
    tokens = np.add.reduceat(lengths, np.arange(0, len(order), batch_size))
    steps, n = _steps_for(members, bags, batch_size, tokens, int(lengths.max())), len(order)
    steps.rates[: len(rates)] = to_device(rates, steps.device)
    _place_documents(steps, bags, labels, order, weights, snippets)
    steps.begin(n, members[0].steps)
    try:
        if steps.streamed:
            _run_streamed(steps, bags, tokens, n)
        else:
            steps.run(0, tokens, n)
    except BaseException:  # in the middle of a step, or of a capture
        if steps.cuda:
            torch.cuda.synchronize(steps.device)  # including streams that nobody waits for
        members[0].gpu_steps = None
        for optimizer in (o for member in members for o in member.optimizers):
            optimizer.zero_grad()
        raise
    for member in members:
        member.steps += len(tokens)
    losses: F32 = steps.losses[:, :n].to("cpu", copy=True).numpy()
    _check(losses, batch_size, len(tokens))
    return losses


def _place_documents(
    steps: Steps,
    bags: Bags,
    labels: Labels,
    order: I64,
    weights: F32 | None,
    snippets: Snippets | None,
) -> None:
    """Copy starts, lengths, labels and weights of documents to the GPU, in their order."""
    device, n = steps.device, len(order)
    chosen = to_device(order, device)
    offsets = placed(bags.offsets, device)
    starts, sizes = (offsets[:-1], offsets.diff()) if snippets is None else snippets[:2]
    torch.index_select(sizes, 0, chosen, out=steps.lengths[:n])
    if steps.truth is not None:
        truth = labels.take(order).matrix(steps.truth.shape[1])
        steps.truth[:n] = to_device(truth, device)
    elif steps.labels is not None:
        torch.index_select(placed(labels.labels, device), 0, chosen, out=steps.labels[:n])
    if weights is None:
        steps.weights.fill_(1)
    else:
        steps.weights[:n] = to_device(weights[order], device)
    torch.index_select(starts, 0, chosen, out=steps.starts[:n])


def _steps_for(
    members: Sequence[Trained], bags: Bags, batch_size: int, tokens: I64, longest: int
) -> Steps:
    """The steps of an earlier call, or new ones."""
    model, most = members[0], int(tokens.max())
    old = model.gpu_steps
    size = BUFFERS * max(PART, most)
    found = place_keys(bags.keys, model.spec, model.device)
    streamed = not isinstance(found, Tensor)
    if isinstance(found, Tensor):
        keys = found
    elif old is not None and old.streamed and len(old.keys) >= size:
        keys = old.keys
    else:
        keys = torch.empty(size, dtype=torch.int64, device=model.device)
    if old is None or not old.fits(members, keys, batch_size, tokens, longest):
        old = model.gpu_steps = None  # its memory may be needed
        old = Steps(members, keys, batch_size, tokens, longest, streamed)
        model.gpu_steps = old
    return old


def _run_streamed(steps: Steps, bags: Bags, tokens: I64, n: int) -> None:
    """Run all steps while their keys are copied to the GPU, part by part.

    There is a double buffer on the host and one on the GPU: one half is filled while the other is
    read.
    """
    starts, lengths = (t[:n].to("cpu", copy=True).numpy() for t in (steps.starts, steps.lengths))
    size = len(steps.keys) // BUFFERS
    collected = torch.empty(BUFFERS, size, dtype=torch.int64, pin_memory=steps.cuda)
    copied: list[torch.cuda.Event | None] = [None] * BUFFERS
    read: list[torch.cuda.Event | None] = [None] * BUFFERS
    stream = steps.copy_stream
    if stream is not None:
        stream.wait_stream(torch.cuda.current_stream(steps.device))
    first, buffer = 0, 0
    while first < len(tokens):
        fitting = int(np.searchsorted(np.cumsum(tokens[first:]), size, "right"))
        last = first + max(fitting, 1)
        documents = slice(first * steps.batch_size, min(last * steps.batch_size, n))
        offsets = np.concatenate([[0], np.cumsum(lengths[documents])])
        before, now_read = copied[buffer], read[buffer]
        if before is not None:
            before.synchronize()
        out = collected[buffer, : offsets[-1]]
        _collect(bags.keys, starts[documents], offsets, out.numpy())
        with on_stream(stream):
            if stream is not None and now_read is not None:
                stream.wait_event(now_read)
            begin = buffer * size
            steps.keys[begin : begin + len(out)].copy_(out, non_blocking=True)
            places = torch.from_numpy(offsets[:-1] + begin)
            steps.starts[documents].copy_(
                places.pin_memory() if steps.cuda else places, non_blocking=True
            )
        if stream is not None:
            copied[buffer] = stream.record_event()
        read[buffer] = steps.run(first, tokens[first:last], n, copied[buffer])
        first, buffer = last, 1 - buffer


def _collect(keys: I64, starts: I64, offsets: I64, out: I64) -> None:
    """`gather` with all threads."""

    def part(worker: int, workers: int, barrier: object) -> None:
        begin, end = (len(starts) * i // workers for i in (worker, worker + 1))
        gather(keys, starts[begin:end], offsets[begin : end + 1], out)

    run_workers(part, cpu_count())


def _check(losses: F32, batch_size: int, batches: int) -> None:
    wrong = np.argwhere(~np.isfinite(losses))
    if not len(wrong):
        return
    member, document = wrong[np.argmin(wrong[:, 1])]
    error = loss_not_finite(document // batch_size, batches)
    if len(losses) > 1:
        raise LossNotFiniteError(f"member {member + 1} of {len(losses)}: {error}")
    raise error
