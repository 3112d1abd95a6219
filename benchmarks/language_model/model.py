"""A small decoder-only transformer whose output is tied to its embedding table."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.language_model.ngrams import MISSING, ngram_ids
from hashembed import HashEmbeddingBag


class LanguageModel(nn.Module):
    """Tokens (windows, length) -> hidden states, which score words by their vectors.

    Args:
        table: module from word ids to vectors (..., d).
        vocabulary: V, the number of words.
        dim, layers, heads, length: of the transformer.
        dropout: of the input and of each residual branch.
        scale: factor of the vectors at the input. The output has none.
        output: another table for the output. None (default) ties it to the input.
        ngrams: module from ids of n-grams (N, n) to the sums of their vectors, added to the input.
        longest: of the n-grams.
    """

    def __init__(
        self,
        table: nn.Module,
        vocabulary: int,
        dim: int,
        *,
        layers: int,
        heads: int,
        length: int,
        dropout: float,
        scale: float = 1.0,
        output: nn.Module | None = None,
        ngrams: HashEmbeddingBag | None = None,
        longest: int = 1,
    ) -> None:
        super().__init__()
        self.table, self.output, self.ngrams = table, output, ngrams
        self.scale, self.longest, self.vocabulary = scale, longest, vocabulary
        self.positions = nn.Parameter(0.02 * torch.randn(length, dim))
        self.dropout = nn.Dropout(dropout)
        depth = (2 * layers) ** -0.5  # as many branches are added up
        self.blocks = nn.Sequential(*(Block(dim, heads, dropout, depth) for _ in range(layers)))
        self.norm = nn.LayerNorm(dim)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.register_buffer("words", torch.arange(vocabulary))

    def forward(self, tokens: Tensor) -> Tensor:
        """Hidden states (windows, length, d); that of position t knows the tokens up to t."""
        x = self.scale * self.table(tokens) + self.positions[: tokens.shape[1]]  # (W, T, d)
        if self.ngrams is not None:
            ids = ngram_ids(tokens, self.longest, self.vocabulary)  # (W, T, n)
            x = x + self.ngrams(ids.flatten(0, 1)).view_as(x)
        return self.norm(self.blocks(self.dropout(x)))

    def vectors(self) -> Tensor:
        """The vectors of all words (V, d), against which the output is scored."""
        return (self.output or self.table)(self.words)


class Block(nn.Module):
    """Causal attention and a feed-forward network, each after a normalisation."""

    def __init__(self, dim: int, heads: int, dropout: float, depth: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.mix = nn.Linear(dim, dim, bias=False)
        self.widen = nn.Linear(dim, 4 * dim)
        self.narrow = nn.Linear(4 * dim, dim)
        self.dropout = nn.Dropout(dropout)
        for layer, factor in (
            (self.qkv, 1),
            (self.mix, depth),
            (self.widen, 1),
            (self.narrow, depth),
        ):
            nn.init.normal_(layer.weight, std=factor * 0.02 * (256 / dim) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        W, T, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(W, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (W, heads, T, d/heads)
        x = x + self.dropout(self.mix(attended.transpose(1, 2).reshape(W, T, d)))
        return x + self.dropout(self.narrow(F.gelu(self.widen(self.norm2(x)))))


def ngram_layer(dim: int, rows: int, buckets: int) -> HashEmbeddingBag:
    """Sums of the vectors of n-grams, of which there may be any number."""
    return HashEmbeddingBag(rows, dim, num_buckets=buckets, padding_idx=MISSING)
