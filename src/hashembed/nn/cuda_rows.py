"""The Triton kernels of `triton_sums.py` and `triton_rules.py`, called on tensors."""

import contextlib
import math
import struct
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hashembed.nn import triton_rules, triton_sums
from hashembed.nn.cpu import ACCUMULATION

STORE, SGD, ADAGRAD, ADAGRAD_ROWWISE, ADAM = range(5)
LENGTH: int = triton_rules.LENGTH.value  # of `numbers`
RING: int = triton_rules.RING.value

INTERPRETED: bool = triton.knobs.runtime.interpret
# Numbers in a tile, and its warps: the fastest of those tried on an H200 with d = 20 and d = 2.
SUM, UPDATE = (1024, 1), (1024, 2)
CATCH_UP = 128  # rows; 32 for each warp
TILE = 32  # in the interpreter, which scans numbers one by one, in Python
# Tiles whose edges `sum_edges` takes at a time (more are slower: few programs have anything to do),
# and tiles in a group.
EDGE_TILES, GROUP = (2, 4) if INTERPRETED else (8, 32)
_REACH = 2**10  # steps after which momentum is forgotten: beta1^1024 / beta2^512

TYPES = {torch.float32: tl.float32, torch.float64: tl.float64}


def acc(table: Tensor) -> Any:
    """Triton's name for what sums are taken in."""
    return TYPES[ACCUMULATION[table.dtype]]


def device_of(tensor: Tensor) -> Any:
    """Triton launches on the current device; make it the tensor's."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()


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
    tails: Tensor | None = None  # (2, RING), float64

    @property
    def stamps(self) -> Tensor | None:
        """The state of Adam as integers."""
        if self.number != ADAM or self.state is None:
            return None
        return self.state.view(torch.int32 if self.state.dtype == torch.float32 else torch.int64)

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """As the kernels take them."""
        return self.table, self.state, self.stamps, self.numbers, self.tails, self.step

    @property
    def record(self) -> int:
        """Numbers of state that a row has."""
        return 0 if self.state is None else self.state.shape[1]


class Distinct(NamedTuple):
    """The distinct rows among sorted keys (M,)."""

    slots: Tensor  # which of them a key is (M,)
    rows: Tensor  # (M,), of which so many are filled
    number: Tensor  # how many there are: (), int32


class Terms(NamedTuple):
    """Terms of the gradients of a table's rows, sorted by row; see `sum_tiles`."""

    keys: Tensor  # (M,)
    order: Tensor  # (M,)
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
    free: tuple[torch.cuda.Event, ...] = ()  # from then on the table may be changed


def sum_rows(terms: Terms, rule: Rule, slots: Tensor | None = None, *, behind: bool = True) -> None:
    """Add up the terms of each row; its sum goes into the rule.

    With `slots` (M,) they are rows of a table of their own; `behind`: see `finish`.
    """
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


def sums_of(terms: Terms, found: Distinct, table: Tensor) -> Tensor:
    """The sums of the distinct rows' terms (M, d), of which the first rows are filled."""
    shape = len(found.rows), table.shape[1]
    sums = torch.empty(shape, dtype=ACCUMULATION[table.dtype], device=table.device)
    sum_rows(terms, Rule(STORE, sums), found.slots)
    return sums


def update_rows(
    rule: Rule, rows: Tensor, values: Tensor, count: Tensor | None = None, *, behind: bool = True
) -> None:
    """Update distinct rows (m,) by their gradients (m, d); rows behind the table do not count.

    With `count`, (), the first so many.
    """
    m, d = values.shape
    if m == 0:
        return
    T, D, warps = _tile(d, *UPDATE)
    with device_of(rule.table):
        triton_rules.update_rows[(triton.cdiv(m, T),)](
            rows,
            count,
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


def catch_up(rule: Rule, keys: Tensor, base: int = 0, count: Tensor | None = None) -> None:
    """Bring the rows keys - base, with repeats, to the present step of Adam.

    With `count`, (), the first so many.
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
            T=T,
            D=D,
            ACC=acc(rule.table),
            num_warps=T // 32,
        )


Betas = tuple[float, float] | None


def _logs(betas: Betas) -> list[float]:
    return [math.log2(beta) for beta in betas or (0.5, 0.5)]


def make_numbers(betas: Betas, device: torch.device | str) -> Tensor:
    """The `numbers` of a rule before its first step."""
    numbers = torch.zeros(LENGTH, dtype=torch.float64)
    numbers[-2:] = torch.tensor(_logs(betas), dtype=torch.float64)
    return numbers.to(device)


def begin_step(rule: Rule, lr: float | Tensor, eps: float, betas: Betas = None) -> None:
    """Count a step. A rate on the GPU is read there, so a CUDA graph may follow a schedule."""
    on_device = isinstance(lr, Tensor) and lr.device == rule.table.device
    numbers = (0.0 if on_device else float(lr), eps, *_logs(betas))
    with device_of(rule.table):
        triton_rules.begin_step[(1,)](
            rule.step, rule.numbers, lr if on_device else None, *map(_bits, numbers), num_warps=1
        )


def end_step(rule: Rule) -> None:
    """Remember this step of Adam for the rows that miss it."""
    with device_of(rule.table):
        triton_rules.end_step[(1,)](rule.step, rule.numbers, rule.tails, REACH=_REACH, num_warps=4)


def ring(tails: Tensor, step: Tensor) -> Tensor:
    """Tails of any length, as the CPU keeps them -> the last RING of them."""
    if tails.shape[1] == RING:
        return tails
    end = int(step) + 1
    steps = torch.arange(max(0, end - RING), end, device=tails.device)
    out = tails.new_zeros(2, RING)
    out[:, steps % RING] = tails[:, steps]
    return out


def _bits(x: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", x))[0])
