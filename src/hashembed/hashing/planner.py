"""Chooses table sizes K, B and k for a vocabulary and a budget, and computes their cost."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

import numpy as np

from hashembed.core.checks import one_of, whole_number
from hashembed.core.plotting import new_figure
from hashembed.hashing import theory
from hashembed.hashing.spec import INDEXINGS, MAX_HASHES, MAX_SIZE, HashSpec, Indexing

PAPER_HASHES = 2  # "we typically use k = 2 and choose K and B s.t. K > 10 B"
PAPER_RATIO = 10
PAPER_MIN_BUCKETS = 500  # the fewest the paper tries
MAX_NUMBER = 10**18
WORTHWHILE = 0.5  # of a standard table's size, where that is an option
TOLERABLE = 0.01  # a chance of total collision so small that more rows are not worth fewer buckets


@dataclass(frozen=True)
class Request:
    """The requirements of a plan."""

    vocabulary: int
    embedding_dim: int
    budget_bytes: int | None
    dtype_bytes: int
    num_hashes: tuple[int, ...]
    indexing: Indexing

    @property
    def standard_bytes(self) -> int:
        """The size of a table with a row for every token."""
        parameters = theory.standard_parameters(self.vocabulary, self.embedding_dim)
        return parameters * self.dtype_bytes

    @property
    def needs_hashing(self) -> bool:
        """Whether a standard table exceeds the budget."""
        return self.budget_bytes is not None and self.standard_bytes > self.budget_bytes

    def min_buckets(self, k: int) -> int:
        """The smallest B that a plan proposes."""
        return max(round_down(min(PAPER_MIN_BUCKETS, self.vocabulary)), k)


@dataclass(frozen=True)
class Collision:
    """The chance that one token collides, and the expected number of tokens that do."""

    probability: float
    tokens: float


@dataclass(frozen=True)
class Candidate:
    """One choice of sizes, its cost and its expected collisions (see `theory`)."""

    num_embeddings: int
    num_buckets: int
    num_hashes: int
    parameters: int
    bytes: int
    ratio: float  # of the standard table's size
    indistinguishable: Collision
    same_row: Collision
    same_buckets: Collision
    shared_bucket: Collision


@dataclass(frozen=True)
class Plan:
    """Candidate sizes, sorted by number of hashes, then with the most buckets first.

    Attributes:
        request: the requirements.
        candidates: the sizes to choose from.
        recommended: one of the candidates. None recommends a standard table.
        reason: why, in one sentence.
        notes: further remarks.
    """

    request: Request
    candidates: tuple[Candidate, ...]
    recommended: Candidate | None
    reason: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings, lists and dictionaries, ready for JSON."""
        return {
            **asdict(self.request),
            "num_hashes": list(self.request.num_hashes),
            "standard_bytes": self.request.standard_bytes,
            "candidates": [asdict(candidate) for candidate in self.candidates],
            "recommended": self.recommended and asdict(self.recommended),
            "reason": self.reason,
            "notes": list(self.notes),
        }

    def plot(self, path: str | PathLike[str]) -> None:
        """Plot collisions and size against B for k = 1 to 4. K is 10 B, or the dictionary's size.

        Args:
            path: the image file; its extension chooses the format.
        """
        figure = new_figure("a plan", 11, 4.5)
        chance, size = figure.subplots(1, 2)
        request, dictionary = self.request, self.request.indexing == "identity"
        most = max(min(request.vocabulary, MAX_SIZE // PAPER_RATIO), 10)
        buckets = np.unique(np.geomspace(4, most, 200).astype(np.int64)).tolist()
        for k in range(1, 5):
            rows = [request.vocabulary if dictionary else PAPER_RATIO * B for B in buckets]
            curve = [_candidate(request, K, B, k) for K, B in zip(rows, buckets, strict=True)]
            style = {"color": f"C{k}", "label": f"k = {k}"}
            chance.plot(buckets, [c.same_buckets.probability for c in curve], **style)
            size.plot(buckets, [c.bytes for c in curve], **style)
            if not dictionary:
                total = [c.indistinguishable.probability for c in curve]
                chance.plot(buckets, total, color=f"C{k}", linestyle="--")
        size.axhline(request.standard_bytes, color="black", linestyle=":", label="standard table")
        if request.budget_bytes is not None:
            size.axhline(request.budget_bytes, color="grey", linestyle="--", label="budget")
        if self.recommended is not None:
            at = self.recommended.num_buckets
            chance.plot(at, self.recommended.same_buckets.probability, "k*")
            size.plot(at, self.recommended.bytes, "k*", label="recommended")
        lines = "all k buckets agree" if dictionary else "all k buckets agree (dashed: the row too)"
        chance.set(title=f"chance that {lines}", ylim=(1e-12, 2))
        size.set(title="bytes")
        for axes in (chance, size):
            axes.set(xscale="log", yscale="log", xlabel="number of buckets B")
            axes.legend()
        rule = "K = |T|" if dictionary else f"K = {PAPER_RATIO} B"
        figure.suptitle(f"{request.vocabulary:,} tokens, {request.indexing} indexing, {rule}")
        figure.savefig(path)


class BudgetError(ValueError):
    """The budget holds neither a sensible hash embedding nor a standard table."""


def plan(
    vocabulary: int,
    embedding_dim: int,
    budget_bytes: int | None = None,
    *,
    dtype_bytes: int = 4,
    num_hashes: int | Sequence[int] = (1, 2, 3, 4),
    indexing: Indexing = "independent",
) -> Plan:
    """Choose the sizes of the tables for a vocabulary and a budget.

    Args:
        vocabulary: the number of distinct tokens.
        embedding_dim: d, the width of a vector.
        budget_bytes: the most bytes for all parameters. None (default) follows the paper's rule
            K = 10 B instead.
        dtype_bytes: bytes for each parameter (default 4, float32).
        num_hashes: k, one number or several to try (default 1 to 4).
        indexing: as in `HashSpec` (default "independent"). With "identity" (a dictionary), K is the
            vocabulary, and only B is chosen.

    Raises:
        BudgetError: the budget is too small for any sensible sizes.
    """
    one_of("indexing", indexing, INDEXINGS)
    most_tokens = MAX_SIZE if indexing == "identity" else MAX_NUMBER
    asked = [num_hashes] if isinstance(num_hashes, int) else num_hashes
    request = Request(
        whole_number("vocabulary", vocabulary, 1, most_tokens),
        whole_number("embedding_dim", embedding_dim, 1, MAX_SIZE),
        None if budget_bytes is None else whole_number("budget_bytes", budget_bytes, 1, MAX_NUMBER),
        whole_number("dtype_bytes", dtype_bytes, 1, 16),
        tuple(sorted({whole_number("num_hashes", k, 1, MAX_HASHES) for k in asked})),
        indexing,
    )
    if not request.num_hashes:
        raise ValueError("num_hashes must hold at least one number, found none")
    shapes = sorted(set(_shapes(request)), key=lambda shape: (shape[2], -shape[1], -shape[0]))
    candidates = [_candidate(request, *shape) for shape in shapes]
    if budget_bytes is not None:
        candidates = [c for c in candidates if c.bytes <= budget_bytes]
        if not candidates and request.needs_hashing:
            raise BudgetError(_too_small(request, budget_bytes))
    worthwhile = 1 if request.needs_hashing else WORTHWHILE
    recommended = _recommend([c for c in candidates if c.ratio <= worthwhile])
    reason, notes = _reason(request, recommended), tuple(_notes(request, recommended))
    return Plan(request, tuple(candidates), recommended, reason, notes)


def round_down(number: int) -> int:
    """Round down to two significant digits; at least 0."""
    number = max(number, 0)
    unit: int = 10 ** max(len(str(number)) - 2, 0)
    return number // unit * unit


def format_bytes(size: float) -> str:
    """160_000_000 -> '160 MB', in powers of a thousand."""
    return _scaled(size, [" B", " kB", " MB", " GB", " TB", " PB"])


def format_count(number: float) -> str:
    """40_000_000 -> '40M'."""
    return _scaled(number, ["", "k", "M", "G", "T", "P"])


def _scaled(number: float, units: list[str]) -> str:
    power = 0
    while number >= 999.5 and power + 1 < len(units):
        number /= 1000
        power += 1
    return f"{number:.3g}{units[power]}"


def _shapes(request: Request) -> Iterator[tuple[int, int, int]]:
    """(K, B, k) to consider; some may be too large for the budget."""
    propose = _filling if request.needs_hashing else _by_rule
    for k in request.num_hashes:
        shapes = propose(request, k)
        yield from ((K, B, k) for K, B in shapes if request.min_buckets(k) <= B)


def _filling(request: Request, k: int) -> Iterator[tuple[int, int]]:
    """(K, B) that use up the budget, in several proportions."""
    T, d = request.vocabulary, request.embedding_dim
    room = (request.budget_bytes or 0) // request.dtype_bytes
    if request.indexing == "identity":
        most = (room - T * k) // d
        yield from ((T, round_down(most // part)) for part in (1, 3, 10))
        return
    for ratio in (PAPER_RATIO, 3 * PAPER_RATIO, 10 * PAPER_RATIO):
        B = round_down(min(room // (d + ratio * k), T, MAX_SIZE // PAPER_RATIO))
        yield round_down(min((room - B * d) // k, PAPER_RATIO * T, MAX_SIZE)), B


def _by_rule(request: Request, k: int) -> Iterator[tuple[int, int]]:
    """(K, B) by the paper's K = 10 B, from a row for every token down to a row for ten."""
    for part in (1, 3, 10):
        rows = round_down(min(request.vocabulary // part, MAX_SIZE))
        B = max(round_down(rows // PAPER_RATIO), request.min_buckets(k))
        yield request.vocabulary if request.indexing == "identity" else PAPER_RATIO * B, B


def _candidate(request: Request, K: int, B: int, k: int) -> Candidate:
    spec, T = HashSpec(K, B, k, request.indexing), request.vocabulary
    parameters = theory.hash_parameters(spec, request.embedding_dim)
    size = parameters * request.dtype_bytes
    chances = (
        theory.indistinguishable_probability(T, spec),
        theory.same_row_probability(T, spec),
        theory.same_buckets_probability(T, spec),
        theory.shared_bucket_probability(T, spec),
    )
    collisions = (Collision(float(chance), T * float(chance)) for chance in chances)
    return Candidate(K, B, k, parameters, size, size / request.standard_bytes, *collisions)


def _recommend(candidates: list[Candidate]) -> Candidate | None:
    """The paper's k, and the most buckets, unless more rows at least halve the total collisions."""
    if not candidates:
        return None
    nearest = min({c.num_hashes for c in candidates}, key=lambda k: (abs(k - PAPER_HASHES), -k))
    best, *others = (c for c in candidates if c.num_hashes == nearest)
    for other in others:
        chance = best.indistinguishable.probability
        if chance > TOLERABLE and other.indistinguishable.probability <= chance / 2:
            best = other
    return best


def _reason(request: Request, best: Candidate | None) -> str:
    if best is None:
        size = format_bytes(request.standard_bytes)
        return f"A standard table ({size}) is smaller than a sensible hash embedding, or nearly so."
    as_paper = best.num_hashes == PAPER_HASHES
    choice = "the paper's choice" if as_paper else f"nearest to the paper's {PAPER_HASHES}"
    ratio = best.num_embeddings / best.num_buckets
    if not request.needs_hashing and ratio < PAPER_RATIO:
        sizes = f"B = {best.num_buckets:,} is the fewest it tries"
    elif not request.needs_hashing:
        sizes = f"K >= {PAPER_RATIO} B is its rule"
    elif request.indexing == "identity" or ratio < 2 * PAPER_RATIO:
        sizes = "B is the largest that fits the budget"
    else:
        sizes = "a larger K, though it costs B, has fewer total collisions"
    confused = best.indistinguishable.tokens
    count = f"about {confused:,.0f}" if confused >= 0.5 else "none"
    tokens = f"{count} of {request.vocabulary:,} tokens should share its vector"
    return f"k = {best.num_hashes} is {choice}, {sizes}, and {tokens}."


def _notes(request: Request, best: Candidate | None) -> Iterator[str]:
    if request.budget_bytes is not None and not request.needs_hashing:
        yield (
            f"A standard table of all {request.vocabulary:,} tokens takes "
            f"{format_bytes(request.standard_bytes)} and fits the budget: "
            "you may not need hash embeddings."
        )
    if best and request.indexing == "shared" and best.indistinguishable.probability > TOLERABLE:
        yield (
            "With shared indexing tokens of the same row share their vector; "
            "independent indexing would keep them apart."
        )


def _too_small(request: Request, budget_bytes: int) -> str:
    d, k = request.embedding_dim, request.num_hashes[0]
    B = request.min_buckets(k)
    K = request.vocabulary if request.indexing == "identity" else PAPER_RATIO * B
    smallest = (B * d + K * k) * request.dtype_bytes
    return (
        f"a budget of {format_bytes(budget_bytes)} is too small: the smallest sensible hash "
        f"embedding here (K = {K:,}, B = {B:,}, k = {k}, d = {d}) takes {format_bytes(smallest)}, "
        f"a standard table {format_bytes(request.standard_bytes)}"
    )
