"""Instructions that Numba does not offer; `core/intrinsic_code.py` has their code."""

from hashembed.core.njit import Intrinsic

AHEAD = 16  # how many iterations before its use a loop prefetches a row or a slot

_CODE = "hashembed.core.intrinsic_code"

prefetch = Intrinsic(_CODE, "prefetch")
atomic_add = Intrinsic(_CODE, "atomic_add")
atomic_load = Intrinsic(_CODE, "atomic_load")
yield_core = Intrinsic(_CODE, "yield_core")
sleep_briefly = Intrinsic(_CODE, "sleep_briefly")
bit_count = Intrinsic(_CODE, "bit_count")
trailing_zeros = Intrinsic(_CODE, "trailing_zeros")
leading_zeros = Intrinsic(_CODE, "leading_zeros")
bits_of = Intrinsic(_CODE, "bits_of")
float_of = Intrinsic(_CODE, "float_of")
sqrt32 = Intrinsic(_CODE, "sqrt32")
