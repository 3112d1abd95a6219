"""A small transformer language model whose token table, tied to the output, is a hash layer.

    python examples/language_model.py --data FOLDER [--share 0.25] [--pairs 200000]

FOLDER has train.txt and validation.txt, words separated by spaces, such as wikitext-2. Without
--data the folder is the environment variable HASHEMBED_DATA.
"""

import argparse
import math
import os
from collections import Counter
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hashembed import HashEmbedding


class LanguageModel(nn.Module):
    """Tokens (batch, length) -> scores of the next words (batch, length, V)."""

    def __init__(self, words: int, dim: int, layers: int, length: int, share: float, pairs: int):
        super().__init__()
        hashes = 4
        buckets = (round(share * words * dim) - words * hashes) // dim
        if buckets < hashes:
            least = hashes / dim + hashes / words
            raise SystemExit(f"--share {share} leaves too little for E: give at least {least:.4f}")
        self.table = HashEmbedding(
            words,
            dim,
            num_buckets=buckets,
            num_hashes=hashes,
            indexing="identity",
            init="transformer",
        )
        # Pairs of words keep the default start: vectors near zero, until a pair proves useful.
        self.pairs = HashEmbedding(pairs, dim, padding_idx=0) if pairs else None
        self.positions = nn.Parameter(0.02 * torch.randn(length, dim))
        layer = nn.TransformerEncoderLayer(
            dim, 4, 4 * dim, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, layers, nn.LayerNorm(dim), False)
        self.bias = nn.Parameter(torch.zeros(words))
        self.register_buffer("ids", torch.arange(words))

    def forward(self, tokens: Tensor) -> Tensor:
        """The scores of position t depend on the tokens up to t only."""
        x = self.table(tokens) + self.positions[: tokens.shape[1]]
        if self.pairs is not None:
            x = x + self.pairs(pair_ids(tokens, len(self.ids)))
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], tokens.device)
        hidden = self.blocks(x, mask, is_causal=True)
        return self.table.logits(hidden, self.ids) + self.bias  # the tied output


def pair_ids(tokens: Tensor, words: int) -> Tensor:
    """An id for the pair that ends at each position; 0 where there is none, at the beginning."""
    pairs = torch.zeros_like(tokens)
    pairs[:, 1:] = (tokens[:, :-1] + 1) * (words + 1) + tokens[:, 1:] + 1
    return pairs


def read(path: Path, limit: int) -> list[str]:
    """Words, with a token at the end of each line that is not empty."""
    if not path.is_file():
        raise SystemExit(f"{path} is missing: --data names a folder with train.txt, validation.txt")
    lines = path.read_text(encoding="utf8").splitlines()
    words = [word for line in lines if line.strip() for word in (*line.split(), "<eos>")]
    return words[:limit]


def windows(ids: Tensor, length: int, batch: int, shuffled: bool):
    """Tokens and the tokens after them, each (batch, length)."""
    starts = torch.arange(0, len(ids) - length, length)
    if shuffled:
        starts = starts[torch.randperm(len(starts))]
    for some in starts.split(batch):
        window = ids[some[:, None] + torch.arange(length + 1)]
        yield window[:, :-1], window[:, 1:]


@torch.no_grad()
def perplexity(model: nn.Module, ids: Tensor, length: int, batch: int, device: str) -> float:
    """exp of the mean loss of a token, without dropout."""
    model.eval()
    total = count = 0
    for tokens, targets in windows(ids, length, batch, shuffled=False):
        scores = model(tokens.to(device)).flatten(0, 1)
        total += float(F.cross_entropy(scores, targets.flatten().to(device), reduction="sum"))
        count += targets.numel()
    return math.exp(total / count)


def arguments() -> argparse.Namespace:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("HASHEMBED_DATA"))
    parser.add_argument("--share", type=float, default=0.25, help="of a full table's parameters")
    parser.add_argument("--pairs", type=int, default=0, help="rows of weights for pairs of words")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--length", type=int, default=64, help="of a window")
    parser.add_argument("--batch", type=int, default=16, help="windows")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=10**9, help="use the first so many")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data is needed, or the environment variable HASHEMBED_DATA")
    return options


def main() -> None:
    """Read, train, print the validation perplexity of each epoch."""
    options = arguments()
    torch.manual_seed(options.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    texts = [read(options.data / f"{s}.txt", options.tokens) for s in ("train", "validation")]
    words = [word for word, _ in Counter([*texts[0], "<unk>"]).most_common()]
    rank = {word: i for i, word in enumerate(words)}
    train, held_out = (torch.tensor([rank.get(w, rank["<unk>"]) for w in t]) for t in texts)

    model = LanguageModel(
        len(words), options.dim, options.layers, options.length, options.share, options.pairs
    ).to(device)
    mine = sum(p.numel() for p in model.table.parameters())
    print(
        f"{len(words):,} words; table: {mine:,} parameters instead of {len(words) * options.dim:,}"
    )
    optimizer = torch.optim.AdamW(model.parameters(), options.rate, weight_decay=0.0)
    steps = options.epochs * -(-len(train) // (options.length * options.batch))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.rate, steps, pct_start=0.05)
    for epoch in range(1, options.epochs + 1):
        model.train()
        for tokens, targets in windows(train, options.length, options.batch, shuffled=True):
            scores = model(tokens.to(device)).flatten(0, 1)
            loss = F.cross_entropy(scores, targets.flatten().to(device))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        found = perplexity(model, held_out, options.length, options.batch, device)
        print(f"epoch {epoch}: validation perplexity {found:.1f}", flush=True)


if __name__ == "__main__":
    main()
