"""The layout of every buffer that host and kernels share. Each offset is declared here, once.

A jitted function reads a global only if it is a `tl.constexpr`; the host takes its `.value`. The
NamedTuples are built inside kernels from flat parameters, so they cost nothing at a launch.
"""

from enum import IntEnum, auto
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from hashembed.nn.cpu import row_kernels

# ---- Rules: what a kernel does with the gradient of a row.


class RuleKind(IntEnum):
    """STORE writes the gradient to a table; every other rule is an optimizer.

    From ADAM on rules are lazy: a row without a gradient moves too, and catches up later. The
    numbers are saved nowhere, so a new rule can be inserted anywhere.
    """

    STORE = auto()
    SGD = auto()
    ADAGRAD = auto()
    ADAGRAD_ROWWISE = auto()
    ADAM = auto()
    ADAMW = auto()
    MOMENTUM = auto()

    @property
    def is_lazy(self) -> bool:
        """Whether rows have records with a stamp, and the table has a history."""
        return self >= RuleKind.ADAM


STORE = tl.constexpr(RuleKind.STORE.value)
SGD = tl.constexpr(RuleKind.SGD.value)
ADAGRAD = tl.constexpr(RuleKind.ADAGRAD.value)
ADAGRAD_ROWWISE = tl.constexpr(RuleKind.ADAGRAD_ROWWISE.value)
ADAM = tl.constexpr(RuleKind.ADAM.value)
ADAMW = tl.constexpr(RuleKind.ADAMW.value)
MOMENTUM = tl.constexpr(RuleKind.MOMENTUM.value)
FIRST_LAZY = ADAM


class RuleTensors(NamedTuple):
    """What a rule keeps in memory for one table, in the order in which kernels take it."""

    table: Tensor  # (rows, d)
    state: Tensor | None  # (rows, width): the sums of Adagrad, or records
    stamps: Tensor | None  # the same memory as integers, for lazy rules
    numbers: Tensor | None  # (NUMBERS,), float64
    history: Tensor | None  # (HISTORY_ROWS, RING), float64, for lazy rules
    step: Tensor | None  # (), int64: number of the present step


# ---- `numbers`: the hyperparameters of one step, written by `begin_step`.
# STEP_SIZE multiplies the first moment: lr / (1 - beta1^t), or lr under momentum. ROOT_FACTOR is
# 1 / sqrt(1 - beta2^t). ENABLED is 0 if this step must change nothing. DECAY_FACTOR is what weight
# decay leaves of a weight. GRADIENT_SIZE multiplies the gradient under Nesterov's momentum.
# Logarithms have base 2.
(
    LR,
    EPS,
    STEP_SIZE,
    ROOT_FACTOR,
    ONE_MINUS_BETA1,
    ONE_MINUS_BETA2,
    ENABLED,
    LOG_BETA1,
    LOG_BETA2,
    DECAY_FACTOR,
    GRADIENT_SIZE,
    NUMBERS,
) = (tl.constexpr(place) for place in range(12))

# ---- `history` (HISTORY_ROWS, RING): one column for each past step, at its number modulo RING.
# `nn/cpu/row_kernels.py` explains the rows. Here each name is the offset at which a row begins.
RING = tl.constexpr(2**18)  # after so many steps a column is overwritten
HISTORY_TAIL = tl.constexpr(row_kernels.TAIL * RING.value)
HISTORY_EPS = tl.constexpr(row_kernels.EPS * RING.value)
HISTORY_LOG_M = tl.constexpr(row_kernels.LOG_M * RING.value)
HISTORY_LOG_V = tl.constexpr(row_kernels.LOG_V * RING.value)
HISTORY_LOG_KEPT = tl.constexpr(row_kernels.LOG_KEPT * RING.value)
HISTORY_ROWS = 5


@triton.jit
def stamp_offset(RULE: tl.constexpr, d: tl.constexpr):
    """Where a record of a lazy rule has its stamp: behind one or two moments of d numbers."""
    return d if RULE == MOMENTUM else 2 * d


# ---- `cursor` (CURSOR,), int64: the prepared batch that the present step reads.
# BATCH counts the batches of both buffers, CALL those of one group; SHIFT is where the batch begins
# in all arrays that hold one entry for each sorted term.
CURSOR_BATCH, CURSOR_SHIFT, CURSOR_CALL, CURSOR = (tl.constexpr(place) for place in range(4))

# ---- `counts` (calls, TABLES, TABLE_COUNTS), int32: distinct rows of a prepared batch.
# All rows; short rows with few terms; short rows with several. E comes first, then P.
ROWS, FEW_TERMS, SEVERAL_TERMS, TABLE_COUNTS = (tl.constexpr(place) for place in range(4))
TABLES = tl.constexpr(2)
CALL_COUNTS = tl.constexpr(TABLES.value * TABLE_COUNTS.value)


@triton.jit
def table_counts(counts, call, of_P):
    """Where the counts of one table of one call begin."""
    return counts + (call * TABLES + of_P.to(tl.int32)) * TABLE_COUNTS


# ---- `short_extents`: the terms of a short row, in one number: first term and how many.
EXTENT_UNIT = tl.constexpr(256)  # a short row has fewer terms


@triton.jit
def pack_extent(start, length):
    """First term and number of terms -> one number."""
    return start * EXTENT_UNIT + length


@triton.jit
def unpack_extent(extent):
    """One number -> first term and number of terms."""
    return extent // EXTENT_UNIT, extent % EXTENT_UNIT


# ---- `partial` (tiles, TILE_SUMS, D): what a tile of terms adds to the rows that cross its edges.
# The sum at ENTERING is of the row that began in an earlier tile, the one at LEAVING of the row
# that begins here and continues in the next tile. A row that does both counts as entering.
ENTERING, LEAVING, TILE_SUMS = (tl.constexpr(place) for place in range(3))


class TermTensors(NamedTuple):
    """Where the terms of gradients are computed from; see `load_terms`."""

    term_ids: Tensor  # (M,): component * N + token of each sorted term
    term_bags: Tensor | None  # (M,): the bags of their tokens
    factors: Tensor | None  # (components, N)
    source: Tensor  # upstream gradients
