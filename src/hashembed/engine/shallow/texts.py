"""Scores a few texts with a shallow model, each in one native call."""

from typing import Any

import numpy as np

from hashembed.core.arrays import F32, I64
from hashembed.core.native.call import Packed
from hashembed.engine.shallow.model import ShallowModel
from hashembed.engine.shallow.text_kernel import COUNT, SIZE, Call, Weights, score_text
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
    scorer = model.text_scorer
    if not isinstance(scorer, _Scorer) or not scorer.suits(model, config):
        scorer = model.text_scorer = _Scorer(model, config)
    return scorer.scores(texts)


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
        self.calls: list[_ReadyCall] = []  # not in use: each thread takes one

    def suits(self, model: ShallowModel, config: TextConfig) -> bool:
        """Whether neither the tables nor the configuration have been replaced."""
        return self.memory is model.memory and (self.config is config or self.config == config)

    def scores(self, texts: list[Any]) -> tuple[F32, I64] | None:
        if self.kernel is None:
            return None
        try:
            encoded = [text.encode() for text in texts]
        except (AttributeError, UnicodeEncodeError):  # not strings, or a lone surrogate
            return None
        z = np.empty((len(texts), len(self.weights.bias)), np.float32)
        counts = np.empty(len(texts), np.int64)
        try:
            call = self.calls.pop()
        except IndexError:
            call = _ReadyCall(self, _TEXT, _KEYS)
        for i, text in enumerate(encoded):
            if len(text) > call.space:
                if len(text) > FEW_BYTES:
                    return None
                call = _ReadyCall(self, 2 * len(text), len(call.call.keys))
            if (count := call.run(text)) > len(call.call.keys):
                call = _ReadyCall(self, call.space, 2 * count)
                call.run(text)
            z[i], counts[i] = call.z, count
        self.calls.append(call)
        return z, counts


class _ReadyCall:
    """The arguments of a call, packed once: only the text changes."""

    def __init__(self, scorer: _Scorer, space: int, keys: int) -> None:
        weights, lowest, highest = scorer.weights, *scorer.rules.orders[:2]
        data = np.zeros(space + len(PADDING), np.uint8)
        self.space, self.z = space, np.empty(len(weights.bias), np.float32)
        self.numbers, self.text = np.zeros(2, np.int64), data.data
        self.call = Call(
            numbers=self.numbers,
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
        packed = scorer.kernel.pack((scorer.rules, weights, self.call))
        assert packed is not None
        self._packed: Packed = packed

    def run(self, text: bytes) -> int:
        """Score a text -> the number of its n-grams."""
        self.text[: len(text)] = text
        self.numbers[SIZE] = len(text)
        self._run(self._packed)
        return int(self.numbers[COUNT])
