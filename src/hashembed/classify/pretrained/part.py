"""The part of a classifier that sees words through pretrained vectors.

The features of a text are its mean word vector, scaled to length 1. A linear layer turns them into
logits, which are added to those of the n-grams. So the share of a word in a logit is exact, given
the length of the mean:

    logit[c] = bias[c] + sum_w W[c] . v_w / (n |mean|)
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hashembed.classify.pretrained.regression import Linear, Problem, move_logistic
from hashembed.classify.pretrained.sources import lengths_of, unit_means
from hashembed.core.arrays import F32, F64, Bools
from hashembed.engine.tensor_file import Arrays, ModelFileError
from hashembed.text.spans import NGram, ngrams_of
from hashembed.vectors.file import assemble, content_of
from hashembed.vectors.model import VectorModel
from hashembed.vectors.row_table import CodedRows

BITS = 8  # of a number in the tables, in memory and, unless fewer are asked for, in files
ONLINE_PENALTY = 1.0  # for moving the layer, while it learns from more texts
PREFIX = "vectors."  # of the tensors in a model file


@dataclass(frozen=True)
class VectorPart:
    """Vectors, and the layer on top. share: of this part in the logits, from 0 to 1."""

    model: VectorModel
    linear: Linear
    share: float

    def scores(self, texts: Any) -> F32:
        """Logits (texts, classes), to be added to those of the n-grams."""
        return self.linear(unit_means(self.model, texts), self.model.threads)

    def grown(self, classes: int) -> "VectorPart":
        """With more classes, about which the vectors say nothing."""
        linear, more = self.linear, classes - len(self.linear.bias)
        if more <= 0:
            return self
        # A new class gets the smallest bias, as in a shallow model.
        bias = np.append(linear.bias, np.full(more, linear.bias.min(initial=0)))
        W = np.concatenate([linear.W, np.zeros((more, linear.W.shape[1]))])
        return replace(self, linear=Linear(W, bias))

    def moved(
        self, texts: Any, ngrams: F32, truth: Bools, weights: F32 | None, multilabel: bool
    ) -> "VectorPart":
        """After learning from more texts, given their logits of n-grams and classes (n, C)."""
        X = unit_means(self.model, texts)
        problem = Problem.of(X, truth, weights, multilabel, self.model.threads)
        problem = replace(problem, offsets=np.ascontiguousarray(ngrams.T, np.float64))
        return replace(self, linear=move_logistic(problem, ONLINE_PENALTY, self.linear))

    def contributions(self, text: str) -> tuple[list[NGram], F64]:
        """The words of a text, and what each adds to each logit: (n, C)."""
        _, words = ngrams_of(text, self.model.settings.words)
        vectors = self.model.embed([text[word.start : word.end] for word in words])
        mean = self.model.embed([text])
        scale = 1 / (max(len(words), 1) * float(lengths_of(mean)[0]))
        return words, np.asarray(vectors.astype(np.float64) @ self.linear.W.T * scale)

    # --- files ---

    def content(self, bits: int) -> tuple[Arrays, dict[str, Any]]:
        """Tensors and metadata for a model file."""
        tensors, meta = content_of(self.model, bits, False)
        named = {PREFIX + name: tensor for name, tensor in tensors.items()}
        named[f"{PREFIX}W"], named[f"{PREFIX}bias"] = self.linear.W, self.linear.bias
        return named, {**meta, "share": self.share}


def coded(model: VectorModel) -> VectorModel:
    """The vectors as a model file holds them, so that a saved classifier answers as before."""
    if isinstance(model.E, CodedRows) and model.E.bits == BITS:
        return model
    tensors, meta = content_of(model, BITS, False)
    made: VectorModel = assemble(tensors, meta)
    made.threads = model.threads
    return made


def part_from(tensors: Arrays, meta: Any, classes: int, threads: int | None) -> VectorPart:
    """What `VectorPart.content` described; tensors without their prefix."""
    tensors = dict(tensors)
    found = {name: np.asarray(tensors.pop(name)) for name in ("W", "bias") if name in tensors}
    model: VectorModel = assemble(tensors, meta)
    model.threads = threads
    shapes = {"W": (classes, model.settings.embedding_dim), "bias": (classes,)}
    for name, shape in shapes.items():
        if name not in found or found[name].shape != shape or found[name].dtype != np.float64:
            raise ModelFileError(
                f"has no tensor '{PREFIX}{name}' of shape {shape} and type float64"
            )
    share = meta["share"]
    if not isinstance(share, float) or not 0 < share < 1:
        raise ModelFileError(f"has {share!r:.20} as the share of its vectors")
    return VectorPart(model, Linear(found["W"], found["bias"]), share)
