"""Scores a few texts with a shallow model, each in one native call."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from hashembed.core.arrays import F32, I64
from hashembed.core.native.call import Packed
from hashembed.engine.shallow.model import ShallowModel
from hashembed.engine.shallow.text_kernel import BEST, COUNT, SIZE, Call, Weights, score_text
from hashembed.hashing.locate import indexing_code
from hashembed.text.config import TextConfig
from hashembed.text.few_texts import FEW, FEW_BYTES, PADDING
from hashembed.text.key_kernels import new_batch
from hashembed.text.pipeline import kernel_rules

_TEXT, _KEYS = 2048, 1024  # bytes and n-grams that there is space for at first


def score_texts(model: ShallowModel, config: TextConfig, texts: Any) -> tuple[F32, I64] | None:
    """Logits (texts, classes) and numbers of n-grams of a list of a few strings.

    None if it is something else, or if there is no compiled kernel for it.
    """
    if type(texts) is not list or len(texts) > FEW:
        return None
    scorer = _scorer_of(model, config)
    z, counts = np.empty((len(texts), len(scorer.weights.bias)), np.float32), []
    for row, call in zip(z, scorer.calls_of(texts), strict=False):
        row[:] = call.z
        counts.append(call.count)
    return (z, np.array(counts, np.int64)) if len(counts) == len(texts) else None


def classes_of(model: ShallowModel, config: TextConfig, texts: Any) -> list[int] | None:
    """The class with the largest logit of each text of a list of a few strings.

    None if it is something else, if a text has no word, or if there is no compiled kernel for it.
    """
    if type(texts) is not list or len(texts) > FEW:
        return None
    found = [call.best for call in _scorer_of(model, config).calls_of(texts) if call.count]
    return found if len(found) == len(texts) else None


def _scorer_of(model: ShallowModel, config: TextConfig) -> "_Scorer":
    scorer = model.text_scorer
    if not isinstance(scorer, _Scorer) or not scorer.suits(model, config):
        scorer = model.text_scorer = _Scorer(model, config)
    return scorer


class _Scorer:
    def __init__(self, model: ShallowModel, config: TextConfig) -> None:
        self.memory, self.config, spec = model.memory, config, model.spec
        self.kernel = score_text.native if spec.indexing != "identity" else None
        tables = self.memory
        self.rules = kernel_rules(config)
        self.weights = Weights(
            *(tables.E, tables.records, tables.W, tables.bias, tables.seeds),
            num_rows=spec.num_embeddings,
            num_buckets=spec.num_buckets,
            importance=model.importance,
            indexing=indexing_code(spec),
        )
        self.ready: list[_ReadyCall] = []  # not in use: each thread takes one

    def suits(self, model: ShallowModel, config: TextConfig) -> bool:
        """Whether neither the tables nor the configuration have been replaced."""
        return self.memory is model.memory and (self.config is config or self.config == config)

    def calls_of(self, texts: list[Any]) -> "Iterator[_ReadyCall]":
        """A finished call for each text; they end early if a text is not a string or too long."""
        if self.kernel is None:
            return
        try:
            call = self.ready.pop()
        except IndexError:
            call = _ReadyCall(self, _TEXT, _KEYS)
        try:
            for text in texts:
                encoded = text.encode()
                if len(encoded) > call.space:
                    if len(encoded) > FEW_BYTES:
                        return
                    call = _ReadyCall(self, 2 * len(encoded), call.most)
                call.run(encoded)
                if call.count > call.most:
                    call = _ReadyCall(self, call.space, 2 * call.count)
                    call.run(encoded)
                yield call
        except (AttributeError, UnicodeEncodeError):  # not a string, or a lone surrogate
            return
        finally:
            self.ready.append(call)


class _ReadyCall:
    """The arguments of a call, packed once: only the text changes."""

    def __init__(self, scorer: _Scorer, space: int, keys: int) -> None:
        weights, lowest, highest = scorer.weights, *scorer.rules.orders[:2]
        data = np.zeros(space + len(PADDING), np.uint8)
        self.space, self.most, self.z = space, keys, np.empty(len(weights.bias), np.float32)
        numbers = np.zeros(3, np.int64)
        self._numbers, self._text = numbers.data, data.data  # faster than arrays
        call = Call(
            numbers=numbers,
            data=data,
            batch=new_batch.py_func(highest - lowest + 1),
            keys=np.empty(keys, np.int64),
            rows=np.empty(keys, np.uint32),
            buckets=np.empty((len(weights.seeds) - 1, keys), np.uint32),
            h=np.empty((1, weights.E.shape[1]), np.float32),
            z=self.z,
        )
        assert scorer.kernel is not None
        self._run = scorer.kernel.run
        packed = scorer.kernel.pack((scorer.rules, weights, call))
        assert packed is not None
        self._packed: Packed = packed
        self._call = call  # keeps its arrays
        self.count = self.best = 0

    def run(self, text: bytes) -> None:
        """Score a text."""
        numbers = self._numbers
        self._text[: len(text)] = text
        numbers[SIZE] = len(text)
        self._run(self._packed)
        self.count, self.best = numbers[COUNT], numbers[BEST]
