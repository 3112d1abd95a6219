"""From logits to probabilities, losses and the scores of ensembles: the same bits everywhere."""

import numpy as np

from hashembed.core.arrays import F32_2D, F32_3D, F64, F64_2D, I64
from hashembed.core.elementary import exp64, log64
from hashembed.core.njit import njit


@njit(error_model="numpy")
def _softplus(z):
    """log(1 + exp(z))"""
    return max(z, 0.0) + log64(1.0 + exp64(-abs(z)))


@njit(error_model="numpy")
def _log_sum_exp(z):
    """log(sum(exp(z)))"""
    top, total = -np.inf, 0.0
    for c in range(len(z)):
        top = max(top, np.float64(z[c]))
    for c in range(len(z)):
        total += exp64(np.float64(z[c]) - top)
    return log64(total) + top


@njit(native=True, nogil=True, error_model="numpy")
def make_probabilities(z: F64_2D, multilabel: bool) -> None:
    """Replace logits (n, C) by their softmax, or with several labels by sigmoids."""
    for q in range(len(z)):
        own, top, total = z[q], -np.inf, 0.0
        if multilabel:
            for c in range(len(own)):
                e = exp64(-abs(own[c]))
                own[c] = (1.0 if own[c] >= 0 else e) / (1.0 + e)
            continue
        for c in range(len(own)):
            top = max(top, own[c])
        for c in range(len(own)):
            own[c] = exp64(own[c] - top)
        for c in range(len(own)):
            total += own[c]
        for c in range(len(own)):
            own[c] /= total


@njit(native=True, nogil=True, error_model="numpy")
def fill_losses(z: F32_2D, labels: I64, offsets: I64, multilabel: bool, out: F64) -> None:
    """out (n,) = the losses of documents; labels and offsets are those of `Labels`."""
    for q in range(len(z)):
        if multilabel:
            loss = 0.0
            for c in range(z.shape[1]):
                loss += _softplus(np.float64(z[q, c]))
        else:
            loss = _log_sum_exp(z[q])
        for x in range(offsets[q], offsets[q + 1]):
            loss -= np.float64(z[q, labels[x]])
        out[q] = loss


@njit(native=True, nogil=True, error_model="numpy")
def fill_mean_scores(z: F32_3D, multilabel: bool, out: F32_2D) -> None:
    """out (n, C) = the logarithms, or log-odds, of mean probabilities; logits z (members, n, C)."""
    members, documents, classes = z.shape
    true, false, sums = np.empty(members), np.empty(members), np.zeros(members)
    for q in range(documents):
        if not multilabel:
            for m in range(members):
                sums[m] = _log_sum_exp(z[m, q])
        for c in range(classes):
            for m in range(members):
                own = np.float64(z[m, q, c])
                true[m] = -_softplus(-own) if multilabel else own - sums[m]
                false[m] = -_softplus(own) if multilabel else 0.0
            score = _log_sum_exp(true)
            score -= _log_sum_exp(false) if multilabel else log64(np.float64(members))
            out[q, c] = score


@njit(native=True, nogil=True, error_model="numpy")
def fill_logarithms(values: F64, out: F64) -> None:
    """out = log(values)."""
    for i in range(len(values)):
        out[i] = log64(values[i])
