"""Tables in half precision."""

import numpy as np

from hashembed.core.half import to_half


def cases():
    bits = np.random.default_rng(0).integers(0, 2**32, 200_000, np.uint32)
    numbers = bits.view(np.float32)
    numbers = numbers[np.abs(numbers) < 60_000]
    for scale in (1.0, 1e-4, 1e-7):
        for width in (1, 2, 24):
            table = np.random.default_rng(1).standard_normal((9000, 32), np.float32)
            yield f"half {scale} {width}", to_half(table[:, :width] * np.float32(scale), 2)
    yield "half of any bits", to_half(numbers[:, None], 2)
    yield "too large", to_half(np.float32([[1e6]]), 1)
