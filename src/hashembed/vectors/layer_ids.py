"""Ids that the layers of torch turn into given keys.

A layer mixes each id into a key by a bijection (`id_keys` of `hashing/spec.py`). Keys of text are
hashes already, so the ids for them are found by the inverse.
"""

import numpy as np

from hashembed.core.arrays import I64
from hashembed.hashing.spec import ID_ROUNDS, fmix32, pack, unpack


def ids_of_keys(keys: I64) -> I64:
    """The ids whose keys these are: `id_keys(ids_of_keys(keys)) == keys`."""
    a, b = unpack(keys)
    with np.errstate(over="ignore"):  # intended
        b = b ^ fmix32(a + np.uint32(ID_ROUNDS[3]))
        a = a ^ fmix32(b + np.uint32(ID_ROUNDS[2]))
        b = b ^ fmix32(a + np.uint32(ID_ROUNDS[1]))
        a = a ^ fmix32(b + np.uint32(ID_ROUNDS[0]))
    return pack(a, b)
