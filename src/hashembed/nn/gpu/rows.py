"""The Triton kernels that add up gradients and update rows, called on tensors."""

import contextlib
import struct
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hashembed.nn.cpu.launch import ACCUMULATION
from hashembed.nn.gpu.kernels import rules as triton_rules
from hashembed.nn.gpu.kernels import sums as triton_sums
from hashembed.nn.gpu.kernels import terms as triton_terms

STORE, SGD, ADAGRAD, ADAGRAD_ROWWISE, ADAM, ADAMW, MOMENTUM = range(7)
LENGTH: int = triton_rules.LENGTH.value  # of `numbers`
RING: int = triton_rules.RING.value

INTERPRETED: bool = triton.knobs.runtime.interpret
# Numbers in a tile, and its warps: the fastest of those tried on an H200 with d = 20 and d = 2.
SUM, UPDATE, SHORT = (1024, 1), (1024, 2), (1024, 4)
# Programs of `update_short` for each multiprocessor, of wide rows and of narrow ones, and those of
# `sum_long`: few, where they run beside the update of wide rows, which takes longest.
PROGRAMS, NARROW_PROGRAMS, LONG_PROGRAMS = (2, 2, 3) if INTERPRETED else (6, 4, 16)
AT_A_TIME, NARROW_AT_A_TIME = 2, 8  # terms of such rows
# Beyond so many terms a row is not updated by one program alone: wide rows, narrow ones.
LONG, LONG_NARROW = (2, 4) if INTERPRETED else (32, 64)
CATCH_UP = 128  # rows; 32 for each warp
FEW = 1 if INTERPRETED else 2  # terms that most rows have, at most
TILE = 32  # in the interpreter, which scans numbers one by one, in Python
FEW_TILES = 2 if INTERPRETED else 8  # of a long row that need no groups of them
# Tiles whose edges `sum_edges` takes at a time (more are slower: few programs have anything to do),
# and tiles in a group.
EDGE_TILES, GROUP = (2, 4) if INTERPRETED else (8, 32)
_REACH = 2**10  # steps after which momentum is forgotten: beta1^1024 / beta2^512
_HALF = -1.0  # the logarithm of a beta that is not used

TYPES = {torch.float32: tl.float32, torch.float64: tl.float64}


def acc(table: Tensor) -> Any:
    """Triton's name for what sums are taken in."""
    return TYPES[ACCUMULATION[table.dtype]]


def device_of(tensor: Tensor) -> Any:
    """Triton launches on the current device; make it the tensor's."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a GPU."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _tile(d: int, numbers: int, warps: int) -> tuple[int, int, int]:
    """T and D of a tile of rows of d numbers, and the number of warps: so many numbers, or more."""
    D = triton.next_power_of_2(d)
    T = max(4, min((TILE if INTERPRETED else numbers) // D, 128))
    return T, D, warps if 8 < D <= 64 else 4


class Rule(NamedTuple):
    """What happens to a row's gradient: it is stored in a table, or updates it."""

    number: int
    table: Tensor  # (rows, d)
    state: Tensor | None = None  # (rows, record)
    numbers: Tensor | None = None  # (LENGTH,), float64
    step: Tensor | None = None  # (), int64
    history: Tensor | None = None  # (5, RING), float64

    @property
    def stamps(self) -> Tensor | None:
        """Records as integers."""
        if self.number < ADAM or self.state is None:
            return None
        return self.state.view(torch.int32 if self.state.dtype == torch.float32 else torch.int64)

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """As the kernels take them."""
        return self.table, self.state, self.stamps, self.numbers, self.history, self.step

    @property
    def record(self) -> int:
        """Numbers of state that a row has."""
        return 0 if self.state is None else self.state.shape[1]


class Distinct(NamedTuple):
    """The distinct rows among sorted keys (M,); see `distinct_rows` and `by_length`."""

    items: Tensor  # which keys they were (M,)
    owners: Tensor  # the bags of their tokens (M,)
    slots: Tensor  # which of the rows they are (M,)
    rows: Tensor  # (M,), of which so many are filled
    starts: Tensor  # where their keys start (M,), so many
    listed: Tensor  # rows that are not long (M,), those with few keys from the beginning on
    extents: Tensor  # where their keys start, and how many there are (M,)
    found: Tensor  # how many rows there are, and of those listed from either end: (3,), int32


class Terms(NamedTuple):
    """Terms of the gradients of a table's rows, sorted by row; see `sum_tiles`."""

    keys: Tensor | None  # (M,); or `distinct` is known
    order: Tensor | None  # (M,)
    base: int
    first: int
    tokens: int
    parts: int
    rows: int
    source: Tensor
    component: int
    owner: Tensor | None
    factors: Tensor | None
    distinct: Distinct | None = None
    turn: Tensor | None = (
        None  # of several whose distinct rows are known; see `nn/gpu/kernels/terms.py`
    )
    free: tuple[torch.cuda.Event, ...] = ()  # from then on the table may be changed


def sum_rows(terms: Terms, rule: Rule, slots: Tensor | None = None, *, behind: bool = True) -> None:
    """Add up the terms of each row; its sum goes into the rule.

    With `slots` (M,) they are rows of a table of their own; `behind`: see `finish`.
    """
    assert terms.keys is not None
    M, d = len(terms.keys), rule.table.shape[1]
    if M == 0:
        return
    T, D, warps = _tile(d, *SUM)
    tiles = triton.cdiv(M, T)
    kind = ACCUMULATION[rule.table.dtype]
    G = max(1, min(GROUP, 4096 // D))
    partial = torch.empty(tiles, 2, D, dtype=kind, device=rule.table.device)
    groups = torch.empty(tiles // G, D, dtype=kind, device=rule.table.device)
    common = {
        "d": d,
        "record": rule.record,
        "RULE": rule.number,
        "BEHIND": behind,
        "T": T,
        "D": D,
    }
    with device_of(rule.table):
        triton_sums.sum_tiles[(tiles,)](
            terms.keys,
            terms.order,
            slots,
            terms.owner,
            terms.factors,
            terms.source,
            partial,
            *rule.tensors,
            M,
            terms.tokens,
            terms.base,
            terms.rows,
            terms.first,
            parts=terms.parts,
            source_width=terms.source.shape[1],
            component=terms.component,
            **common,
            ACC=acc(rule.table),
            num_warps=warps,
        )
        if tiles > G:
            triton_sums.sum_groups[(tiles // G,)](
                terms.keys, partial, groups, M, tiles, T=T, D=D, G=G, num_warps=warps
            )
        A = max(1, min(EDGE_TILES, 2048 // D))
        triton_sums.sum_edges[(triton.cdiv(tiles, A),)](
            terms.keys,
            slots,
            partial,
            groups,
            *rule.tensors,
            M,
            tiles,
            terms.base,
            terms.rows,
            **common,
            A=A,
            G=G,
            ACC=acc(rule.table),
            num_warps=warps,
        )


def join_terms(several: list[Terms], table: Tensor) -> Terms:
    """The terms of several uses of a table, written out, as those of one."""
    parts = [_written_out(terms, table) for terms in several]
    rows, values = torch.cat([rows for rows, _ in parts]), torch.cat([g for _, g in parts])
    keys, order = torch.sort(rows, stable=True)
    return Terms(keys, order, 0, 0, len(keys), 1, len(table), values, 0, None, None)


def _written_out(terms: Terms, table: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (M,) and terms of their gradients (M, d); see `sum_tiles`."""
    if terms.keys is None or terms.order is None:
        raise ValueError("terms whose distinct rows are known cannot be joined with others")
    rows, item = terms.keys.long() - terms.base, terms.order.long() - terms.first
    owner = item % terms.tokens
    if terms.owner is not None:
        owner = terms.owner[owner].long()
    owner = torch.where(rows < terms.rows, owner, 0)  # tokens that do not count have none
    columns = torch.arange(table.shape[1], device=table.device)
    columns = (item // terms.tokens * terms.component)[:, None] + columns
    values = terms.source[owner[:, None], columns].to(ACCUMULATION[table.dtype])
    if terms.factors is not None:
        values = values * terms.factors.reshape(-1)[item][:, None]
    return rows, values


def long_from(d: int) -> int:
    """More terms than this make a row of d numbers a long one."""
    return LONG if triton.next_power_of_2(d) > 8 else LONG_NARROW


def update_terms(
    terms: Terms, rule: Rule, *, behind: bool = True, beside: torch.cuda.Stream | None = None
) -> None:
    """The same for terms whose distinct rows are known; long rows on a stream beside this one."""
    known = terms.distinct
    assert known is not None
    M, d = len(known.items), rule.table.shape[1]
    if M == 0:
        return
    T, D, warps = _tile(d, *SHORT)
    L = long_from(d)
    kind, device = ACCUMULATION[rule.table.dtype], rule.table.device
    of_rule = {"d": d, "record": rule.record, "RULE": rule.number, "BEHIND": behind, "D": D}
    of_rule["ACC"] = acc(rule.table)
    source = {"source_width": terms.source.shape[1], "component": terms.component}
    owners = None if terms.owner is None else known.owners
    given = (known.items, owners, terms.factors, terms.source)

    def update_long() -> None:
        tiles, G = triton.cdiv(M, L), max(1, min(GROUP, 4096 // D))
        partial = torch.empty(tiles, 2, D, dtype=kind, device=device)
        groups = torch.empty(tiles // G, D, dtype=kind, device=device)
        where = (known.rows, known.slots, known.starts, known.found)
        of_sums = {"d": d, "L": L, "D": D, "ACC": acc(rule.table)}
        triton_terms.sum_long[(min(tiles, LONG_PROGRAMS * processors(device)),)](
            terms.turn,
            *where,
            *given,
            partial,
            terms.tokens,
            M,
            tiles,
            terms.rows,
            **source,
            **of_sums,
            num_warps=1,
        )
        if tiles > G:
            triton_terms.sum_long_groups[(tiles // G,)](
                terms.turn,
                *where[:2],
                partial,
                groups,
                M,
                tiles,
                terms.rows,
                L=L,
                D=D,
                G=G,
                num_warps=1,
            )
        A = max(1, min(EDGE_TILES, 2048 // D))
        triton_terms.finish_long[(triton.cdiv(tiles, A),)](
            terms.turn,
            *where,
            partial,
            groups,
            *rule.tensors,
            M,
            tiles,
            terms.rows,
            **of_rule,
            L=L,
            A=A,
            G=G,
            FEW=FEW_TILES,
            num_warps=1,
        )

    with device_of(rule.table):
        if beside is not None:
            beside.wait_stream(torch.cuda.current_stream(device))
            for tensor in (terms.source, terms.factors):
                if tensor is not None:
                    tensor.record_stream(beside)
        programs, J = (PROGRAMS, AT_A_TIME) if D > 8 else (NARROW_PROGRAMS, NARROW_AT_A_TIME)
        triton_terms.update_short[(min(triton.cdiv(M, T), programs * processors(device)),)](
            terms.turn,
            known.listed,
            known.extents,
            known.found,
            *given,
            *rule.tensors,
            terms.tokens,
            M,
            **source,
            **of_rule,
            J=J,
            T=T,
            num_warps=warps,
        )
        with contextlib.nullcontext() if beside is None else torch.cuda.stream(beside):
            update_long()
        if beside is not None:
            torch.cuda.current_stream(device).wait_stream(beside)


def update_rows(rule: Rule, rows: Tensor, values: Tensor, *, behind: bool = True) -> None:
    """Update distinct rows (m,) by their gradients (m, d); rows behind the table do not count."""
    m, d = values.shape
    if m == 0:
        return
    T, D, warps = _tile(d, *UPDATE)
    with device_of(rule.table):
        triton_rules.update_rows[(triton.cdiv(m, T),)](
            rows,
            values.contiguous(),
            *rule.tensors,
            m,
            len(rule.table),
            d=d,
            record=rule.record,
            RULE=rule.number,
            BEHIND=behind,
            T=T,
            D=D,
            ACC=acc(rule.table),
            num_warps=warps,
        )


def catch_up(
    rule: Rule, keys: Tensor, base: int = 0, count: Tensor | None = None, *, move: bool = True
) -> None:
    """Bring the rows keys - base, with repeats, to the present step; with `count`, (), the first.

    Without `move` rows stay as they are, and only their moments go on.
    """
    M, (size, d) = keys.numel(), rule.table.shape
    if M == 0:
        return
    D = min(triton.next_power_of_2(d), 32)
    T = CATCH_UP
    with device_of(rule.table):
        triton_rules.catch_up[(triton.cdiv(M, T),)](
            keys,
            count,
            *rule.tensors,
            M,
            base,
            size,
            d=d,
            record=rule.record,
            RULE=rule.number,
            MOVE=move,
            T=T,
            D=D,
            ACC=acc(rule.table),
            num_warps=T // 32,
        )


class Numbers(NamedTuple):
    """What a step is made with, beside the learning rate."""

    eps: float = 0.0
    log_beta1: float = _HALF  # of momentum, too; to the base 2
    log_beta2: float = _HALF
    decay: float = 0.0  # weight decay, decoupled
    nesterov: bool = False


def make_numbers(device: torch.device | str) -> Tensor:
    """The `numbers` of a rule before its first step."""
    return torch.zeros(LENGTH, dtype=torch.float64, device=device)


def begin_step(
    rule: Rule, lr: float | Tensor, numbers: Numbers, fine: Tensor | None = None
) -> None:
    """Count a step. A rate on the GPU is read there, so a CUDA graph may follow a schedule.

    It becomes 0 there if `fine` is.
    """
    on_device = isinstance(lr, Tensor) and lr.device == rule.table.device
    given = (0.0 if on_device else float(lr), *numbers[:-1])
    with device_of(rule.table):
        triton_rules.begin_step[(1,)](
            rule.step,
            rule.numbers,
            lr if on_device else None,
            fine if on_device else None,
            *map(_bits, given),
            RULE=rule.number,
            NESTEROV=numbers.nesterov,
            num_warps=1,
        )


def end_step(rule: Rule) -> None:
    """Remember this step for the rows that miss it."""
    with device_of(rule.table):
        triton_rules.end_step[(1,)](
            rule.step, rule.numbers, rule.history, REACH=_REACH, RULE=rule.number, num_warps=4
        )


def _bits(x: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", x))[0])
