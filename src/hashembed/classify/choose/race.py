"""The race: trials on a part of the training rows decide what to train on all of them.

The first round compares words alone with words and character n-grams, on as many texts as possible:
on few texts character n-grams look better than they are on many. The second round tries variants of
the better one. With the effort "best", a third round tries learning rates and numbers of passes for
the best variants; otherwise rules choose them. All trials are scored on the same held-out rows,
with the weights that these rows have in training.
Where these are few, every trial is repeated with other rows held out (folds), and the mean counts.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from hashembed.classify.choose.budget import MOST_MEMBERS, RACE_SHARE, Budget, peer_work, work
from hashembed.classify.choose.display import search_display
from hashembed.classify.choose.search import Chosen, Search, best_cell, ranks
from hashembed.classify.choose.space import FACTORS, MOST_PASSES, PASSES_OF_THOUSAND, RULES, Open
from hashembed.classify.choose.trial import Score, Trial, mean_score, train_and_score
from hashembed.classify.documents import Documents
from hashembed.classify.engine_plan import choose_device
from hashembed.classify.targets import Targets
from hashembed.classify.trained import TrainedClassifier
from hashembed.core.arrays import F32, I64
from hashembed.engine.defaults import default_batch, rate_for
from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing.bags import Bags
from hashembed.hashing.sizes import choose_dim, choose_sizes
from hashembed.hashing.spec import HashSpec
from hashembed.text.arrow import take_texts
from hashembed.text.config import TextConfig
from hashembed.text.counts.distinct import count_distinct
from hashembed.text.pipeline import text_to_bags

FEWEST_TEXTS = 60  # a race on fewer would be a lottery
LEAST_TRAINED = 400  # texts in a trial, unless there are fewer
HELD_OUT = 0.2  # share of the texts
MOST_HELD_OUT, MOST_SCORES = 4_000, 4_000_000  # texts, and texts times classes, to score on
ENOUGH_HELD_OUT, MOST_FOLDS = 1_500, 5  # fewer rows are scored in several folds
PROBED = 512  # texts whose n-grams are counted in advance
MISSED = 1.25  # all texts may be this much longer than those before the counts are scaled
EXCESS = 1.5  # n-grams of a trial, relative to the plan, from which the longest texts are left out
FIRST_SHARE = 0.6  # of the work of the race, for the first round
BEST_SHARES = (0.2, 0.3)  # of the first and of the second round, with the effort "best"
FINALISTS = 3  # ways to read text in the third round
GROWN = 1.5  # all texts, relative to those of a trial, from which fewer passes are needed
SLOWLY = 0.4  # the power of that ratio by which they get fewer
MEMBER_GAIN = 0.1  # share of errors and loss that very many members avoid
PACED = 0.05  # share of the texts on which the speed of the final model is measured
FINAL_SHARE = 0.8  # of the time left, for the steps of the final training; tables need some, too
SMALLER = 4  # how much smaller a trial's tables may be than those of the final model

Run = tuple[TextConfig, float | None]  # None is the usual learning rate, else a factor of it


@dataclass(frozen=True)
class Data:
    """The rows to train on, and the classifier that asks."""

    texts: pa.ChunkedArray
    targets: Targets
    weights: F32 | None
    clf: TrainedClassifier
    total: int  # rows of the final training, of which these may be a sample

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.targets.classes)

    def __len__(self) -> int:
        return len(self.texts)


def choose_settings(
    clf: TrainedClassifier,
    open_: Open,
    texts: pa.ChunkedArray,
    targets: Targets,
    weights: F32 | None,
    kept: I64 | None,
    total: int | None = None,
    run_trials: "RunTrials | None" = None,
) -> Search | None:
    """What to train on all rows; None if there is too little to decide by.

    kept: the rows that are trained on, if others are held out for validation. total: rows of the
    final training, if these are a sample. run_trials: runs trials elsewhere than here.
    """
    if kept is not None:
        targets = replace(targets, labels=targets.labels.take(kept))
        weights = None if weights is None else weights[kept]
        texts = take_texts(texts, kept)
    data = Data(texts, targets, weights, clf, total or len(texts))
    occurring = np.count_nonzero(targets.labels.counts(data.classes))
    if len(data) < FEWEST_TEXTS or occurring < 2:
        return None
    race = _start(data, open_)
    race.run_trials = run_trials or run_here
    with search_display(clf.verbose) as display:
        trials = race.run(display.finish_trial)
    if not ranks(trials):  # nothing was tried, or everything diverged
        return None
    race.limit_final(trials)
    return race.search(trials)


def settings_of_few(
    clf: TrainedClassifier, open_: Open, texts: pa.ChunkedArray, classes: int
) -> Chosen | None:
    """What to train on too few texts for a race; None if there are more.

    Parts of words help most where most words are new.
    """
    if not 0 < len(texts) < FEWEST_TEXTS:
        return None
    text = open_.few()
    length = len(text_to_bags(texts, text, clf.threads).keys) / len(texts)
    passes = open_.passes or MOST_PASSES
    rate = open_.learning_rate or float(f"{rate_for(length, classes, passes):.3g}")
    return Chosen(text, passes, rate, open_.members or (1 if single_member(clf) else MOST_MEMBERS))


def single_member(clf: TrainedClassifier) -> bool:
    """Whether the final model has one member unless more are asked for."""
    return bool(clf.patience) or choose_device(clf.device) != "cpu"


def _start(data: Data, open_: Open) -> "Race":
    clf, n, started = data.clf, len(data), time.perf_counter()
    best = clf.effort == "best" or clf.time_limit is not None
    order = np.random.default_rng([clf.seed & (2**63 - 1), 0xACE]).permutation(n)
    sample = take_texts(data.texts, np.sort(order[:PROBED]))
    configs = open_.first() + [c for winner in open_.first() for c in open_.more(winner, best)]
    longer = _length(data.texts) / _length(sample)
    scale = longer if longer > MISSED else 1.0  # a sample may miss the few texts that are huge
    density = {}
    for config in (*configs, RULES):
        keys = text_to_bags(sample, config, clf.threads).keys
        density[config] = scale * len(keys) / len(sample)
    budget = Budget.of(best, peer_work(density[RULES] * data.total, data.total, data.classes))
    race = Race(data, open_, budget, best, order, density)
    if clf.time_limit is not None:
        race.budget = race.timed(clf.time_limit)
        race.clock = Clock(started, clf.time_limit)
    race.plan()
    return race


@dataclass(frozen=True)
class Clock:
    """A time limit in seconds, and when it began."""

    started: float
    limit: float

    def left(self) -> float:
        """Seconds until the limit; 0 if it is over."""
        return max(self.started + self.limit - time.perf_counter(), 0.0)


class Together(NamedTuple):
    """Trials of a round that read text in the same way."""

    number: int  # of the round
    text: TextConfig
    runs: tuple[Run, ...]
    texts: int  # to train on
    passes: int


@dataclass
class Race:
    """A race: what it may cost, and in which order it takes the rows."""

    data: Data
    open: Open
    budget: Budget
    best: bool  # whether to spend more than usual
    order: I64  # of the rows; the held-out ones come first
    density: dict[TextConfig, float]  # n-grams of a text, for each way to read it
    held: int = 1  # rows to score on, see `plan`
    folds: int = 1
    clock: "Clock | None" = None  # with a time limit
    run_trials: "RunTrials" = field(default_factory=lambda: run_here)

    def plan(self) -> None:
        """Decide how many rows are held out, and in how many folds."""
        n, classes = len(self.data), self.data.classes
        most = max(min(MOST_HELD_OUT, MOST_SCORES // classes), 100)
        self.held = max(min(round(n * HELD_OUT), most), 1)
        self.folds = 1
        if self.held < most:
            self.folds = min(-(-ENOUGH_HELD_OUT // self.held), MOST_FOLDS)

    def run(self, tell: Callable[[Trial], object]) -> list[Trial]:
        """All trials, in order; `tell` gets each when it is over."""
        race = self.budget.race
        shares = BEST_SHARES if self.best else (FIRST_SHARE, 1 - FIRST_SHARE)
        first = self._allowed(self.open.first())
        if not self.open.text and self.open.training and self.best:
            return self._third(first, race, 1, tell)
        trials = self._round(1, first, shares[0] * race, tell)
        if not ranks(trials) or self.late():
            return trials
        winner = trials[best_cell(self._with_members(trials))[0]].text
        variants = self._allowed(self.open.more(winner, self.best))
        if variants:
            trials += self._round(2, [winner, *variants], shares[1] * race, tell)
        if not (self.best and self.open.training) or not ranks(trials) or self.late():
            return trials
        found = ranks(self._with_members(trials))
        ranked = sorted({i for i, _ in found}, key=lambda i: _rank_of(found, i))
        finalists = [trials[i].text for i in ranked[:FINALISTS]]
        left = race - sum(trial.work for trial in trials)
        return trials + self._third(finalists, left, 3, tell)

    def _third(
        self, configs: list[TextConfig], budget: float, number: int, tell: Callable[[Trial], object]
    ) -> list[Trial]:
        """Several learning rates; scores after each of several passes tell how many are good."""
        every, folds = len(self.data) - self.held, self.folds
        least, each = min(LEAST_TRAINED, every), len(FACTORS) * MOST_PASSES
        while (texts := self._affordable(configs, each, budget)) < least:
            if self.folds > 1:
                self.folds -= 1
            elif len(configs) > 1:
                configs = configs[:-1]
            else:
                break
        trials = []
        if texts >= least:  # a decision by fewer would be worse than the rules
            runs: list[Run] = [(config, factor) for config in configs for factor in FACTORS]
            trials = self._trials(number, runs, texts, MOST_PASSES, tell)
        self.folds = folds
        return trials

    def _round(
        self,
        number: int,
        configs: list[TextConfig],
        budget: float,
        tell: Callable[[Trial], object],
    ) -> list[Trial]:
        """Try these, with the usual passes and rate. Rather fewer passes than fewer texts."""
        every = len(self.data) - self.held
        passes, folds = self._passes(every), self.folds
        while (texts := self._affordable(configs, passes, budget)) < every and passes > 1:
            passes -= 1
        while texts < min(LEAST_TRAINED, every) and self.folds > 1:
            self.folds -= 1
            texts = self._affordable(configs, passes, budget)
        if texts < min(LEAST_TRAINED, every) and number > 1:
            self.folds = folds
            return self._round(number, configs[:-1], budget, tell) if len(configs) > 2 else []
        trials = self._trials(number, [(config, None) for config in configs], texts, passes, tell)
        self.folds = folds
        return trials

    def _passes(self, texts: int) -> int:
        """A good number of passes for this many texts, unless it is given."""
        usual = PASSES_OF_THOUSAND * (1_000 / max(texts, 1)) ** SLOWLY
        return self.open.passes or int(np.clip(round(usual), 1, MOST_PASSES))

    def timed(self, seconds: float) -> Budget:
        """The budget of a time limit, by the speed of a short trial."""
        config = min(self.density, key=self.density.__getitem__)
        self.held, self.folds = 1, 1
        rows = self._rows(config, 1 + self._affordable([config], 1, 0.2 * self.budget.race))
        start = time.perf_counter()
        trial = self._trial(0, (config, None), rows, 1)
        return Budget.timed(seconds, trial.work / max(time.perf_counter() - start, 1e-4))

    def limit_final(self, trials: Sequence[Trial]) -> None:
        """With a time limit, set the budget of the final training by the time that is left.

        Its tables are larger than those of a trial, so its steps are slower. So some steps are
        tried, with tables of the final size.
        """
        if self.clock is None:
            return
        config = trials[best_cell(self._with_members(trials))[0]].text
        members = self._members(config, self._passes(self.data.total))
        rows = self._rows(config, len(self.data))
        engine = self._engine(rows.bags, members)
        few = np.arange(max(1, int(PACED * len(rows.bags))))
        part = rows.take(few)
        rates = np.zeros(-(-len(few) // default_batch(rows.bags)), np.float32)
        start = time.perf_counter()
        engine.train(
            part.bags,
            part.labels,
            few,
            rates,
            batch_size=default_batch(rows.bags),
            weights=part.weights,
            snippets=None,
        )
        units = work(len(part.bags.keys), len(part.bags), self.data.classes, self._dim)
        speed = units / max(time.perf_counter() - start, 1e-4)
        self.budget = replace(self.budget, final=FINAL_SHARE * self.clock.left() * speed)

    def search(self, trials: Sequence[Trial]) -> Search:
        """What was tried, and the choice."""
        at, last = best_cell(self._with_members(trials))
        chosen = self._chosen(trials[at], last + 1)
        return Search(self.data.clf.metric, tuple(trials), (at, last), chosen)

    def _chosen(self, trial: Trial, passes: int) -> Chosen:
        """The settings of the best trial, adapted to all rows.

        More texts need fewer passes, and fewer passes larger steps.
        """
        data, open_ = self.data, self.open
        length, growth = self.density[trial.text], data.total / max(trial.texts, 1)
        one = self._pass_work(trial.text) * data.total
        most = max(1, int(self.budget.final / (one * (open_.members or 1))))
        if trial.factor is None:
            final = min(self._passes(data.total), open_.passes or most)
            rate = rate_for(length, data.classes, final)
        else:
            final = passes if growth < GROWN else max(1, round(passes / growth**SLOWLY))
            final = min(final, most)
            larger = min(trial.factor * (passes / final) ** 0.5, max(trial.factor, 1.0))
            rate = larger * rate_for(length, data.classes)
        members = self._members(trial.text, final)
        return Chosen(
            trial.text,
            final,
            open_.learning_rate or float(f"{rate:.3g}"),
            members,
        )

    def _members(self, config: TextConfig, passes: int) -> int:
        """How many members of that many passes the final training can afford."""
        clf, one = self.data.clf, self._pass_work(config) * self.data.total
        most = 1 if single_member(clf) else self.budget.members
        return self.open.members or int(np.clip(self.budget.final / (passes * one), 1, most))

    def _with_members(self, trials: Sequence[Trial]) -> list[Trial]:
        """The trials with the scores that the members of the final model will have, roughly.

        A trial has one member. A way to read text that is cheap can have more in the end.
        """
        found = []
        for trial in trials:
            passes = min(self._passes(self.data.total), max(len(trial.scores), 1))
            share = 1 - MEMBER_GAIN * (1 - 1 / self._members(trial.text, passes))
            scores = tuple(Score(s.error * share, s.loss * share) for s in trial.scores)
            found.append(replace(trial, scores=scores))
        return found

    def _trials(
        self,
        number: int,
        runs: list[Run],
        texts: int,
        passes: int,
        tell: Callable[[Trial], object],
    ) -> list[Trial]:
        """Run trials on this many texts, which are hashed once for each way to read them."""
        trials: list[Trial] = []
        groups = [
            Together(number, config, tuple(run for run in runs if run[0] == config), texts, passes)
            for config in dict.fromkeys(config for config, _ in runs)
        ]
        for trial in self.run_trials(self, groups):
            trials.append(trial)
            tell(trial)
        return trials

    def together(self, group: "Together") -> Iterator[Trial]:
        """Run the trials of one way to read text."""
        rows = self._rows(group.text, self.held + group.texts)
        for run in group.runs:
            yield self._trial(group.number, run, rows, group.passes)

    def late(self) -> bool:
        """Whether the race has used up its share of a time limit."""
        return self.clock is not None and self.clock.left() < (1 - RACE_SHARE) * self.clock.limit

    def _rows(self, config: TextConfig, count: int) -> Documents:
        """The first `count` rows of the race, in its order."""
        data, first = self.data, self.order[:count]
        chosen = np.sort(first)
        column = data.texts if count >= len(data) else take_texts(data.texts, chosen)
        bags = text_to_bags(column, config, data.clf.threads)
        weights = None if data.weights is None else data.weights[chosen]
        rows = Documents(bags, data.targets.labels.take(chosen), weights)
        return rows.take(np.searchsorted(chosen, first))

    def _trial(self, number: int, run: Run, rows: Documents, passes: int) -> Trial:
        (config, factor), data, n = run, self.data, len(rows.bags)
        folds: list[list[Score]] = []
        counts, sizes, cost = [], [], 0.0
        for fold in range(min(self.folds, n // self.held)):
            begin, end = fold * self.held, min((fold + 1) * self.held, n)
            test = rows.take(np.arange(begin, end))
            train = rows.take(np.concatenate([np.arange(begin), np.arange(end, n)]))
            train = self._within_plan(train, config)
            rate = self._rate(train.bags, factor, passes)
            engine = self._engine(train.bags, SMALLER)
            folds.append(train_and_score(engine, train, test, rate, passes, data.clf.metric))
            counts.append(end - begin)
            sizes.append(float(end - begin if test.weights is None else test.weights.sum()))
            one = work(len(train.bags.keys), len(train.bags), data.classes, self._dim)
            cost += max(len(folds[-1]), 1) * one
        done = min(map(len, folds))
        scores = [mean_score([scores[p] for scores in folds], sizes) for p in range(done)]
        texts = n - self.held
        return Trial(number, config, factor, texts, sum(counts), tuple(scores), cost)

    def _within_plan(self, train: Documents, config: TextConfig) -> Documents:
        """Without the longest texts, if there are far more n-grams than planned."""
        bags = train.bags
        most = EXCESS * self.density[config] * len(bags)
        if len(bags.keys) <= most:
            return train
        order = np.argsort(bags.lengths, kind="stable")
        fitting = np.searchsorted(np.cumsum(bags.lengths[order]), most, "right")
        return train.take(np.sort(order[: max(int(fitting), 1)]))

    def _rate(self, bags: Bags, factor: float | None, passes: int) -> float:
        if (given := self.open.learning_rate) is not None:
            return given
        length = len(bags.keys) / max(len(bags), 1)
        usual = rate_for(length, self.data.classes, passes if factor is None else 1)
        return usual if factor is None else factor * usual

    def _engine(self, bags: Bags, members: int) -> ShallowModel:
        """A model for these n-grams, as large as one of so many members."""
        data, clf = self.data, self.data.clf
        distinct = count_distinct(bags.keys, clf.threads)
        dim = self._dim
        sizes = choose_sizes(distinct, dim, members, clf.num_embeddings, clf.num_buckets)
        spec = HashSpec(*sizes, clf.num_hashes, seed=clf.seed)
        multilabel, threads = data.targets.multilabel, clf.threads
        return ShallowModel(
            spec, dim, data.classes, multilabel=multilabel, seed=clf.seed, threads=threads
        )

    @property
    def _dim(self) -> int:
        return self.data.clf.embedding_dim or choose_dim(self.data.classes)

    def _pass_work(self, config: TextConfig) -> float:
        """Work of one pass over one text."""
        return max(work(self.density[config], 1, self.data.classes, self._dim), 1e-9)

    def _allowed(self, configs: list[TextConfig]) -> list[TextConfig]:
        """Those whose final training fits into its budget, but at least the cheapest of all."""
        n = self.data.total
        fitting = [c for c in configs if n * self._pass_work(c) <= self.budget.final]
        cheapest = min(self.open.first(), key=self._pass_work)
        return fitting or [c for c in configs if c == cheapest]

    def _affordable(self, configs: list[TextConfig], passes: int, budget: float) -> int:
        """How many texts these trials can train on with this much work."""
        each = sum(map(self._pass_work, configs)) * passes * self.folds
        return int(np.clip(budget / each, 1, len(self.data) - self.held))


RunTrials = Callable[[Race, list[Together]], Iterator[Trial]]


def run_here(race: Race, groups: list[Together]) -> Iterator[Trial]:
    """Run trials one after the other, until the race is late."""
    done = 0
    for group in groups:
        if done and race.late():  # before its texts are hashed
            return
        for trial in race.together(group):
            yield trial
            done += 1
            if race.late():
                return


def _length(texts: pa.ChunkedArray) -> float:
    """Bytes of a text, on average, and one more."""
    offset = 8 if texts.type in (pa.large_string(), pa.large_binary()) else 4
    return max(float(texts.nbytes) / len(texts) - offset, 0.0) + 1.0


def _rank_of(found: dict[tuple[int, int], float], trial: int) -> float:
    """The best rank of a trial."""
    return min(rank for (i, _), rank in found.items() if i == trial)
