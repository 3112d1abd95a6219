"""Triton kernels of the plan: the draws of negatives, and where they meet output words."""

import triton
import triton.language as tl

SPREAD = tl.constexpr(0x9E3779B97F4A7C15)
MIX_1 = tl.constexpr(0xBF58476D1CE4E5B9)
MIX_2 = tl.constexpr(0x94D049BB133111EB)
LOW = tl.constexpr(0xFFFFFFFF)
STRIDE = tl.constexpr(1 << 20)  # random numbers that a batch may draw


@triton.jit
def random_bits(seed, counter):
    """64 random bits: SplitMix64 at place `counter` of the stream `seed`, both int64."""
    x = seed.to(tl.uint64) + (counter + 1).to(tl.uint64) * tl.full([1], SPREAD, tl.uint64)
    x = (x ^ (x >> 30)) * tl.full([1], MIX_1, tl.uint64)
    x = (x ^ (x >> 27)) * tl.full([1], MIX_2, tl.uint64)
    return x ^ (x >> 31)


@triton.jit
def draw_negatives(
    group_batches, group_starts, numbers, seeds, limits, aliases, negatives, V,
    NEGATIVES: tl.constexpr,
):  # fmt: skip
    """The negatives of one group of a chunk, by the alias method."""
    g = tl.program_id(0).to(tl.int64)
    b = tl.load(group_batches + g)
    j = tl.arange(0, NEGATIVES)
    x = (g - tl.load(group_starts + b)) * NEGATIVES + j
    bits = random_bits(tl.load(seeds + b), tl.load(numbers + b) * STRIDE + x)
    v = ((bits >> 32) * tl.cast(V, tl.uint64) >> 32).to(tl.int64)
    low = (bits & LOW).to(tl.int64)
    drawn = tl.where(low <= tl.load(limits + v), v.to(tl.int32), tl.load(aliases + v))
    tl.store(negatives + g * NEGATIVES + j, drawn)


@triton.jit
def find_hits(
    group_batches, group_starts, example_starts, pair_begins, pair_words, negatives, hits,
    GROUP: tl.constexpr, NEGATIVES: tl.constexpr,
):  # fmt: skip
    """hits[q], bit j: negative j of the group is an output word of example q."""
    g = tl.program_id(0).to(tl.int64)
    b = tl.load(group_batches + g)
    q = tl.load(example_starts + b) + (g - tl.load(group_starts + b)) * GROUP
    q += tl.arange(0, GROUP)
    live = q < tl.load(example_starts + b + 1)
    begin = tl.load(pair_begins + q, mask=live, other=0)
    count = tl.load(pair_begins + q + 1, mask=live, other=0) - begin
    j = tl.arange(0, NEGATIVES)
    negative = tl.load(negatives + g * NEGATIVES + j)
    found = tl.zeros([GROUP, NEGATIVES], tl.int64)
    for s in range(tl.max(count, axis=0)):
        word = tl.load(pair_words + begin + s, mask=s < count, other=-1)
        found |= (word[:, None] == negative[None, :]).to(tl.int64)
    bit = tl.full([1], 1, tl.int64) << j.to(tl.int64)
    tl.store(hits + q, tl.sum(found * bit[None, :], axis=1), mask=live)
