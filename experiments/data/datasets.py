"""Labelled texts for the experiments, as Arrow columns and class numbers from 0."""

import csv
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from hashembed.hashing.spec import id_keys

HELD_OUT = 0.2  # of a set that comes without test rows


@dataclass
class Part:
    texts: Any  # a pyarrow.ChunkedArray of strings
    labels: np.ndarray  # (n,), from 0

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: np.ndarray) -> "Part":
        return Part(self.texts.take(pa.array(indices)), self.labels[indices])


@dataclass(eq=False)
class Dataset:
    name: str
    train: Part
    test: Part
    classes: int
    note: str = ""

    def checksum(self) -> str:
        """A checksum of texts and labels as they are used, to tell copies of a set apart."""
        digest = hashlib.md5(usedforsecurity=False)
        for part in (self.train, self.test):
            digest.update(part.labels.astype("<i8").tobytes())
            for chunk in part.texts.chunks:
                digest.update("\0".join(chunk.to_pylist()).encode())
        return digest.hexdigest()


# --- formats ----------------------------------------------------------------------------------


def zhang_csv(path: Path) -> Part:
    """The format of Zhang et al.: a class number from 1, one or more texts, no header."""
    with open(path, newline="", encoding="utf8") as file:
        columns = len(next(csv.reader(file)))
    names = [f"f{i}" for i in range(columns)]
    table = arrow_csv.read_csv(
        path,
        arrow_csv.ReadOptions(column_names=names, block_size=1 << 26),
        arrow_csv.ParseOptions(newlines_in_values=True),
        arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )
    labels = pc.utf8_trim_whitespace(table["f0"]).cast(pa.int64()).to_numpy() - 1
    return Part(joined([table[name] for name in names[1:]]), labels)


def joined(columns: Sequence[Any]) -> Any:
    """Join columns of texts; a newline written as \\n becomes a space."""
    texts = columns[0]
    if len(columns) > 1:
        texts = pc.binary_join_element_wise(
            *columns, " ", null_handling="replace", null_replacement=""
        )
    return pc.replace_substring(texts, "\\n", " ")


def labelled(texts: Sequence[str], labels: Sequence[str]) -> tuple[Part, list[str]]:
    """Number the classes in the order of their names -> rows, names."""
    names = sorted(set(labels))
    number = {name: i for i, name in enumerate(names)}
    numbers = np.array([number[label] for label in labels], np.int64)
    return Part(joined([pa.chunked_array([texts], pa.string())]), numbers), names


def split_off(part: Part) -> tuple[Part, Part]:
    """Split a set without test rows by the hash of the row number -> train, test."""
    chance = id_keys(np.arange(len(part))).view(np.uint64) / 2.0**64
    return part.take(np.flatnonzero(chance >= HELD_OUT)), part.take(
        np.flatnonzero(chance < HELD_OUT)
    )


def _json(path: Path) -> tuple[list[str], list[str]]:
    rows = json.loads(path.read_text(encoding="utf8"))
    return [row["sentence"] for row in rows], [row["label"] for row in rows]


def _tsv(path: Path) -> tuple[list[str], list[str]]:
    with open(path, newline="", encoding="utf8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [row["text"] for row in rows], [row["label"] for row in rows]


# --- the sets at hand -------------------------------------------------------------------------


def _two_files(folder: Path) -> tuple[Part, Part]:
    return zhang_csv(folder / "train.csv"), zhang_csv(folder / "test.csv")


def _without_second_column(folder: Path) -> tuple[Part, Part]:
    """Class number, finer class, text: the finer class must not be read as text."""
    parts = []
    for name in ("train.csv", "test.csv"):
        with open(folder / name, newline="", encoding="utf8") as file:
            rows = list(csv.reader(file))
        texts = joined([pa.chunked_array([[row[2] for row in rows]], pa.string())])
        parts.append(Part(texts, np.array([int(row[0]) - 1 for row in rows], np.int64)))
    return parts[0], parts[1]


def _named(
    read: Callable[[Path], tuple[list[str], list[str]]], train: str, test: str
) -> Callable[[Path], tuple[Part, Part]]:
    def load(folder: Path) -> tuple[Part, Part]:
        (texts, labels), (more, their) = read(folder / train), read(folder / test)
        part, _ = labelled([*texts, *more], [*labels, *their])
        return part.take(np.arange(len(texts))), part.take(np.arange(len(texts), len(part)))

    return load


def _one_file(
    read: Callable[[Path], tuple[list[str], list[str]]], name: str
) -> Callable[[Path], tuple[Part, Part]]:
    return lambda folder: split_off(labelled(*read(folder / name))[0])


def _rent_the_runway(folder: Path) -> tuple[Part, Part]:
    """Ratings of reviews, without rows that have no rating."""
    with open(folder / "rtr.csv", newline="", encoding="utf8") as file:
        rows = [row for row in csv.DictReader(file) if row["rating"].strip()]
    texts = [f"{row['review_summary']} {row['review_text']}" for row in rows]
    labels = [f"{float(row['rating']):04.0f}" for row in rows]
    return split_off(labelled(texts, labels)[0])


@dataclass(frozen=True)
class Source:
    folder: str
    load: Callable[[Path], tuple[Part, Part]]
    note: str = ""


SMALL = "a small part of the set"
SOURCES = {
    "imdb": Source("imdb", _two_files),
    "news_category": Source("news_category", _two_files),
    "emotions": Source("emotions", _two_files),
    "langid_commonvoice": Source("langid_commonvoice", _two_files),
    "20newsgroups": Source("20newsgroups", _two_files),
    "ag_news_partial": Source(
        "ag_news_partial", _two_files, "a third of the training rows, all test rows"
    ),
    "renttherunway": Source("renttherunway", _rent_the_runway, "our split"),
    "dbpedia219_small": Source(
        "zhang_small", _named(_tsv, "bolt_dbpedia219_train.tsv", "bolt_dbpedia219_test.tsv"), SMALL
    ),
    "yahoo_small": Source(
        "zhang_small", _named(_tsv, "bolt_yahoo_train.tsv", "bolt_yahoo_test.tsv"), SMALL
    ),
    "amazon_full_small": Source(
        "zhang_small", _named(_json, "olora_amazon_train.json", "olora_amazon_test.json"), SMALL
    ),
    "yelp_full_small": Source(
        "zhang_small", _one_file(_json, "olora_yelp_train.json"), SMALL + ", our split"
    ),
    "dbpedia_small": Source(
        "zhang_small", _one_file(_json, "olora_dbpedia_test.json"), SMALL + ", our split"
    ),
}
# Short texts for sentence models; not part of the tables.
SENTENCES = {
    "trec": Source("trec", _without_second_column),
    "sst2": Source("sst2", _two_files, "phrases and sentences; the test rows are sentences"),
}


def load(name: str, data: Path | None) -> Dataset:
    """Load a set of this module or one of the seven of `zhang.py` from the folder of data sets."""
    from experiments.data import zhang

    if name in zhang.SETS:
        train, test = zhang.load(name, data)
        note = ""
    elif source := {**SOURCES, **SENTENCES}.get(name):
        if data is None:
            raise SystemExit(f"name the folder that holds {name} with --data")
        folder = data / source.folder
        if not folder.is_dir():
            raise SystemExit(f"found no folder {folder} for the set {name}")
        (train, test), note = source.load(folder), source.note
    else:
        known = ", ".join([*SOURCES, *SENTENCES, *zhang.SETS])
        raise SystemExit(f"found no set {name!r}; there are: {known}")
    classes = int(max(train.labels.max(), test.labels.max())) + 1
    return Dataset(name, train, test, classes, note)
