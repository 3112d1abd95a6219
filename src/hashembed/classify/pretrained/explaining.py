"""Adds to an explanation what the words of a text contribute through pretrained vectors."""

from bisect import bisect_right
from dataclasses import replace

import numpy as np

from hashembed.classify.explain.result import Explanation
from hashembed.classify.pretrained.part import VectorPart


def add_words(found: Explanation, part: VectorPart) -> Explanation:
    """The explanation with the contributions of word vectors.

    They are added to those of the same words. A word that is no n-gram of the model, such as a
    repetition that does not count, becomes an n-gram without importance weights.
    """
    words, added = part.contributions(found.text)
    places = {(n.start, n.end): i for i, n in enumerate(found.ngrams) if not n.subword}
    starts = [start for start, _ in found.words]
    contributions, ngrams, rows = found.contributions.copy(), list(found.ngrams), []
    for word, row in zip(words, added, strict=True):
        place = places.get((word.start, word.end))
        if place is None:
            number = max(bisect_right(starts, word.start) - 1, 0)
            ngrams.append(replace(word, word=number))
            rows.append(row)
        else:
            contributions[place] += row
    importances = found.importances
    if importances is not None:
        importances = np.append(importances, np.zeros(len(rows)))
    bias = part.linear.bias
    return replace(
        found,
        ngrams=ngrams,
        contributions=np.concatenate([contributions, np.reshape(rows, (-1, len(bias)))]),
        bias=found.bias + bias,
        logits=found.logits + bias + added.sum(axis=0),
        importances=importances,
    )
