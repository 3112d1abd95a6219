"""How a classifier is trained: sizes, weights, validation, training state, online updates."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hashembed.classify.calibrating import calibrate, leaving_rows_out
from hashembed.classify.choose.budget import EFFORTS
from hashembed.classify.choose.search import Chosen, Search
from hashembed.classify.choose.space import Open
from hashembed.classify.choose.trial import METRICS
from hashembed.classify.documents import Documents
from hashembed.classify.engine_plan import MAX_MEMBERS, EnginePlan, choose_device
from hashembed.classify.report import FitReport
from hashembed.classify.stream_position import StreamPosition
from hashembed.classify.targets import Targets, check_counts, encode, join
from hashembed.classify.trained import TrainedClassifier, shallow_model
from hashembed.core.arrays import F32, I64
from hashembed.core.checks import one_of, whole_number
from hashembed.core.memory import return_freed
from hashembed.core.wording import given, named
from hashembed.engine.defaults import (
    Shuffle,
    TrainConfig,
    check_learning_rate,
    default_batch,
    default_passes,
    default_rate,
)
from hashembed.engine.history import History
from hashembed.engine.labels import (
    Labels,
    check_class_weight,
    document_weights,
    sample_weights,
    split,
    weigh_classes,
)
from hashembed.engine.loop import STATE_SECONDS, Hooks, Progress, fit
from hashembed.engine.progress import Display, training_bar
from hashembed.engine.training_state import (
    TrainingState,
    fingerprint,
    load_training_state,
    save_training_state,
)
from hashembed.hashing.bags import Bags
from hashembed.hashing.sizes import choose_dim, choose_sizes, fast_sizes, stream_buckets
from hashembed.hashing.spec import HashSpec
from hashembed.text.config import TextConfig
from hashembed.text.counts.distinct import count_distinct
from hashembed.text.key_store import KeyStore
from hashembed.text.pipeline import text_to_bags

if TYPE_CHECKING:
    from hashembed.classify.pretrained.fitting import Features

PATIENT_PASSES = 100  # limit with `patience`, unless `passes` is given
STREAM_BATCH = 128  # texts in a step of online learning
STREAM_EMBEDDINGS = 1_000_000  # K for online learning, where the text is not known in advance


@dataclass(frozen=True)
class FitOptions:
    """The arguments that `fit` and `fit_batches` share; see `TextClassifier.fit`."""

    validation: tuple[Any, Any] | None = None  # texts, or their bags; and labels
    checkpoint: str | os.PathLike[str] | None = None
    callbacks: Sequence[Callable[[Progress], object]] = ()
    shuffle: Shuffle | None = None
    state_seconds: float = STATE_SECONDS  # between training states within a pass


def text_config(clf: TrainedClassifier) -> TextConfig:
    """How to read text without a race: the classifier's arguments, and rules for the others."""
    return left_open(clf).text_config()


def left_open(clf: TrainedClassifier) -> Open:
    """What the classifier's arguments leave to be chosen."""
    return Open(
        clf.ngrams,
        clf.subwords,
        clf.punctuation,
        clf.repeats,
        clf.lowercase,
        clf.passes,
        clf.learning_rate,
        clf.members,
    )


def fit_texts(
    clf: TrainedClassifier,
    waiting: list[Any],
    targets: Targets,
    sample_weight: npt.ArrayLike | None,
    options: FitOptions,
) -> None:
    """Choose what the arguments leave open, then train a new model on all documents.

    waiting: a list with the texts as its only element. It is emptied, so that their memory is free
    for the tables if nobody else holds them.
    """
    check_arguments(clf, options)
    texts, open_, search, chosen = waiting.pop(), left_open(clf), None, None
    features = None
    if clf.pretrained is not None:
        from hashembed.classify.pretrained.training import features_of
        from hashembed.text.arrow import to_arrow

        texts, options = to_arrow(texts), _checked_validation(options, targets)
        features = features_of(clf, texts, targets, options.validation)
    if clf.effort != "fast" and (open_.text or open_.training or open_.members is None):
        from hashembed.classify.choose.race import choose_settings, settings_of_few
        from hashembed.text.arrow import to_arrow

        texts = to_arrow(texts)
        options = _checked_validation(options, targets)  # before the race, which may take long
        weights, weighed = weigh(clf, len(texts), targets, sample_weight)
        kept = None
        if options.validation is None and clf.validation_fraction:
            kept, _ = split(len(texts), clf.validation_fraction, clf.seed)
        search = choose_settings(clf, open_, texts, weighed, weights, kept)
        chosen = settings_of_few(clf, open_, texts, len(targets.classes))
        chosen = chosen if search is None else search.chosen
    text = open_.text_config() if chosen is None else chosen.text
    bags = text_to_bags(texts, text, clf.threads)
    del texts
    return_freed()  # tables take its place
    fast = clf.effort == "fast"
    choice = chosen, search
    fit_bags(clf, bags, targets, sample_weight, options, *choice, fast=fast, features=features)


def only_batch(
    batches: Iterable[tuple[Any, Any]],
) -> tuple[list[Any], Iterable[tuple[Any, Any]]]:
    """[texts, labels] if there is a single batch, else []; and the batches, if there are others."""
    following = iter(batches)
    ahead = list(islice(following, 2))
    if len(ahead) == 1:
        texts, labels = ahead.pop()
        return [texts, labels], ()

    def all_batches() -> Iterator[tuple[Any, Any]]:
        while ahead:
            yield ahead.pop(0)
        yield from following

    return [], all_batches()


def hash_batches(
    clf: TrainedClassifier, batches: Iterable[tuple[Any, Any]]
) -> Iterator[tuple[Bags, Any]]:
    """The bags of batches of (texts, labels), with the labels."""
    config = text_config(clf)
    for texts, labels in batches:
        yield text_to_bags(texts, config, clf.threads), labels


def join_batches(
    batches: Iterable[tuple[Bags, Any]], store: KeyStore | None
) -> tuple[Bags, Targets]:
    """Join batches of (bags, labels), in memory or in the store."""
    parts: list[Bags] = []
    labelled: list[Targets] = []
    for bags, labels in batches:
        labelled.append(encode(labels, labelled[-1].classes if labelled else None))
        check_counts(len(bags), labelled[-1])
        if store is None:
            parts.append(bags)
        else:
            store.add(bags)
    if not labelled:
        raise ValueError("found no texts to train on")
    return Bags.concat(parts) if store is None else store.bags(), join(labelled)


def fit_bags(
    clf: TrainedClassifier,
    bags: Bags,
    targets: Targets,
    sample_weight: npt.ArrayLike | None,
    options: FitOptions,
    chosen: Chosen | None = None,
    search: Search | None = None,
    *,
    fast: bool,
    features: "Features | None" = None,
) -> None:
    """Train a new model on all documents, with what was chosen, or by rules.

    search: how it was chosen. fast: small tables. features: from pretrained vectors.
    """
    choice = chosen, search
    run = prepare(clf, bags, targets, sample_weight, options, *choice, fast=fast, features=features)
    with leaving_out(run) as left_out:
        run_training(run)
    if run.features is None:
        calibrate_model(run, left_out)
    else:
        from hashembed.classify.pretrained.training import Trained, add_vectors

        trained = Trained(clf, run.config, run.train, run.held_out, left_out)
        add_vectors(trained, run.features)
    if clf.verbose and (outcome := clf.history_.outcome()):
        print(outcome, file=sys.stderr)


@dataclass(frozen=True)
class Training:
    """A new model, and all that its training needs."""

    clf: TrainedClassifier
    config: TrainConfig
    train: Documents
    held_out: Documents | None
    options: FitOptions
    features: "Features | None" = None  # of `train` and `held_out`


def prepare(
    clf: TrainedClassifier,
    bags: Bags,
    targets: Targets,
    sample_weight: npt.ArrayLike | None,
    options: FitOptions,
    chosen: Chosen | None = None,
    search: Search | None = None,
    *,
    fast: bool,
    features: "Features | None" = None,
) -> Training:
    """Make the model and divide the documents; the arguments are those of `fit_bags`."""
    check_arguments(clf, options)
    if clf.pretrained is not None and features is None:
        raise ValueError(needs_all_texts())
    weights, targets = weigh(clf, len(bags), targets, sample_weight)
    distinct = count_distinct(bags.keys, clf.threads)
    config = _train_config(clf, bags, len(targets.classes), distinct, chosen, options.shuffle)
    if search is not None:
        search = replace(search, chosen=_as_trained(clf, search.chosen, config))
        if clf.verbose:
            print(search, file=sys.stderr)
    text = text_config(clf) if chosen is None else chosen.text
    members = clf.members or (1 if chosen is None else chosen.members)
    dim = clf.embedding_dim or choose_dim(len(targets.classes))
    given_sizes = clf.num_embeddings, clf.num_buckets
    if fast:
        sizes = fast_sizes(distinct, *given_sizes)
    else:
        sizes = choose_sizes(distinct, dim, members, *given_sizes)
    train, held_out = Documents(bags, targets.labels, weights), None
    if options.validation is not None:
        held_out = _held_out(clf, targets, text, *options.validation)
    _begin(clf, targets, sizes, text, members)
    clf.search_, clf.calibration_ = search, None
    _count(clf, targets)
    clf.report_ = _report(clf, bags, distinct)
    if options.validation is None and clf.validation_fraction:
        kept, held = split(len(bags), clf.validation_fraction, clf.seed)
        train, held_out = train.take(kept), train.take(held)
        features = features and features.divided(kept, held)
    clf.history_ = History()
    return Training(clf, config, train, held_out, options, features)


def leaving_out(run: Training) -> AbstractContextManager[list[I64]]:
    """While this lasts, members leave out the rows on which the model is calibrated later."""
    if run.clf.class_weight is not None or run.held_out is not None:
        return nullcontext([])
    if run.features is not None and run.features.in_folds:
        return nullcontext([])
    return leaving_rows_out(run.clf.model_, len(run.train.bags), run.clf.seed)


def calibrate_model(run: Training, left_out: list[I64]) -> None:
    """Calibrate the trained model. Class weights change probabilities on purpose."""
    clf = run.clf
    if clf.class_weight is None:
        clf.calibration_ = calibrate(clf.model_, run.train, left_out, run.held_out, clf.metric)


def run_training(run: Training) -> None:
    """Train the model of a classifier, from its training state if there is one."""
    clf, config, train, held_out, options = (
        run.clf,
        run.config,
        run.train,
        run.held_out,
        run.options,
    )
    save = resume = None
    if (path := options.checkpoint) is not None:
        mark = _fingerprint(clf, config, train, held_out)
        resume = load_training_state(path, mark, clf.model_)

        def save(state: TrainingState) -> None:
            save_training_state(path, state, mark)

    with _progress(clf, config.passes, len(train.bags)) as bar:
        fit(
            clf.model_,
            train.bags,
            train.labels,
            config,
            weights=train.weights,
            validation=None if held_out is None else (held_out.bags, held_out.labels),
            hooks=Hooks(
                [*options.callbacks, bar.update], bar.finish_pass, save, options.state_seconds
            ),
            resume=resume,
            history=clf.history_,
        )


def learn(
    clf: TrainedClassifier, bags: Bags, targets: Targets, weights: F32 | None, texts: Any = None
) -> None:
    """Train on more documents, in one pass. The first call makes the model.

    texts: of the documents, for a model with pretrained vectors.
    """
    if not clf.__sklearn_is_fitted__():
        rows = clf.num_embeddings or STREAM_EMBEDDINGS
        sizes = rows, clf.num_buckets or stream_buckets(rows)
        _begin(clf, targets, sizes, text_config(clf), clf.members or 1)
        clf.history_ = History()
        clf.search_ = None
        clf.calibration_ = None
    if more := len(targets.classes) - len(clf.classes_):
        shallow_model(clf, "learn new labels").grow(len(targets.classes))
        clf.classes_ = targets.classes
        clf.vectors_ = clf.vectors_ and clf.vectors_.grown(len(targets.classes))
        clf.class_counts_ = np.append(clf.class_counts_, np.zeros(more, np.int64))
    if clf.stream_rate_ is None:
        clf.stream_rate_ = clf.learning_rate or default_rate(bags, len(clf.classes_))
    size = clf.batch_size or STREAM_BATCH
    steps = -(-len(bags) // size)
    clf.model_.train(
        bags,
        targets.labels,
        np.arange(len(bags)),
        np.full(steps, clf.stream_rate_, np.float32),
        batch_size=size,
        weights=weights,
        snippets=None,
    )
    if clf.vectors_ is not None:
        ngrams, truth = clf.model_.scores(bags), targets.labels.matrix(len(clf.classes_))
        multilabel = targets.multilabel
        clf.vectors_ = clf.vectors_.moved(texts, ngrams, truth, weights, multilabel)
    _count(clf, targets)
    clf.report_ = _report(clf, bags, 0)


def weigh(
    clf: TrainedClassifier,
    texts: int,
    targets: Targets,
    sample_weight: npt.ArrayLike | None,
    more_may_come: bool = False,
) -> tuple[F32 | None, Targets]:
    """Return a weight for each document (None: all 1), and the targets.

    With one label per text, the class weight is a factor of the document's weight. With several
    labels it belongs to each label, so the returned targets carry it.
    """
    check_counts(texts, targets)
    if texts == 0:
        raise ValueError("found no texts to train on")
    labels, classes, wish = targets.labels, targets.classes, clf.class_weight
    check_class_weight(wish, classes, more_may_come)
    of_text = None if sample_weight is None else sample_weights(sample_weight, texts)
    if targets.multilabel:
        return of_text, replace(targets, labels=weigh_classes(labels, classes, wish))
    of_class = document_weights(labels, classes, wish)
    if of_text is None or of_class is None:
        return of_text if of_class is None else of_class, targets
    return sample_weights(of_text.astype(np.float64) * of_class, texts), targets


def needs_all_texts() -> str:
    """What an error says about pretrained vectors where texts are read in parts."""
    return (
        f"{given('pretrained')} needs all texts in the memory of one machine: use fit, or "
        "fit_batches with a single batch and without cache_dir"
    )


def check_arguments(clf: TrainedClassifier, options: FitOptions) -> None:
    """Refuse arguments that make no sense, before anything is tried."""
    one_of("effort", clf.effort, EFFORTS)
    one_of("metric", clf.metric, METRICS)
    for name, most in (("passes", 10**6), ("members", MAX_MEMBERS)):
        if (value := getattr(clf, name)) is not None:
            whole_number(name, value, 1, most)
    check_learning_rate(clf.learning_rate)
    _check_validation(clf, options.validation is not None)
    _check_time_limit(clf.time_limit, options.checkpoint is not None)
    if clf.time_limit is not None and clf.effort == "fast":
        raise ValueError(
            f"{given('time_limit', clf.time_limit)} and {given('effort', 'fast')} exclude each "
            "other: the effort fast tries nothing"
        )


def _check_time_limit(limit: float | None, checkpointed: bool) -> None:
    if limit is None:
        return
    if not isinstance(limit, int | float | np.number) or not 0 < limit < float("inf"):
        raise ValueError(
            f"{named('time_limit')} must be a number of seconds above 0, found {limit!r}"
        )
    if checkpointed:
        raise ValueError(
            f"{given('time_limit', limit)} and {given('checkpoint')} exclude each other: a resumed "
            "run would have another time, and might choose something else"
        )


def _check_validation(clf: TrainedClassifier, has_data: bool) -> None:
    if has_data and clf.validation_fraction:
        raise ValueError(
            f"found validation data and {given('validation_fraction', clf.validation_fraction)}: "
            "give only one of them"
        )
    if clf.patience is not None and not has_data and not clf.validation_fraction:
        raise ValueError(
            f"{given('patience', clf.patience)} needs validation data: give {given('validation')}, "
            f"or {given('validation_fraction', 0.1)} to hold out a tenth of the training data"
        )


def _train_config(
    clf: TrainedClassifier,
    bags: Bags,
    classes: int,
    distinct: int,
    chosen: Chosen | None,
    shuffle: Shuffle | None,
) -> TrainConfig:
    passes, rate = clf.passes, clf.learning_rate
    if chosen is not None:
        rate = chosen.learning_rate
        passes = chosen.passes if clf.patience is None else passes
    usual = default_passes(bags, distinct)
    open_ended = passes is None and clf.patience is not None
    if open_ended:
        rate = rate or default_rate(bags, classes, usual)
    return TrainConfig(
        passes=passes or (PATIENT_PASSES if open_ended else usual),
        learning_rate=rate,
        batch_size=clf.batch_size or default_batch(bags),
        patience=clf.patience,
        seed=clf.seed,
        shuffle=shuffle,
    )


def _as_trained(clf: TrainedClassifier, chosen: Chosen, config: TrainConfig) -> Chosen:
    """The choice with the passes and the rate in use: patience has its own."""
    passes = config.passes if clf.patience is None else clf.passes
    rate = config.learning_rate or chosen.learning_rate
    return replace(chosen, passes=passes, learning_rate=float(rate))


def _held_out(
    clf: TrainedClassifier, targets: Targets, text: TextConfig, texts: Any, labels: Any
) -> Documents:
    """The validation data that `fit` was given."""
    bags = texts if isinstance(texts, Bags) else text_to_bags(texts, text, clf.threads)
    return Documents(bags, _validation_labels(targets, labels, len(bags)))


def _checked_validation(options: FitOptions, targets: Targets) -> FitOptions:
    """The options, with validation texts in Arrow; refuse validation data that does not fit."""
    if options.validation is None:
        return options
    from hashembed.text.arrow import to_arrow

    texts, labels = options.validation
    texts = to_arrow(texts)
    if isinstance(labels, Iterator):  # they are read again after the race
        labels = list(labels)
    _validation_labels(targets, labels, len(texts))
    return replace(options, validation=(texts, labels))


def _validation_labels(targets: Targets, labels: Any, texts: int) -> Labels:
    """The labels of validation texts, all of which must occur in the training data."""
    truth = encode(labels, targets.classes, targets.form)
    check_counts(texts, truth, "validation ")
    unknown = truth.classes[len(targets.classes) :]
    if len(unknown):
        raise ValueError(
            f"found the label {unknown.tolist()[0]!r} in the validation data, but not in the "
            "training data: leave such texts out, or add some to the training data"
        )
    return truth.labels


def _fingerprint(
    clf: TrainedClassifier, config: TrainConfig, train: Documents, held_out: Documents | None
) -> str:
    """A digest of everything that the trained model depends on."""
    weights = (train.weights, train.labels.class_weights)
    arrays: list[npt.NDArray[Any]] = [array for array in weights if array is not None]
    for part in filter(None, (train, held_out)):
        arrays += [part.bags.keys, part.bags.offsets, part.labels.labels, part.labels.offsets]
    return fingerprint((clf.engine_plan_, config, clf.text_config_), arrays)


def _begin(
    clf: TrainedClassifier,
    targets: Targets,
    sizes: tuple[int, int],
    text: TextConfig,
    members: int,
) -> None:
    """Forget everything learned, and make a model for these classes."""
    for name in [name for name in vars(clf) if name.endswith("_")]:
        delattr(clf, name)
    clf.text_config_ = text
    clf.classes_, clf.label_form_ = targets.classes, targets.form
    clf.class_counts_ = np.zeros(len(targets.classes), np.int64)
    clf.texts_seen_ = 0
    clf.stream_rate_ = None
    clf.stream_position_ = StreamPosition()
    clf.engine_plan_ = EnginePlan(
        HashSpec(*sizes, clf.num_hashes, seed=clf.seed),
        clf.embedding_dim or choose_dim(len(targets.classes)),
        members,
        targets.multilabel,
        choose_device(clf.device),
    )
    clf.model_ = clf.engine_plan_.make(len(targets.classes), clf.threads)


def _count(clf: TrainedClassifier, targets: Targets) -> None:
    before, now = clf.class_counts_, targets.labels.counts(len(clf.classes_))
    now[: len(before)] += before
    clf.class_counts_ = now
    clf.texts_seen_ += len(targets.labels)


def _report(clf: TrainedClassifier, bags: Bags, distinct: int) -> FitReport:
    spec = clf.engine_plan_.spec
    return FitReport(
        texts=clf.texts_seen_,
        empty=int((bags.lengths == 0).sum()),
        ngrams=len(bags.keys),
        distinct=distinct,
        num_embeddings=spec.num_embeddings,
        num_buckets=spec.num_buckets,
        num_hashes=spec.num_hashes,
        embedding_dim=clf.engine_plan_.embedding_dim,
        parameters=clf.model_.num_parameters,
        class_counts=dict(zip(clf.classes_.tolist(), clf.class_counts_.tolist(), strict=True)),
    )


def _progress(
    clf: TrainedClassifier, passes: int, documents: int
) -> AbstractContextManager[Display]:
    if not clf.verbose:
        return nullcontext(Display())
    print(clf.report_, file=sys.stderr)
    return training_bar(passes, documents)
