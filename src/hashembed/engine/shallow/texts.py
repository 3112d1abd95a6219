"""Scores a few texts with a linear model: one native call for each text and member."""

from collections.abc import Sequence
from typing import Any
from weakref import ref

import numpy as np

from hashembed.core.arrays import F32, I64
from hashembed.core.native.call import NativeKernel, Packed
from hashembed.engine.linear import linear
from hashembed.engine.protocol import Engine
from hashembed.engine.shallow.listed import ListedModel
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
    call = scorer.take_call()
    try:
        for row, text in zip(z, texts, strict=True):
            call = scorer.score(call, text)
            row[:] = call.z
            counts.append(call.count)
    except _UnsuitableError:
        return None
    finally:
        scorer.ready.append(call)
    return z, np.array(counts, np.int64)


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
    call, found = scorer.take_call(), []
    try:
        for text in texts:
            call = scorer.score(call, text)
            if not call.count:
                return None
            found.append(call.best)
    except _UnsuitableError:
        return None
    finally:
        scorer.ready.append(call)
    return found


def _scorer_of(model: Engine, config: TextConfig) -> "_Scorer | None":
    scorer = getattr(model, "text_scorer", None)
    if not isinstance(scorer, _Scorer) or not scorer.suits(config):
        shallow = linear(model)
        if shallow is None:
            return None
        scorer = shallow.text_scorer = _Scorer(shallow.parts, config)
    return scorer if scorer.can else None


class _UnsuitableError(ValueError):
    """A text is not a string that UTF-8 can encode, or too long."""


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

    def take_call(self) -> "_ReadyCall":
        """One that is not in use; give it back to `ready`."""
        try:
            return self.ready.pop()
        except IndexError:
            return _ReadyCall(self, _TEXT, _KEYS)

    def score(self, call: "_ReadyCall", text: Any) -> "_ReadyCall":
        """Score a text -> the call, or another one if that has too little space.

        A short text takes a microsecond, and every function in between a tenth of one.
        """
        try:
            encoded = text.encode()
        except (AttributeError, UnicodeEncodeError):
            raise _UnsuitableError from None
        if len(encoded) > call.space:
            if len(encoded) > FEW_BYTES:
                raise _UnsuitableError
            call = _ReadyCall(self, 2 * len(encoded), call.most)
        call.run(encoded)
        if call.count > call.most:
            call = _ReadyCall(self, call.space, 2 * call.count)
            call.run(encoded)
        return call


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
            places=np.empty(keys, np.int64),
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
    tables, spec = part.memory, part.table_spec
    nothing = np.empty(0, np.uint32)
    rows, blocks = part.listed if isinstance(part, ListedModel) else (nothing, nothing)
    return Weights(
        *(tables.E, tables.records, tables.W, tables.bias, tables.seeds),
        num_rows=spec.num_embeddings,
        num_buckets=spec.num_buckets,
        importance=part.importance,
        indexing=indexing_code(spec),
        listed=rows,
        blocks=blocks,
        all_buckets=part.spec.num_buckets,
    )


def _packed(kernel: NativeKernel, arguments: tuple[Any, ...]) -> Packed:
    packed = kernel.pack(arguments)
    assert packed is not None
    return packed
