"""Compresses a classifier to a size, to a number of bits, or as far as a loss allows."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from hashembed.classify.compress.coding import Fineness
from hashembed.classify.compress.report import Compression
from hashembed.classify.compress.student import MOST_NGRAMS, fold, nothing
from hashembed.classify.compress.tables import Tables
from hashembed.classify.engine_plan import EnginePlan
from hashembed.classify.model_file import bytes_saved
from hashembed.classify.targets import encode
from hashembed.classify.trained import TrainedClassifier, shallow_model
from hashembed.core.arrays import F64
from hashembed.core.checks import whole_number
from hashembed.core.wording import given, named
from hashembed.engine.history import History
from hashembed.engine.labels import split
from hashembed.engine.linear import LinearModel
from hashembed.text.arrow import to_arrow
from hashembed.text.pipeline import text_to_bags

SIZE = 1_000_000  # bytes, if nothing is asked for
FEWEST_BITS, MOST_BITS = 2, 8
HELD_OUT, MOST_HELD_OUT = 0.1, 20_000  # rows to measure on, if none are given for that
TRIALS, NEAR = 12, 0.97  # of a size: a file may be this much smaller than asked for
LOSS_TRIALS = 9
# Prices, relative to the mean cost of leaving a row out.
_LOWEST, _FIRST, _HIGHEST = 2.0**-20, 2.0**-6, 2.0**8
_NOTHING = 1e30  # a price at which no row is kept
_POWER = 0.8  # the size is about price ** -0.8
MOST_AXES, AXES_SHARE = 64, 0.25  # numbers of an n-gram; the share of a size that W may take
BYTES_A_ROW, BYTES_A_CLASS = 1.5, 0.12  # fewer than a row takes: how many n-grams are looked at

C = TypeVar("C", bound=TrainedClassifier)
Say = Callable[[str], object]


class Source(Protocol):
    """What a compressed model is made from."""

    @property
    def plan(self) -> EnginePlan:
        """The engine of the compressed model."""

    def energies(self) -> F64:
        """What it costs to leave a row out."""

    def model(self, fineness: Fineness) -> LinearModel:
        """The model with codes of this fineness."""


@dataclass(frozen=True)
class Wish:
    """What is asked for: one of these."""

    size: int | None = None  # bytes of the file, at most
    bits: int | None = None  # of a number
    max_loss: float | None = None  # points of accuracy

    def __post_init__(self) -> None:
        asked = {"size": self.size, "bits": self.bits, "max_loss": self.max_loss}
        found = [given(name, value) for name, value in asked.items() if value is not None]
        if len(found) != 1:
            size, bits, max_loss = map(named, asked)
            raise ValueError(
                f"give one of {size}, {bits} and {max_loss}, found {' and '.join(found)}"
            )
        if self.size is not None:
            whole_number("size", self.size, 1, 2**40)
        if self.bits is not None:
            whole_number("bits", self.bits, FEWEST_BITS, MOST_BITS)
        points: Any = self.max_loss  # which may be of any type
        is_number = isinstance(points, Real)
        if points is not None and not (is_number and 0 <= points < 100):
            raise (ValueError if is_number else TypeError)(
                f"{named('max_loss')} must be points of accuracy, from 0 to below 100, found "
                f"{points!r}"
            )


def compress(
    clf: C,
    wish: Wish,
    data: tuple[Any, Any] | None = None,
    validation: tuple[Any, Any] | None = None,
    say: Say = lambda line: None,
) -> C:
    """A smaller classifier; `TextClassifier.compress` says what the arguments mean.

    If there is nothing else to measure on, a part of the texts is held out first. What is found
    there decides how all texts are used afterwards.
    """
    model = shallow_model(clf, "be compressed")
    if clf.packed_:
        raise ValueError(
            "the model has been compressed already: compress the model that it was made from"
        )
    every, labels = (None, None) if data is None else _checked(*data)
    texts = every
    if labels is not None and validation is None:
        texts, validation = _divided(every, labels, clf.seed)
    judge = _Judge(clf, validation)
    if wish.max_loss is not None and judge.rows == 0:
        raise ValueError(
            f"{given('max_loss', wish.max_loss)} needs labelled texts to measure the loss on"
        )
    if texts is None:
        trials = _Trials(clf, Tables(model, clf.engine_plan_, wish.size), say)
        small, _ = trials.find(wish, judge)
        accuracy = judge.accuracy(small)
    else:
        found = _from_texts(clf, texts, wish, judge, say)
        small, accuracy = found.classifier, judge.accuracy(found.classifier)
        if texts is not every:
            say("Once more, with all texts.")
            small = _from_texts(clf, every, wish, judge, say, found).classifier
    small.compression_ = Compression(
        bytes_before=bytes_saved(clf),
        bytes_after=bytes_saved(small),
        accuracy_before=judge.before,
        accuracy_after=accuracy,
        measured=judge.rows,
        rows=_kept_rows(small),
        with_texts=texts is not None,
    )
    return small


@dataclass(frozen=True)
class _Found(Generic[C]):
    """A compressed classifier, how fine its codes are, and whether it was tuned."""

    classifier: C
    fineness: Fineness
    tuned: bool


def _from_texts(
    clf: C, texts: Any, wish: Wish, judge: "_Judge", say: Say, before: _Found[C] | None = None
) -> _Found[C]:
    """Fold, code and tune. before: what was found with a part of the texts, which is repeated."""
    model = shallow_model(clf, "be compressed")
    bags = text_to_bags(texts, clf.text_config_, clf.threads)
    say(f"Folding the evidence of {len(bags.keys):,} n-grams of {len(bags):,} texts.")
    least = BYTES_A_ROW + BYTES_A_CLASS * (len(clf.classes_) - 1)
    most = MOST_NGRAMS if wish.size is None else int(wish.size / least)
    axes = MOST_AXES
    if wish.size is not None:  # each takes 2 bytes for every class
        each = 2 * len(clf.classes_)
        axes = min(max(int(AXES_SHARE * wish.size / each), 1), MOST_AXES)
        empty = _Trials(clf, nothing(model, clf.engine_plan_, clf.threads), say).of_nothing(
            wish.size
        )
        axes = min(axes, 1 + (wish.size - bytes_saved(empty)) // each)
    source = fold(model, clf.engine_plan_, bags, most, axes, clf.threads)
    trials = _Trials(clf, source, say)
    if before is not None:
        small, fineness = trials.again(wish, before.fineness)
    else:
        small, fineness = trials.find(wish, judge)
    if model.multilabel or (before is not None and not before.tuned):
        return _Found(small, fineness, False)
    say("Tuning it to the answers of the full model.")
    better = _Trials(clf, source.tuned(fineness, model, bags), say)
    tuned, finer = better.again(wish, fineness)
    if before is None and (judge.accuracy(tuned) or 0.0) < (judge.accuracy(small) or 0.0):
        return _Found(small, fineness, False)
    return _Found(tuned, finer, True)


def _kept_rows(small: TrainedClassifier) -> int:
    """The rows of all tables that are kept."""
    tensors = small.model_.tensors()
    tables = [t for name, t in tensors.items() if name.rpartition(".")[2] in "EP"]
    return sum(int(np.count_nonzero(table.any(axis=1))) for table in tables)


@dataclass
class _Trials(Generic[C]):
    """Makes classifiers of a source, each finer or coarser."""

    clf: C
    source: Source
    say: Say
    squares: dict[str, float] = field(init=False)  # mean accumulators, for `partial_fit`

    def __post_init__(self) -> None:
        found = shallow_model(self.clf, "be compressed").parts[0].mean_squares()
        self.squares = found

    def find(self, wish: Wish, judge: "_Judge") -> tuple[C, Fineness]:
        """The classifier that was asked for, and how fine its codes are."""
        if wish.max_loss is not None:
            return self._of_loss(judge, wish.max_loss)
        return self.again(wish, Fineness(self._mean_energy() * _FIRST))

    def again(self, wish: Wish, before: Fineness) -> tuple[C, Fineness]:
        """The same for a wish that was fulfilled before, with codes of about that fineness."""
        if wish.size is not None:
            return self._of_size(wish.size, before.price)
        fineness = before if wish.bits is None else Fineness(bits=wish.bits)
        return self.at(fineness), fineness

    def at(self, fineness: Fineness) -> C:
        """A classifier with codes of this fineness."""
        clf, source = self.clf, self.source
        small = type(clf)().set_params(**clf.get_params())
        for name in ("text_config_", "classes_", "label_form_", "class_counts_", "texts_seen_"):
            setattr(small, name, getattr(clf, name))
        small.calibration_, small.stream_rate_ = clf.calibration_, clf.stream_rate_
        small.stream_position_ = clf.stream_position_
        small.history_, small.search_, small.packed_ = History(), None, True
        model = source.model(fineness)
        for part in model.parts:
            part.fill_squares(self.squares)
        small.model_, small.engine_plan_ = model, replace(source.plan, votes="logits")
        return small

    def _mean_energy(self) -> float:
        energies = self.source.energies()
        return (float(np.cumsum(energies)[-1]) / len(energies) if len(energies) else 0.0) or 1.0

    def _of_size(self, size: int, price: float) -> tuple[C, Fineness]:
        """A classifier whose file has at most so many bytes, and few less; `price` is a guess.

        The size falls with the price about as a power of it does.
        """
        least = self._mean_energy() * _LOWEST
        best: tuple[C, Fineness] | None = None
        known: list[tuple[float, int]] = []
        for trial in range(TRIALS):
            found = self.at(Fineness(price))
            taken = bytes_saved(found)
            self.say(f"Trial {trial + 1}: {taken:,} bytes.")
            if taken <= size and (best is None or price < best[1].price):
                best = found, Fineness(price)
                if taken >= NEAR * size or price <= least:
                    break
            elif taken > size and _kept_rows(found) == 0:
                break  # nothing is smaller
            known.append((price, taken))
            price = max(_next_price(known, (1 + NEAR) / 2 * size), least)
        return best or (self.of_nothing(size), Fineness(_NOTHING))

    def of_nothing(self, size: int) -> C:
        """A classifier without any row, if at least that has at most so many bytes."""
        found = self.at(Fineness(_NOTHING))
        if (least := bytes_saved(found)) > size:
            raise ValueError(
                f"cannot compress the model to {size:,} bytes: labels and settings alone take "
                f"{least:,} bytes. Ask for at least that"
            )
        return found

    def _of_loss(self, judge: "_Judge", points: float) -> tuple[C, Fineness]:
        """The coarsest classifier found that loses at most so many points."""
        mean = self._mean_energy()
        low, high = mean * _LOWEST, mean * _HIGHEST
        best = self.at(Fineness(low))
        if (loss := judge.loss(best)) > points:
            raise ValueError(
                f"cannot compress the model with a loss of {points:g} points: the least loss found "
                f"is {loss:.2f} points on {judge.rows:,} rows, with {bytes_saved(best):,} bytes"
            )
        for trial in range(LOSS_TRIALS):
            price = float(np.sqrt(low * high))
            found = self.at(Fineness(price))
            loss = judge.loss(found)
            self.say(
                f"Trial {trial + 1}: {bytes_saved(found):,} bytes, a loss of {loss:.2f} points."
            )
            if loss > points:
                high = price
            else:
                best, low = found, price
        return best, Fineness(low)


class _Judge:
    """Measures accuracy on rows that compression does not use."""

    def __init__(self, clf: TrainedClassifier, validation: tuple[Any, Any] | None) -> None:
        self.validation = validation
        self.rows = 0 if validation is None else len(validation[0])
        if validation is not None and self.rows:
            _check_known(clf, validation[1])
        self.before = self.accuracy(clf)

    def accuracy(self, clf: TrainedClassifier) -> float | None:
        """The share of right answers; None without rows."""
        return clf.score(*self.validation) if self.validation and self.rows else None

    def loss(self, clf: TrainedClassifier) -> float:
        """Points that were lost."""
        return 100 * ((self.before or 0.0) - (self.accuracy(clf) or 0.0))


def _check_known(clf: TrainedClassifier, labels: Any) -> None:
    """Refuse labels of another task: every model would be wrong, and no loss would be found."""
    truth, own = encode(labels, clf.classes_, clf.label_form_), clf.classes_.tolist()
    numbers = truth.labels.labels
    if len(numbers) and (numbers >= len(own)).all():
        raise ValueError(
            "the model knows none of the labels that its accuracy would be measured with: found "
            f"{truth.classes.tolist()[len(own)]!r:.50}, but its own are such as {own[0]!r:.50}"
        )


def _next_price(known: list[tuple[float, int]], size: float) -> float:
    """The price at which the size is to be expected, by what is known of others."""
    (price, taken), power = known[-1], _POWER
    if len(known) > 1:
        other, size_then = known[-2]
        if price != other and taken != size_then:
            slope = float(np.log(taken / size_then) / np.log(price / other))
            power = min(max(-slope, _POWER / 4), 2 * _POWER)
    # Rounded: the last bits of powers and logarithms differ between machines.
    return float(np.float32(min(price * (taken / size) ** (1 / power), _NOTHING)))


def _checked(texts: Any, labels: Any) -> tuple[Any, Any]:
    """Texts in Arrow, and labels that can be indexed."""
    column = to_arrow(texts)
    if hasattr(labels, "to_pylist"):
        labels = labels.to_pylist()
    elif labels is not None and not isinstance(labels, np.ndarray):
        labels = list(labels)
    if len(column) == 0:
        raise ValueError("found no texts to compress the model with")
    if labels is not None and len(labels) != len(column):
        raise ValueError(f"found {len(column):,} texts, but {len(labels):,} labels")
    return column, labels


def _divided(texts: Any, labels: Any, seed: int) -> tuple[Any, tuple[Any, Any]]:
    """The texts to compress with, and the rows to measure on."""
    kept, held = split(len(texts), min(HELD_OUT, MOST_HELD_OUT / len(texts)), seed)
    own = labels[held] if isinstance(labels, np.ndarray) else [labels[i] for i in held]
    return texts.take(kept), (texts.take(held), own)
