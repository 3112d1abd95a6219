"""Counts the distinct ids of live data and how many of them collide, beside what theory predicts.

A diagnosis keeps the distinct keys that it has seen (8 bytes each), so diagnoses of batches can be
added, in any order.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import I64
from hashembed.core.tables import html_table
from hashembed.hashing import theory
from hashembed.hashing.spec import HashSpec

_CROWD = 2  # a row with more ids than this many times the mean is crowded
_MANY_PER_BUCKET = 20.0  # ids: shared component vectors then cost accuracy, where d is small


class Usage(NamedTuple):
    """How the distinct ids spread over the rows of a table."""

    size: int  # rows of the table
    used: int  # rows that at least one id has
    most: int  # ids that share the fullest row
    crowded: int  # rows with more ids than twice the mean of all rows, and at least three


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """What `HashEmbedding.diagnose` found; printing it shows a table and advice."""

    spec: HashSpec
    keys: I64  # distinct, in order
    ids: int  # repeats included
    importance: bool = True  # whether ids have weights of their own

    def __add__(self, other: "Diagnosis") -> "Diagnosis":
        if not isinstance(other, Diagnosis):
            return NotImplemented
        if (self.spec, self.importance) != (other.spec, other.importance):
            raise ValueError(
                f"diagnoses of different layers cannot be added: {self.spec} and {other.spec}"
            )
        keys = np.union1d(self.keys, other.keys)
        return Diagnosis(self.spec, keys, self.ids + other.ids, self.importance)

    def __radd__(self, other: object) -> "Diagnosis":
        return self if other == 0 else NotImplemented  # `sum` begins with 0

    @property
    def distinct(self) -> int:
        """Distinct ids."""
        return len(self.keys)

    @cached_property
    def _located(self) -> tuple[I64, I64]:
        return self.spec(self.keys)

    @cached_property
    def rows(self) -> Usage:
        """How the ids use the rows of importance weights, P."""
        return _usage(self._located[0], self.spec.num_embeddings)

    @cached_property
    def buckets(self) -> Usage:
        """How the ids use the component vectors, E; an id uses k of them."""
        return _usage(self._located[1].reshape(-1), self.spec.num_buckets)

    @cached_property
    def same_row(self) -> int:
        """Ids that share their importance weights with another id."""
        return _sharing(self._located[0])

    @cached_property
    def same_vector(self) -> int:
        """Ids that no training can tell from some other id: the row and all buckets agree."""
        rows, buckets = self._located
        if not self.importance:  # the sum does not depend on the order
            return _sharing(np.sort(buckets, axis=1))
        return _sharing(np.column_stack([rows, buckets]))

    @cached_property
    def predicted_same_row(self) -> float:
        """What theory expects of `same_row`."""
        return float(self.distinct * theory.same_row_probability(self.distinct, self.spec))

    @cached_property
    def predicted_same_vector(self) -> float:
        """What theory expects of `same_vector`."""
        chance = theory.indistinguishable_probability(
            self.distinct, self.spec, importance=self.importance
        )
        return float(self.distinct * chance)

    @property
    def ids_per_bucket(self) -> float:
        """The mean number of ids that a component vector in use serves."""
        used = self.buckets.used
        return self.distinct * self.spec.num_hashes / used if used else 0.0

    @cached_property
    def advice(self) -> list[str]:
        """What the numbers mean, and what to change."""
        if not self.distinct:
            return ["no ids yet"]
        found = []
        n, K, spec = self.distinct, self.spec.num_embeddings, self.spec
        if self.same_vector > 0.001 * n:
            remedy = (
                'indexing="independent" or more num_embeddings'
                if spec.indexing == "shared" and self.importance
                else "more num_buckets or num_hashes"
            )
            found.append(
                f"{self.same_vector / n:.1%} of the ids have the vector of another id, whatever is "
                f"learned: use {remedy}"
            )
        if self.importance and self.same_row > 0.5 * n:
            found.append(
                f"{self.same_row / n:.0%} of the ids share their weights with another id: "
                f"num_embeddings={n:,} would be a row for each id seen so far"
            )
        if self.importance and 4 * n < K and K * spec.num_hashes > 1_000_000:
            found.append(
                f"only {self.rows.used / K:.0%} of the rows of weights are used: if the ids are "
                f"all there are, num_embeddings={n:,} is enough"
            )
        if self.ids_per_bucket > _MANY_PER_BUCKET:
            found.append(
                f"a component vector serves {self.ids_per_bucket:.0f} ids on average: more "
                "num_buckets leave less to share, and cost embedding_dim numbers each"
            )
        return found or ["nothing to change: few ids collide, and the tables are in use"]

    def _table(self) -> list[tuple[str, str, str]]:
        spec, rows, buckets = self.spec, self.rows, self.buckets
        expected_rows = theory.expected_cells_used(self.distinct, spec.num_embeddings)
        expected_buckets = theory.expected_cells_used(
            self.distinct * spec.num_hashes, spec.num_buckets
        )
        table = [("ids", f"{self.ids:,}", ""), ("distinct ids", f"{self.distinct:,}", "")]
        if self.importance:
            expected = "" if spec.indexing == "identity" else f"{expected_rows:,.0f}"
            table += [
                (f"rows of P in use, of {rows.size:,}", f"{rows.used:,}", expected),
                ("ids that share a row", f"{self.same_row:,}", f"{self.predicted_same_row:,.1f}"),
                ("most ids in a row", f"{rows.most:,}", ""),
                ("crowded rows of P", f"{rows.crowded:,}", ""),
            ]
        hashed = spec.indexing != "shared" and not spec.direct
        table += [
            (
                f"rows of E in use, of {buckets.size:,}",
                f"{buckets.used:,}",
                f"{expected_buckets:,.0f}" if hashed else "",
            ),
            ("ids per row of E", f"{self.ids_per_bucket:,.1f}", ""),
            ("most ids in a row of E", f"{buckets.most:,}", ""),
            ("crowded rows of E", f"{buckets.crowded:,}", ""),
            (
                "ids with the vector of another",
                f"{self.same_vector:,}",
                f"{self.predicted_same_vector:,.1f}",
            ),
        ]
        return table

    def __str__(self) -> str:
        lines = [("", "found", "expected"), *self._table()]
        widths = [max(len(line[i]) for line in lines) for i in range(3)]
        shown = [
            f"{name:<{widths[0]}}  {found:>{widths[1]}}  {expected:>{widths[2]}}".rstrip()
            for name, found, expected in lines
        ]
        return "\n".join([*shown, *self.advice])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from html import escape

        advice = "".join(f"<li>{escape(line)}</li>" for line in self.advice)
        return html_table(("", "found", "expected"), self._table()) + f"<ul>{advice}</ul>"


def _usage(places: I64, size: int) -> Usage:
    _, counts = np.unique(places, return_counts=True)
    if len(counts) == 0:
        return Usage(size, 0, 0, 0)
    crowded = int(np.count_nonzero(counts > _CROWD * max(counts.sum() / size, 1.0)))
    return Usage(size, len(counts), int(counts.max()), crowded)


def _sharing(places: I64) -> int:
    """How many items have an equal among the others; items are numbers or rows."""
    _, counts = np.unique(places, axis=0, return_counts=True)
    return int(counts[counts > 1].sum())
