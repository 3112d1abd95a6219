"""`text_keys`, which other kernels call for one text at a time, gives what `text_to_bags` does."""

from dataclasses import replace

import numpy as np
import pytest
from tests.cases.same_bits.text import CONFIGS, awkward

from hashembed.core.njit import njit
from hashembed.text.few_texts import PADDING
from hashembed.text.key_kernels import new_batch, text_keys
from hashembed.text.pipeline import kernel_rules, text_to_bags


@njit
def keys_of_each(data, ends, rules, sizes, keys):
    """All texts with one batch; text i, with what follows it, is data[i]."""
    batch = new_batch(rules.orders[1] - rules.orders[0] + 1)
    for i in range(len(ends)):
        sizes[i] = text_keys(data[i], ends[i], rules, batch, keys[i])


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("padding", [b"", PADDING, b"\xc3word"])
@pytest.mark.parametrize("length", [1, 20, 1 << 14])
def test_one_text_at_a_time(config, padding, length):
    """`length`: of the buffer for keys; one that is too small stays as it is."""
    texts = [*awkward(6, 40), " ".join(awkward(7, 60)), ""]
    data = tuple(np.frombuffer(text.encode() + padding, np.uint8) for text in texts)
    ends = np.array([len(text.encode()) for text in texts])
    bags, every = text_to_bags(texts, config), text_to_bags(texts, replace(config, repeats="all"))
    sizes, keys = np.empty(len(texts), np.int64), np.full((len(texts), length), -1)
    keys_of_each(data, ends, kernel_rules(config), sizes, keys)
    for i in range(len(texts)):
        space = len(every[i])  # for the repeats, too
        if space <= length:
            assert sizes[i] == len(bags[i])
            assert np.array_equal(keys[i, : len(bags[i])], bags[i])
            assert (keys[i, space:] == -1).all()
        else:
            assert sizes[i] == space
            assert (keys[i] == -1).all()
