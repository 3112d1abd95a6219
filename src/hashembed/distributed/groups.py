"""Work on a whole dataset: groups of its blocks become tasks, whose results come in order.

A task gets references to the blocks of its group and reads one block at a time. The next blocks are
read while tasks run, but only as many as fit: a slow task does not fill the object store. If a node
is lost, Ray runs the tasks again that were there, and those that made their blocks.

The result of a stage must not depend on where groups begin and end: Ray decides that.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from hashembed.core.wording import command_options, option_names
from hashembed.distributed.cluster import cluster_cores, load_ray, plain_errors

GROUP_BYTES = 32 << 20  # of the columns that are used
GROUP_BLOCKS = 64
AHEAD = 2  # groups in flight for each core


@dataclass(frozen=True)
class Group:
    """Consecutive blocks of a dataset."""

    number: int
    first: int  # row of the dataset with which the group begins, from 0
    rows: int
    blocks: "tuple[Block, ...]"

    def tables(self) -> Iterator[tuple[int, pa.Table]]:
        """The blocks as Arrow tables, each with the number of its first row."""
        ray, row = load_ray(), self.first
        for block in self.blocks:
            table = _as_table(ray.get(block.reference)).slice(block.start, block.rows)
            yield row, table
            row += len(table)


class Block(NamedTuple):
    """Rows of a block of the dataset."""

    reference: Any
    start: int
    rows: int
    nbytes: int


def _as_table(block: Any) -> pa.Table:
    from ray.data.block import BlockAccessor

    return BlockAccessor.for_block(block).to_arrow()


def in_order(ds: Any) -> Any:
    """The dataset, with its rows in the order of its files."""
    ds.context.execution_options.preserve_order = True
    return ds


def make_groups(ds: Any) -> Iterator[Group]:
    """The rows of a dataset in order, in groups of about GROUP_BYTES."""
    blocks: list[Block] = []
    number = first = rows = size = 0
    with plain_errors():
        for block in _blocks(ds):
            blocks.append(block)
            rows += block.rows
            size += block.nbytes
            if size >= GROUP_BYTES or len(blocks) >= GROUP_BLOCKS:
                yield Group(number, first, rows, tuple(blocks))
                number, first = number + 1, first + rows
                blocks, rows, size = [], 0, 0
    if blocks:
        yield Group(number, first, rows, tuple(blocks))


def _blocks(ds: Any) -> Iterator[Block]:
    """The blocks of a dataset, in order, as they are made."""
    for bundle in in_order(ds).iter_internal_ref_bundles():
        parts = zip(bundle.block_refs, bundle.metadata, bundle.slices, strict=True)
        for reference, meta, cut in parts:
            start, rows = 0, meta.num_rows
            if cut is not None:
                start, rows = cut.start_offset, cut.num_rows
            yield Block(reference, start, rows, meta.size_bytes or 0)


def run_groups(
    ds: Any, stage: str, work: Callable[..., Any], *arguments: Any, cores: int = 1
) -> Iterator[Any]:
    """work(group, *arguments) for each group, in tasks -> references to the results, in order.

    stage: the name of the tasks in Ray's dashboard.
    """
    task = remote_task(stage, cores)
    waiting: deque[Any] = deque()
    most = AHEAD * max(1, cluster_cores() // cores)
    for group in make_groups(ds):
        waiting.append(task.remote(work, group, *arguments))
        if len(waiting) >= most:
            yield _finished(waiting.popleft())
    while waiting:
        yield _finished(waiting.popleft())


def remote_task(stage: str, cores: int = 1, **options: Any) -> "Task":
    """A Ray function that calls its first argument with the others.

    Ray runs it again if its node or its process dies, however often; an exception is final.
    """
    found = load_ray().remote(max_retries=-1, num_cpus=cores, **options)(_call)
    return Task(found.options(name=f"hashembed: {stage}"))


class Task(NamedTuple):
    """A Ray function, whose messages name options as those of this process do."""

    function: Any

    def remote(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call it -> a reference to the result."""
        return self.function.remote(dict(option_names()), work, *arguments)


def _call(options: dict[str, str], work: Callable[..., Any], *arguments: Any) -> Any:
    with command_options(options):
        return work(*arguments)


def _finished(reference: Any) -> Any:
    ray = load_ray()
    with plain_errors():
        ray.wait([reference], fetch_local=False)
    return reference


def results(references: Iterator[Any]) -> Iterator[Any]:
    """The results themselves; they must be small."""
    ray = load_ray()
    for reference in references:
        with plain_errors():
            found = ray.get(reference)
        yield found


def add_up(references: Iterator[Any], stage: str, add: Callable[[Any, Any], Any]) -> Any:
    """The sum of results, made by tasks on the cluster -> a reference; None if there are none.

    Sums are exact, so it does not matter which neighbours are added first. The first argument of
    `add` is what came earlier.
    """
    task = remote_task(stage)
    levels: list[Any] = []  # levels[i] is the sum of 2**i results, or None: as a binary counter
    for reference in references:
        carried, level = reference, 0
        while level < len(levels) and levels[level] is not None:
            carried, levels[level] = task.remote(add, levels[level], carried), None
            level += 1
        if level == len(levels):
            levels.append(None)
        levels[level] = carried
    total = None
    for found in filter(None, levels):  # the latest first
        total = found if total is None else task.remote(add, found, total)
    return total


def fetch(reference: Any) -> Any:
    """The result behind a reference."""
    with plain_errors():
        return load_ray().get(reference)
