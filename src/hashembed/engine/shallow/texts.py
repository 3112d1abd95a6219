"""Scores a few texts with a linear model: one native call for each text and member."""

from collections.abc import Iterator, Sequence
from typing import Any
from weakref import ref

import numpy as np

from hashembed.core.arrays import F32, I64
from hashembed.core.native.call import NativeKernel, Packed
from hashembed.engine.linear import linear
from hashembed.engine.protocol import Engine
from hashembed.engine.shallow.model import ShallowModel
from hashembed.engine.shallow.text_kernel import (
    BEST,
    COUNT,
    SIZE,
    Call,
    Weights,
    score_keys,
    score_text,
)
from hashembed.hashing.locate import indexing_code
from hashembed.text.config import TextConfig
from hashembed.text.few_texts import FEW, FEW_BYTES, PADDING
from hashembed.text.key_kernels import new_batch
from hashembed.text.pipeline import kernel_rules

_TEXT, _KEYS = 2048, 1024  # bytes and n-grams that there is space for at first


def score_texts(model: Engine, config: TextConfig, texts: Any) -> tuple[F32, I64] | None:
    """Logits (texts, classes) and numbers of n-grams of a list of a few strings.

    None if it is something else, or if there is no compiled kernel for it or for the model.
    """
    if type(texts) is not list or len(texts) > FEW:
        return None
    scorer = _scorer_of(model, config)
    if scorer is None:
        return None
    z, counts = np.empty((len(texts), scorer.classes), np.float32), []
    for row, call in zip(z, scorer.calls_of(texts), strict=False):
        row[:] = call.z
        counts.append(call.count)
    return (z, np.array(counts, np.int64)) if len(counts) == len(texts) else None


def classes_of(model: Engine, config: TextConfig, texts: Any) -> list[int] | None:
    """The class with the largest logit of each text of a list of a few strings.

    None if it is something else, if a text has no word, or if there is no compiled kernel for it or
    for the model.
    """
    if type(texts) is not list or len(texts) > FEW:
        return None
    scorer = _scorer_of(model, config)
    if scorer is None:
        return None
    found = [call.best for call in scorer.calls_of(texts) if call.count]
    return found if len(found) == len(texts) else None


def _scorer_of(model: Engine, config: TextConfig) -> "_Scorer | None":
    scorer = getattr(model, "text_scorer", None)
    if isinstance(scorer, _Scorer) and scorer.suits(config):
        return scorer
    shallow = linear(model)
    if shallow is None:
        return None
    scorer = shallow.text_scorer = _Scorer(shallow.parts, config)
    return scorer


class _Scorer:
    def __init__(self, parts: Sequence[ShallowModel], config: TextConfig) -> None:
        self.known = [(ref(part), part.memory) for part in parts]  # a model holds its scorer
        self.config, self.rules = config, kernel_rules(config)
        self.classes = len(parts[0].memory.bias)
        self.kernels = score_text.native, score_keys.native
        self.weights = [_weights(part) for part in parts]
        same = all(len(tables.bias) == self.classes for _, tables in self.known)
        hashed = all(part.spec.indexing != "identity" for part in parts)
        self.can = None not in self.kernels and same and hashed
        self.ready: list[_ReadyCall] = []  # not in use: each thread takes one

    def suits(self, config: TextConfig) -> bool:
        """Whether neither the tables nor the configuration have been replaced."""
        for part, tables in self.known:
            own = part()
            if own is None or own.memory is not tables:
                return False
        return self.config is config or self.config == config

    def calls_of(self, texts: list[Any]) -> "Iterator[_ReadyCall]":
        """A finished call for each text; they end early if a text is not a string or too long."""
        if not self.can:
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
        weights, (lowest, highest) = scorer.weights, scorer.rules.orders[:2]
        data = np.zeros(space + len(PADDING), np.uint8)
        self.space, self.most, self.z = space, keys, np.empty(scorer.classes, np.float32)
        numbers = np.zeros(3, np.int64)
        self._numbers, self._text = numbers.data, data.data  # faster than arrays
        call = Call(
            numbers=numbers,
            data=data,
            batch=new_batch.py_func(highest - lowest + 1),
            keys=np.empty(keys, np.int64),
            rows=np.empty(keys, np.uint32),
            buckets=np.empty((max(len(own.seeds) for own in weights) - 1, keys), np.uint32),
            h=np.empty((1, max(own.E.shape[1] for own in weights)), np.float32),
            z=self.z,
            sums=np.empty(scorer.classes),
        )
        first, other = scorer.kernels
        assert first is not None
        assert other is not None
        self._run, self._run_other = first.run, other.run
        self._packed = _packed(first, (scorer.rules, weights[0], call))
        self._others = [
            _packed(other, (own, call, number, len(weights)))
            for number, own in enumerate(weights[1:], 1)
        ]
        self._call = call  # keeps its arrays
        self.count = self.best = 0

    def run(self, text: bytes) -> None:
        """Score a text."""
        numbers = self._numbers
        self._text[: len(text)] = text
        numbers[SIZE] = len(text)
        self._run(self._packed)
        self.count = numbers[COUNT]
        if self._others and self.count <= self.most:
            for packed in self._others:
                self._run_other(packed)
        self.best = numbers[BEST]


def _weights(part: ShallowModel) -> Weights:
    tables, spec = part.memory, part.spec
    return Weights(
        *(tables.E, tables.records, tables.W, tables.bias, tables.seeds),
        num_rows=spec.num_embeddings,
        num_buckets=spec.num_buckets,
        importance=part.importance,
        indexing=indexing_code(spec),
    )


def _packed(kernel: NativeKernel, arguments: tuple[Any, ...]) -> Packed:
    packed = kernel.pack(arguments)
    assert packed is not None
    return packed
