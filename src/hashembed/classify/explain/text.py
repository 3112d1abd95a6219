"""Explains one answer: how much each n-gram of a text adds to each class.

The model is linear in the hash vectors of a text's n-grams, so its logits are sums over n-grams:

    logit[c] = bias[c] + sum_w contribution[w, c]
    contribution[w, c] = sum_i p_w^i E[bucket_i] . W[c]

The explanation is therefore exact, on a GPU up to the rounding of float32. In an ensemble that
averages logits, contributions and biases are means over the members. For other models,
`explain_by_occlusion` measures what each logit loses when an n-gram is left out.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hashembed.classify.explain.parts import Part, parts_of
from hashembed.classify.explain.result import Explanation
from hashembed.core.arrays import F64, I64
from hashembed.engine.protocol import Engine
from hashembed.hashing.bags import Bags
from hashembed.text.config import TextConfig
from hashembed.text.spans import ngrams_of, word_spans

_OCCLUDED_KEYS = 1 << 20  # scored in one call


def ngram_contributions(model: Engine, keys: I64) -> F64:
    """What each key adds to each logit: (n, C). The mean over an ensemble."""
    return _mean(part.vectors(keys) @ part.output()[0].T for part in _parts(model))


def importance_norms(model: Engine, keys: I64) -> F64:
    """|p_w|, the norm of the k importance weights of each key: (n,). The mean over an ensemble."""
    found = _norms(_parts(model), keys)
    if found is None:
        raise ValueError("the model has no importance weights: all are fixed at 1")
    return found


def _norms(parts: Sequence[Part], keys: I64) -> F64 | None:
    norms = []
    for part in parts:
        if (weights := part.weights(keys)) is None:
            return None
        norms.append(np.asarray(np.linalg.norm(weights, axis=1)))
    return _mean(norms)


def _parts(model: Engine) -> list[Part]:
    if not (parts := parts_of(model)):
        raise TypeError("the model is not linear: explain_by_occlusion explains any model")
    return parts


def _mean(values: Iterable[F64]) -> F64:
    found = list(values)
    return np.asarray(sum(found) / len(found))


def explain_text(
    model: Engine, config: TextConfig, classes: Sequence[Any], text: str
) -> Explanation:
    """Explain a text exactly: the contribution of every n-gram to every class.

    Args:
        model: a linear model, on any device; config: how it reads text; classes: the names of its
            outputs.
        text: one str. Without n-grams, its logits are the bias.
    """
    keys, ngrams = ngrams_of(text, config)
    parts = _parts(model)
    contributions = ngram_contributions(model, keys)
    bias = _mean(part.output()[1] for part in parts)
    return Explanation(
        text,
        plain_labels(classes, len(bias)),
        ngrams,
        contributions,
        bias,
        bias + contributions.sum(axis=0),
        _norms(parts, keys),
        word_spans(text, config),
        model.multilabel,
    )


def explain_by_occlusion(
    scores: Callable[[Bags], npt.ArrayLike],
    config: TextConfig,
    classes: Sequence[Any],
    text: str,
    *,
    multilabel: bool = False,
) -> Explanation:
    """Explain a text for any model, approximately: what each logit loses without an n-gram.

    The contribution of an n-gram is the logits of the text minus those of the text without this one
    occurrence. The bias is the logits of an empty bag. For a linear model this equals
    `explain_text`. For others the sum differs from the logits by `unexplained`, and n-grams that
    can replace each other may both seem unimportant.

    Args:
        scores: bags -> logits (bags, C), as `ShallowModel.scores`. It scores n + 2 bags of up to n
            keys, a million keys in one call.
        multilabel: whether probabilities are sigmoids of the logits, not a softmax.
    """
    keys, ngrams = ngrams_of(text, config)
    n = len(keys)
    whole, empty = np.asarray(scores(Bags(keys, np.array([0, n, n]))), np.float64)
    contributions = np.empty((n, len(whole)))
    step = max(1, _OCCLUDED_KEYS // max(n, 1))
    for begin in range(0, n, step):
        left_out = np.arange(begin, min(begin + step, n))
        kept = np.arange(n) != left_out[:, None]  # (bags, n)
        bags = Bags(
            np.broadcast_to(keys, kept.shape)[kept],
            np.arange(len(left_out) + 1, dtype=np.int64) * (n - 1),
        )
        contributions[left_out] = whole - np.asarray(scores(bags), np.float64)
    return Explanation(
        text,
        plain_labels(classes, len(whole)),
        ngrams,
        contributions,
        empty,
        whole,
        None,
        word_spans(text, config),
        multilabel,
        exact=False,
    )


def plain_labels(classes: Sequence[Any], outputs: int) -> list[Any]:
    """The names of the classes as Python values, one for each output."""
    if len(classes) != outputs:
        raise ValueError(f"the model has {outputs} outputs, found {len(classes)} classes")
    return [label.item() if isinstance(label, np.generic) else label for label in classes]
