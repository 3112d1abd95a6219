"""Settings of word vectors, several seeds each, on a CUDA GPU: what the defaults were chosen by.

python -m benchmarks.bench_vectors_settings --data FOLDER      -> results/vectors_settings.csv

FOLDER has enwik8/enwik8 and wordsim/. The sets that judge are the ones that chose: there are no
others. Differences below 0.6 points of `large`, or 1.5 points of `mean`, between single seeds are
noise.
"""

import argparse
import time
from pathlib import Path

from benchmarks.machine import RESULTS, table
from benchmarks.word_vectors.judging import judge, sets_of
from benchmarks.word_vectors.plain_text import make_plain
from hashembed.core.threads import cpu_count
from hashembed.vectors.corpus import encode_corpus
from hashembed.vectors.devices import trainer_on
from hashembed.vectors.model import VectorModel
from hashembed.vectors.settings import RECIPE, VectorSettings
from hashembed.vectors.training import new_tables, new_vocabulary

SEEDS = range(4)
RECIPES = set(RECIPE._fields)
# name -> settings, and parts of the recipe
STUDY = {
    "default": {},
    "negatives weigh 5": {"negative_weight": 5.0},
    "negatives weigh 20": {"negative_weight": 20.0},
    "power 0.75": {"power": 0.75},
    "power 0.75, negatives weigh 5": {"power": 0.75, "negative_weight": 5.0},
    "power 0.25": {"power": 0.25},
    "decay 0.997": {"decay": 0.997},
    "decay 0.97": {"decay": 0.97},
    "rate 0.01": {"learning_rate": 0.01},
    "rate 0.025": {"learning_rate": 0.025},
    "P hardly trained": {"importance_rate": 0.0001},
    "one hash function": {"num_hashes": 1},
    "three hash functions": {"num_hashes": 3},
    "subwords 2-6": {"subwords": (2, 6)},
    "subwords 3-5": {"subwords": (3, 5)},
    "no subwords": {"subwords": None},
    "batch 1,024": {"batch_size": 1024},
    "batch 4,096": {"batch_size": 4096},
    "window 8": {"window": 8},
    "d 200": {"embedding_dim": 200},
    "B 400k, K 1M": {"num_buckets": 400_000, "num_embeddings": 1_000_000},
    "B 110k": {"num_buckets": 110_000},
    "B 60k, K 250k": {"num_buckets": 60_000, "num_embeddings": 250_000},
    "B 42k, K 250k, d 60": {"num_buckets": 42_000, "num_embeddings": 250_000, "embedding_dim": 60},
    "cbow": {"model": "cbow"},
    "1 pass": {"passes": 1},
    "2 passes": {"passes": 2},
    "3 passes": {"passes": 3},
    "10 passes": {"passes": 10},
}


def run(corpus, changes: dict, seed: int, device: str):
    """-> the model and the seconds of its training."""
    recipe = RECIPE._replace(**{k: v for k, v in changes.items() if k in RECIPES})
    settings = VectorSettings(**{k: v for k, v in changes.items() if k not in RECIPES}, seed=seed)
    vocabulary, spec = new_vocabulary(corpus, settings, recipe.power)
    words, threads = len(corpus.dictionary), cpu_count()
    tables = new_tables(spec, settings.embedding_dim, words, seed, threads)
    make = trainer_on(device)
    trainer = make(corpus, settings, vocabulary, tables, spec, threads, recipe=recipe)
    start = time.perf_counter()
    trainer.train(None)
    return VectorModel.trained(settings, corpus.dictionary, spec, tables), (
        time.perf_counter() - start
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--text", type=Path, help="plain text; by default made from enwik8")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    text = args.text or make_plain(args.data / "enwik8/enwik8", args.data / "enwik8/plain.txt")
    base, sets = VectorSettings(), sets_of(args.data)
    texts = text.read_text(encoding="utf8").splitlines()
    corpus = encode_corpus(texts, base.words, base.min_count, base.max_words, None)
    columns = ["settings", "seed", "numbers", "seconds", "mean", "large", *sets]
    with table(args.out / "vectors_settings.csv", columns) as add:
        for seed in SEEDS:
            for name, changes in STUDY.items():
                model, seconds = run(corpus, changes, seed, args.device)
                found = {k: round(v, 2) for k, v in judge(model.embed, sets).items()}
                numbers = len(model.E) * model.settings.embedding_dim + model.P.size
                row = {"settings": name, "seed": seed, "numbers": numbers, **found}
                add({**row, "seconds": round(seconds, 2)})
                print(seed, name, found["mean"], found["large"], flush=True)


if __name__ == "__main__":
    main()
