"""Which n-grams of one text spoke for which class.

The model is linear in the hash vectors of a text's n-grams, so its logits are sums over n-grams:

    logit[c] = bias[c] + sum_w contribution[w, c]
    contribution[w, c] = sum_i p_w^i E[bucket_i] . W[c]

and nothing has to be approximated. For models that are not linear, `explain_by_occlusion` asks what
each logit loses when an n-gram is left out.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hashembed.classify.explain.result import Explanation
from hashembed.core.arrays import F64, I64
from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing.bags import Bags
from hashembed.text.config import TextConfig
from hashembed.text.spans import ngrams_of, word_spans

_OCCLUDED_KEYS = 1 << 20  # scored at a time


def ngram_contributions(model: ShallowModel, keys: I64) -> F64:
    """What each key adds to each logit: (n, C)."""
    rows, buckets = model.spec(keys)
    vectors = model.tables.E[buckets].astype(np.float64)  # (n, k, d)
    if model.importance:
        vectors *= model.importance_weights[rows][:, :, None]
    return np.asarray(vectors.sum(axis=1) @ model.tables.W.astype(np.float64).T)


def importance_norms(model: ShallowModel, keys: I64) -> F64:
    """|p_w|, the length of the k importance weights of each key: (n,)."""
    rows, _ = model.spec(keys)
    weights = model.importance_weights[rows].astype(np.float64)
    return np.asarray(np.linalg.norm(weights, axis=1))


def explain_text(
    model: ShallowModel, config: TextConfig, classes: Sequence[Any], text: str
) -> Explanation:
    """What every n-gram of a text contributes to every class, exactly.

    Args:
        model: the linear model; config: how it reads text; classes: the names of its outputs.
        text: one str. One without n-grams has the bias alone for its logits.
    """
    keys, ngrams = ngrams_of(text, config)
    contributions = ngram_contributions(model, keys)
    bias = model.tables.bias.astype(np.float64)
    return Explanation(
        text,
        plain_labels(classes, len(bias)),
        ngrams,
        contributions,
        bias,
        bias + contributions.sum(axis=0),
        importance_norms(model, keys) if model.importance else None,
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
    """The same for any model, approximately: what each logit loses without each n-gram.

    An n-gram's contribution is the logits of the text less those of the text without this one
    occurrence, and the bias is what the model says of an empty bag. For a linear model that is
    `explain_text`. For others the sum is not the logits, `unexplained` says how far it is off,
    and n-grams that stand in for each other (one is enough) can both seem to matter little.

    Args:
        scores: bags -> logits (bags, C), as `ShallowModel.scores`. It is called for n + 2 bags of
            up to n keys, a million keys at a time.
        multilabel: whether the logits go through sigmoids, not a softmax.
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
    """Names of the classes as plain Python, one for each output."""
    if len(classes) != outputs:
        raise ValueError(f"the model has {outputs} outputs, found {len(classes)} classes")
    return [label.item() if isinstance(label, np.generic) else label for label in classes]
