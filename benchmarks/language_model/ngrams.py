"""Ids of the n-grams that end at each position.

The tokens of an n-gram are the digits of its id, in a system with V + 1 digits; 0 is no token. So
different n-grams have different ids. With V = 33,000 four digits fit into an int64.
"""

import torch
from torch import Tensor

MISSING = 0  # the id of an n-gram that would begin before the window


def ngram_ids(tokens: Tensor, longest: int, vocabulary: int) -> Tensor:
    """(windows, length) tokens -> (windows, length, longest - 1) ids of 2- to `longest`-grams.

    The n-gram of position t consists of the tokens t - n + 1 .. t, never of a later one.
    """
    base = vocabulary + 1
    if base**longest >= 2**63:
        raise ValueError(f"{longest}-grams of {vocabulary:,} words do not fit into 64 bits")
    ids = digits = tokens + 1
    place, found = 1, []
    for n in range(2, longest + 1):
        place *= base
        earlier = torch.zeros_like(digits)  # the token n - 1 places before
        earlier[:, n - 1 :] = digits[:, : -(n - 1)]
        ids = ids + place * earlier
        found.append(torch.where(earlier > 0, ids, MISSING))
    return torch.stack(found, -1)
