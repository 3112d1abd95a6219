"""Calls of the Triton kernels that add up gradients and update rows.

A `Rule` says what happens to the gradient of a row, `GradientTerms` what the gradient is a sum of.
"""

import struct
from typing import NamedTuple

import torch
from torch import Tensor

from hashembed.nn.cpu.launch import ACCUMULATION
from hashembed.nn.gpu import tiles
from hashembed.nn.gpu.kernels import layout
from hashembed.nn.gpu.kernels import optimizer_rules as triton_rules
from hashembed.nn.gpu.kernels import sums as triton_sums
from hashembed.nn.gpu.kernels import terms as triton_terms
from hashembed.nn.gpu.kernels.layout import RuleKind as RuleKind
from hashembed.nn.gpu.kernels.layout import RuleTensors
from hashembed.nn.gpu.tiles import (
    acc,
    cdiv,
    device_of,
    next_power_of_2,
    on_stream,
    processors,
    row_tile,
)

NUMBERS: int = layout.NUMBERS.value
RING: int = layout.RING.value

_REACH = 2**10  # steps after which momentum is forgotten: beta1^1024 / beta2^512
_UNUSED = -1.0  # the logarithm of a beta that the rule does not have


class Rule(NamedTuple):
    """What happens to the gradient of a row: it is stored in a table, or updates it."""

    kind: RuleKind
    table: Tensor  # (rows, d)
    state: Tensor | None = None  # (rows, width)
    numbers: Tensor | None = None  # (NUMBERS,), float64
    step: Tensor | None = None  # (), int64
    history: Tensor | None = None  # (HISTORY_ROWS, RING), float64

    @property
    def stamps(self) -> Tensor | None:
        """The memory of records as integers."""
        if not self.kind.is_lazy or self.state is None:
            return None
        return self.state.view(torch.int32 if self.state.dtype == torch.float32 else torch.int64)

    @property
    def tensors(self) -> RuleTensors:
        """In the order in which kernels take them."""
        return RuleTensors(
            self.table, self.state, self.stamps, self.numbers, self.history, self.step
        )

    @property
    def state_width(self) -> int:
        """Numbers of state that a row has."""
        return 0 if self.state is None else self.state.shape[1]

    @property
    def options(self) -> dict[str, object]:
        """What every kernel of a rule is compiled for."""
        return {
            "d": self.table.shape[1],
            "record": self.state_width,
            "RULE": self.kind.value,
            "ACC": acc(self.table),
        }


class Distinct(NamedTuple):
    """The distinct rows of a table among M sorted terms; `distinct_rows` and `list_short_rows`.

    A slot is the number of a distinct row. Arrays of slots and short rows are only partly filled.
    """

    term_ids: Tensor  # (M,), int32: component * N + token of each term
    term_bags: Tensor  # (M,), int32: the bag of its token
    slots: Tensor  # (M,), int32: the slot of its row
    rows: Tensor  # (M,), int64: the row in each slot
    starts: Tensor  # (M,), int32: the first term of each slot
    short_rows: Tensor  # (M,), int64: few terms from the beginning, several from the end
    short_extents: Tensor  # (M,), int64: their terms; see `pack_extent`
    counts: Tensor  # (TABLE_COUNTS,), int32


class GradientTerms(NamedTuple):
    """The terms of the gradients of a table's rows, sorted by row; `sum_tiles` has the formula.

    Either `keys` and `order` are given, or `distinct`.
    """

    source: Tensor  # upstream gradients: (bags, width) or (tokens, width)
    tokens: int  # N
    rows: int  # of the table; terms of other rows do not count
    components: int = 1  # terms of each token: k in E, 1 in P
    component_stride: int = 0  # columns of `source` from one component to the next
    token_bags: Tensor | None = None  # (N,): the rows of `source` that tokens read
    factors: Tensor | None = None  # (components, N)
    keys: Tensor | None = None  # (M,), sorted: row + base
    order: Tensor | None = None  # (M,): number of each term + first_term
    base: int = 0
    first_term: int = 0
    distinct: Distinct | None = None
    cursor: Tensor | None = None  # which of several prepared batches; see `layout.py`
    wait_for: tuple[torch.cuda.Event, ...] = ()  # before the table may be changed


class _PartialSums(NamedTuple):
    """Scratch memory for rows that cross the edges of tiles."""

    tiles: int
    group: int  # tiles in a group
    edge_tiles: int  # tiles whose edges a program takes
    sums: Tensor  # (tiles, TILE_SUMS, D)
    groups: Tensor  # (tiles // group, D)


def _make_partial_sums(count: int, D: int, table: Tensor) -> _PartialSums:
    group = max(1, min(tiles.GROUP, 4096 // D))
    kind, device = ACCUMULATION[table.dtype], table.device
    return _PartialSums(
        count,
        group,
        max(1, min(tiles.EDGE_TILES, 2048 // D)),
        torch.empty(count, layout.TILE_SUMS.value, D, dtype=kind, device=device),
        torch.empty(count // group, D, dtype=kind, device=device),
    )


def sum_rows(
    terms: GradientTerms, rule: Rule, slots: Tensor | None = None, *, behind: bool = True
) -> None:
    """Add up the terms of each row; the sum goes into the rule.

    slots (M,): rows of a smaller table that take the sums. behind: rows may have missed steps.
    """
    assert terms.keys is not None
    M = len(terms.keys)
    if M == 0:
        return
    T, D, warps = row_tile(rule.table.shape[1], *tiles.SUM)
    partial = _make_partial_sums(cdiv(M, T), D, rule.table)
    options = {**rule.options, "BEHIND": behind, "T": T, "D": D, "num_warps": warps}
    with device_of(rule.table):
        triton_sums.sum_tiles[(partial.tiles,)](
            terms.keys,
            terms.order,
            slots,
            terms.token_bags,
            terms.factors,
            terms.source,
            partial.sums,
            *rule.tensors,
            M,
            terms.tokens,
            terms.base,
            terms.rows,
            terms.first_term,
            components=terms.components,
            source_width=terms.source.shape[1],
            component_stride=terms.component_stride,
            **options,
        )
        _sum_edges(terms, rule, slots, partial, options)


def _sum_edges(
    terms: GradientTerms,
    rule: Rule,
    slots: Tensor | None,
    partial: _PartialSums,
    options: dict[str, object],
) -> None:
    """Finish the rows that cross the edges of tiles."""
    assert terms.keys is not None
    M, G = len(terms.keys), partial.group
    if partial.tiles > G:
        of_tile = {name: options[name] for name in ("T", "D", "num_warps")}
        triton_sums.sum_groups[(partial.tiles // G,)](
            terms.keys, partial.sums, partial.groups, M, partial.tiles, G=G, **of_tile
        )
    triton_sums.sum_edges[(cdiv(partial.tiles, partial.edge_tiles),)](
        terms.keys,
        slots,
        partial.sums,
        partial.groups,
        *rule.tensors,
        M,
        partial.tiles,
        terms.base,
        terms.rows,
        A=partial.edge_tiles,
        G=G,
        **options,
    )


def join_terms(several: list[GradientTerms], table: Tensor) -> GradientTerms:
    """The terms of several uses of a table, computed and sorted, as those of one use."""
    parts = [_computed(terms, table) for terms in several]
    rows, values = torch.cat([rows for rows, _ in parts]), torch.cat([g for _, g in parts])
    keys, order = torch.sort(rows, stable=True)
    return GradientTerms(values, len(keys), len(table), keys=keys, order=order)


def _computed(terms: GradientTerms, table: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (M,) and terms of their gradients (M, d); `sum_tiles` has the formula."""
    if terms.keys is None or terms.order is None:
        raise ValueError("terms whose distinct rows are known cannot be joined with others")
    rows, term = terms.keys.long() - terms.base, terms.order.long() - terms.first_term
    source_row = term % terms.tokens
    if terms.token_bags is not None:
        source_row = terms.token_bags[source_row].long()
    source_row = torch.where(rows < terms.rows, source_row, 0)  # other tokens have no bag
    columns = torch.arange(table.shape[1], device=table.device)
    columns = (term // terms.tokens * terms.component_stride)[:, None] + columns
    values = terms.source[source_row[:, None], columns].to(ACCUMULATION[table.dtype])
    if terms.factors is not None:
        values = values * terms.factors.reshape(-1)[term][:, None]
    return rows, values


def update_terms(
    terms: GradientTerms,
    rule: Rule,
    *,
    behind: bool = True,
    side_stream: torch.cuda.Stream | None = None,
) -> None:
    """`sum_rows` for terms whose distinct rows are known; `side_stream` updates the long rows."""
    assert terms.distinct is not None
    if len(terms.distinct.term_ids) == 0:
        return
    device = rule.table.device
    with device_of(rule.table):
        if side_stream is not None:
            side_stream.wait_stream(torch.cuda.current_stream(device))
            for tensor in (terms.source, terms.factors):
                if tensor is not None:
                    tensor.record_stream(side_stream)
        _update_short(terms, terms.distinct, rule, behind)
        with on_stream(side_stream):
            _update_long(terms, terms.distinct, rule, behind)
        if side_stream is not None:
            torch.cuda.current_stream(device).wait_stream(side_stream)


def _term_tensors(terms: GradientTerms, known: Distinct) -> layout.TermTensors:
    term_bags = None if terms.token_bags is None else known.term_bags
    return layout.TermTensors(known.term_ids, term_bags, terms.factors, terms.source)


def _update_short(terms: GradientTerms, known: Distinct, rule: Rule, behind: bool) -> None:
    M = len(known.term_ids)
    T, D, warps = row_tile(rule.table.shape[1], *tiles.SHORT)
    programs, J = tiles.NARROW_PROGRAMS, tiles.NARROW_AT_A_TIME
    if D > tiles.NARROW:
        programs, J = tiles.PROGRAMS, tiles.AT_A_TIME
    most = programs * processors(rule.table.device)
    triton_terms.update_short[(min(cdiv(M, T), most),)](
        terms.cursor,
        known.short_rows,
        known.short_extents,
        known.counts,
        *_term_tensors(terms, known),
        *rule.tensors,
        terms.tokens,
        M,
        source_width=terms.source.shape[1],
        component_stride=terms.component_stride,
        **rule.options,
        BEHIND=behind,
        J=J,
        T=T,
        D=D,
        num_warps=warps,
    )


def _update_long(terms: GradientTerms, known: Distinct, rule: Rule, behind: bool) -> None:
    M, d = len(known.term_ids), rule.table.shape[1]
    D, L = next_power_of_2(d), tiles.most_short_terms(d)
    partial = _make_partial_sums(cdiv(M, L), D, rule.table)
    G, sizes = partial.group, (M, partial.tiles, terms.rows)
    most = tiles.LONG_PROGRAMS * processors(rule.table.device)
    triton_terms.sum_long[(min(partial.tiles, most),)](
        terms.cursor,
        known.rows,
        known.slots,
        known.starts,
        known.counts,
        *_term_tensors(terms, known),
        partial.sums,
        terms.tokens,
        *sizes,
        source_width=terms.source.shape[1],
        component_stride=terms.component_stride,
        d=d,
        L=L,
        D=D,
        ACC=acc(rule.table),
        num_warps=1,
    )
    if partial.tiles > G:
        sums = (partial.sums, partial.groups)
        triton_terms.sum_long_groups[(partial.tiles // G,)](
            terms.cursor, known.rows, known.slots, *sums, *sizes, L=L, D=D, G=G, num_warps=1
        )
    triton_terms.finish_long[(cdiv(partial.tiles, partial.edge_tiles),)](
        terms.cursor,
        known.rows,
        known.slots,
        known.starts,
        known.counts,
        partial.sums,
        partial.groups,
        *rule.tensors,
        *sizes,
        **rule.options,
        BEHIND=behind,
        L=L,
        D=D,
        A=partial.edge_tiles,
        G=G,
        FEW=tiles.FEW_TILES,
        num_warps=1,
    )


def update_rows(rule: Rule, rows: Tensor, values: Tensor, *, behind: bool = True) -> None:
    """Update distinct rows (m,) by their gradients (m, d); rows behind the table do not count."""
    m, d = values.shape
    if m == 0:
        return
    T, D, warps = row_tile(d, *tiles.UPDATE)
    with device_of(rule.table):
        triton_rules.update_rows[(cdiv(m, T),)](
            rows,
            values.contiguous(),
            *rule.tensors,
            m,
            len(rule.table),
            **rule.options,
            BEHIND=behind,
            T=T,
            D=D,
            num_warps=warps,
        )


def catch_up(
    rule: Rule, keys: Tensor, base: int = 0, count: Tensor | None = None, *, move: bool = True
) -> None:
    """Bring the rows keys - base, with repeats, to the present step.

    count (): only so many of the keys, a number on the GPU. Without `move` rows stay as they are,
    and only their moments decay.
    """
    M, (size, d) = keys.numel(), rule.table.shape
    if M == 0:
        return
    T = tiles.CATCH_UP
    with device_of(rule.table):
        triton_rules.catch_up[(cdiv(M, T),)](
            keys,
            count,
            *rule.tensors,
            M,
            base,
            size,
            **rule.options,
            MOVE=move,
            T=T,
            D=min(next_power_of_2(d), 32),
            num_warps=T // 32,
        )


class Numbers(NamedTuple):
    """The hyperparameters of a step, without the learning rate."""

    eps: float = 0.0
    log_beta1: float = _UNUSED  # to the base 2; also that of momentum
    log_beta2: float = _UNUSED
    decay: float = 0.0  # decoupled weight decay
    nesterov: bool = False


def make_numbers(device: torch.device | str) -> Tensor:
    """The `numbers` of a rule before its first step."""
    return torch.zeros(NUMBERS, dtype=torch.float64, device=device)


def begin_step(
    rule: Rule, lr: float | Tensor, numbers: Numbers, finite: Tensor | None = None
) -> None:
    """Count a step and write its numbers.

    A rate that is on the GPU is read there, so that a CUDA graph can follow a schedule. If `finite`
    is 0, that rate becomes 0 and the step updates nothing.
    """
    on_device = isinstance(lr, Tensor) and lr.device == rule.table.device
    given = (0.0 if on_device else float(lr), *numbers[:-1])
    with device_of(rule.table):
        triton_rules.begin_step[(1,)](
            rule.step,
            rule.numbers,
            lr if on_device else None,
            finite if on_device else None,
            *map(_bits, given),
            RULE=rule.kind.value,
            NESTEROV=numbers.nesterov,
            num_warps=1,
        )


def end_step(rule: Rule) -> None:
    """Add this step to the history, for the rows that miss it."""
    with device_of(rule.table):
        triton_rules.end_step[(1,)](
            rule.step, rule.numbers, rule.history, REACH=_REACH, RULE=rule.kind.value, num_warps=4
        )


def _bits(x: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", x))[0])
