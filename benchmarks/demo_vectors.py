"""Makes the word vectors that come with the package, for `hashembed demo --vectors`.

    python -m benchmarks.demo_vectors --data langid_commonvoice

The folder has sentences of Mozilla Common Voice, whose text is in the public domain (CC0):
train.csv and test.csv with the number of a class and a text in each row, classes.txt with the code
of a language in each line. Sentences of the 16 languages of the demonstration are used, without the
labels, and without those that the demonstration tests with.
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hashembed import WordVectors
from hashembed.cli import demo_vectors as demo
from hashembed.cli.demo_task import read_sentences

CODES = {
    "ca",
    "cs",
    "da",
    "de",
    "en",
    "eo",
    "es",
    "et",
    "fi",
    "fr",
    "it",
    "nl",
    "pl",
    "pt",
    "ro",
    "sk",
}
SETTINGS = {
    "embedding_dim": 48,
    "min_count": 5,
    "passes": 10,
    "subwords": (3, 4),
    "num_buckets": 8_000,
    "num_embeddings": 40_000,
}
BITS = 4


def sentences(folder: Path) -> Iterator[str]:
    names = (folder / "classes.txt").read_text(encoding="utf8").split()
    table = read_sentences().to_pylist()
    tested = {row["text"] for row in table if row["split"] == "test"}
    for split in ("train", "test"):
        with open(folder / f"{split}.csv", encoding="utf8", newline="") as file:
            for number, text in csv.reader(file):
                if names[int(number) - 1] in CODES and text not in tested:
                    yield text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the sentences")
    default = Path(demo.path_of_file())
    parser.add_argument("--output", type=Path, default=default, help=f"by default {default}")
    arguments = parser.parse_args()
    texts = list(sentences(arguments.data))
    order = np.random.default_rng(0).permutation(len(texts))  # the rows may be sorted by language
    vectors = WordVectors(**SETTINGS).fit([texts[place] for place in order])
    vectors.save(arguments.output, bits=BITS)
    saved = WordVectors.load(arguments.output)
    print(f"{len(texts):,} sentences, {arguments.output.stat().st_size:,} bytes, {saved}")
    print(demo.judge(saved, demo.load_sentences()))
    for word, found in demo.nearest_words(saved):
        print(word, [near.word for near in found])
    print(demo.ANALOGY, [near.word for near in saved.analogy(*demo.ANALOGY)][:5])


if __name__ == "__main__":
    main()
