"""Several engines that train on the same batches and vote."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from hashembed.core.arrays import F32, I64, is_among
from hashembed.core.background import map_in_two
from hashembed.core.checks import one_of
from hashembed.engine.coded import Stored
from hashembed.engine.labels import Labels
from hashembed.engine.outputs import fill_mean_scores
from hashembed.engine.protocol import (
    Engine,
    Kept,
    LossNotFiniteError,
    Snippets,
    State,
    to_probabilities,
    trains_jointly,
)
from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import id_keys

Votes = Literal["logits", "probabilities"]
VOTES: tuple[Votes, ...] = get_args(Votes)
T = TypeVar("T")


def member_seeds(seed: int, count: int) -> list[int]:
    """A seed for each member, for its hash functions and initial weights; the first is `seed`."""
    stream = id_keys(np.asarray(seed, np.int64))
    return [seed, *(int(id_keys(stream ^ np.int64(i))) for i in range(1, count))]


class Ensemble:
    """Engines whose logits or probabilities are averaged; itself an engine.

    Members see the same documents at the same rates; on a CPU each has its own order of them. They
    differ in how they were made: hash seeds, initial weights, sizes, layers. When the loss of one
    is not finite, it keeps its last good weights; the members before it (on a GPU all others) have
    trained on the batches of that call.

    Example:
        >>> from hashembed.hashing.spec import HashSpec
        >>> from hashembed.engine.shallow.model import ShallowModel
        >>> members = [
        ...     ShallowModel(HashSpec(1000, 100, seed=s), 16, 2, seed=s) for s in member_seeds(0, 3)
        ... ]
        >>> ensemble = Ensemble(members)
    """

    text_scorer: object = None  # of `engine/shallow/texts.py`
    left_out: Sequence[I64] = ()  # rows that a member does not train on, for each of them
    first = 1  # the number of the first member, on which its order of documents depends
    of: int  # the number of members of the whole ensemble, of which this may be a part

    def __init__(self, members: Sequence[Engine], votes: Votes = "logits") -> None:
        if not members:
            raise ValueError("an ensemble needs at least one member, found none")
        _check_same("multilabel", {member.multilabel for member in members})
        _check_same("learning_rate", {member.learning_rate for member in members})
        one_of("votes", votes, VOTES)
        self.members, self.votes, self.of = list(members), votes, len(members)
        self.multilabel, self.learning_rate = members[0].multilabel, members[0].learning_rate

    def __getstate__(self) -> dict[str, Any]:
        """For pickling and copying: without what points to the members' tables."""
        return {n: v for n, v in vars(self).items() if n not in ("text_scorer", "left_out")}

    @classmethod
    def from_tensors(
        cls, make: Callable[[int, Stored], Engine], tensors: Stored, votes: Votes = "logits"
    ) -> "Ensemble":
        """The ensemble that `tensors` came from; `make(i, tensors)` makes its member i."""
        count = len({name.partition(".")[0] for name in tensors})
        return cls(map_in_two(lambda i: make(i, _part(tensors, i)), range(count)), votes)

    def only(self, i: int) -> "Ensemble":
        """An ensemble of member i alone, which trains it as this one would."""
        alone = Ensemble([self.members[i]], self.votes)
        alone.first, alone.of = self.first + i, self.of
        alone.left_out = self.left_out[i : i + 1]
        return alone

    @property
    def parts(self) -> list[ShallowModel]:
        """The members, if it is a linear model (`engine/linear.py`); otherwise none."""
        found = [member for member in self.members if isinstance(member, ShallowModel)]
        return found if self.votes == "logits" and len(found) == len(self.members) else []

    @property
    def importance(self) -> bool:
        """Whether all parts have importance weights."""
        return all(part.importance for part in self.parts)

    def scale_logits(self, factor: float) -> None:
        """Multiply the logits, by those of all members. Probabilities are averaged as they are."""
        for member in self.members:
            member.scale_logits(factor)

    def grow(self, num_classes: int) -> None:
        """Add classes to all parts."""
        for part in self.parts:
            part.grow(num_classes)

    def mean_squares(self) -> dict[str, float]:
        """Those of all parts; the names of part i begin with "i."."""
        found = [part.mean_squares() for part in self.parts]
        return {f"{i}.{name}": mean for i, own in enumerate(found) for name, mean in own.items()}

    def fill_squares(self, means: dict[str, float]) -> None:
        """Set the accumulators of all parts to these means."""
        for i, part in enumerate(self.parts):
            part.fill_squares(_part(means, i))

    @property
    def chunk(self) -> int:
        """That of the first member."""
        return self.members[0].chunk

    @property
    def num_parameters(self) -> int:
        """Parameters of all members."""
        return sum(member.num_parameters for member in self.members)

    def train(
        self,
        bags: Bags,
        labels: Labels,
        order: I64,
        rates: F32,
        *,
        batch_size: int = 256,
        weights: F32 | None = None,
        snippets: Snippets | None = None,
    ) -> F32:
        """Train the members on these batches, on a GPU all at once -> their mean losses."""
        joint = [member for member in self.members if trains_jointly(member)]
        if len(joint) == len(self.members):
            losses = joint[0].train_together(
                joint, bags, labels, order, rates, batch_size, weights, snippets
            )
            return np.asarray(losses.mean(axis=0, dtype=np.float64), np.float32)
        total = np.zeros(len(order), np.float64)
        trained = len(self.members) * len(order)
        for i, member in enumerate(self.members):
            own, number = weights, self.first + i
            if self.left_out:
                rows = self.left_out[i]
                own = np.ones(len(bags), np.float32) if weights is None else weights.copy()
                own[rows] = 0
                trained -= int(np.count_nonzero(is_among(order, rows)))
            try:
                total += member.train(
                    bags,
                    labels,
                    _order_of(number, order),
                    rates,
                    batch_size=batch_size,
                    weights=own,
                    snippets=snippets,
                )
            except LossNotFiniteError as error:
                message = f"member {number} of {self.of}: {error}"
                raise LossNotFiniteError(message) from None
        return (total * (len(order) / max(trained, 1))).astype(np.float32)

    def snippets(self, bags: Bags, seed: int, epoch: int, minimum: int, maximum: int) -> Snippets:
        """A run of keys of each document, the same for all members."""
        return self.members[0].snippets(bags, seed, epoch, minimum, maximum)

    def scores(self, bags: Bags) -> F32:
        """Logits (documents, classes).

        They are the mean of the members' logits, or the logarithm or log-odds of the mean of their
        probabilities.
        """
        if self.votes == "logits":
            return mean_logits(member.scores(bags) for member in self.members)
        z = np.stack([member.scores(bags) for member in self.members])
        scores = np.empty(z.shape[1:], np.float32)
        fill_mean_scores(z, self.multilabel, scores)
        return scores

    def vectors(self, bags: Bags) -> F32:
        """The vectors of all members (documents, members x d), side by side."""
        return np.concatenate([member.vectors(bags) for member in self.members], axis=1)

    def probabilities(self, bags: Bags) -> F32:
        """Softmax or sigmoids of the logits (documents, classes)."""
        return to_probabilities(self.scores(bags), self.multilabel)

    def tensors(self) -> State:
        """The weights of all members, for a file; those of member i begin with "i."."""
        return self._joined([member.tensors() for member in self.members])

    def state(self) -> State:
        """Copies of everything that training changes."""
        return self._joined([member.state() for member in self.members])

    def check_state(self, state: State) -> None:
        """Raise a ValueError if `load_state` could not take this state."""
        known = {str(i) for i in range(len(self.members))}
        if unknown := {name.partition(".")[0] for name in state} - known:
            raise ValueError(
                f"found {len(self.members)} members, but a tensor of {min(unknown)!r:.20}"
            )
        for i, member in enumerate(self.members):
            member.check_state(_part(state, i))

    def load_state(self, state: State) -> None:
        """Return to that state."""
        for i, member in enumerate(self.members):
            member.load_state(_part(state, i))

    def keep(self) -> list[Kept]:
        """Copies of the members' states for `go_back`."""
        return [member.keep() for member in self.members]

    def go_back(self, kept: list[Kept]) -> None:
        """Return to states that were kept."""
        for member, state in zip(self.members, kept, strict=True):
            member.go_back(state)

    def _joined(self, parts: Sequence[State]) -> State:
        return {
            f"{i}.{name}": array for i, part in enumerate(parts) for name, array in part.items()
        }


def mean_logits(parts: Iterable[F32]) -> F32:
    """The mean of arrays of one shape: a float64 sum in their order, the same bits everywhere."""
    total, count = np.zeros(()), 0
    for count, z in enumerate(parts, 1):
        if count == 1:
            total = np.zeros(z.shape)
        if z.shape != total.shape:
            raise ValueError(f"found logits of shape {z.shape} and of shape {total.shape}")
        total += z
    return np.asarray(total / count, np.float32)


def _order_of(member: int, order: I64) -> I64:
    """The order in which a member sees these documents. Members of different orders differ more.

    Documents in rising order come from online learning, where the latest count most: all members
    see that order.
    """
    if member == 1 or not (order[1:] < order[:-1]).any():
        return order
    return np.random.default_rng([member, len(order), *order[:2].tolist()]).permutation(order)


def _check_same(what: str, found: set[Any]) -> None:
    if len(found) > 1:
        listed = " and ".join(sorted(map(str, found)))
        raise ValueError(f"all members must have the same {what}, found {listed}")


def _part(named: Mapping[str, T], i: int) -> dict[str, T]:
    start = f"{i}."
    return {n.removeprefix(start): value for n, value in named.items() if n.startswith(start)}
