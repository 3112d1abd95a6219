"""The seven sets of Zhang et al., from their CSV archives or from the Hugging Face hub.

A set is looked for in the folder of data sets as `NAME.tar.gz` (checked against the MD5 of the
archive) or as a folder `NAME` with train.csv and test.csv; without a folder it comes from the hub.
The number of rows is always checked.
"""

import hashlib
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.data.datasets import Part, joined, zhang_csv


@dataclass(frozen=True)
class Zhang:
    title: str
    archive: str  # the name of its archive and of the folder in it
    md5: str  # of the archive, "" if we do not know it
    rows: tuple[int, int]
    printed: int  # training rows in thousands, as printed in the paper's table 1
    classes: int
    hub: str = ""  # "" if we know of no copy on the hub
    columns: tuple[str, ...] = ("text",)  # of the hub's copy
    label: str = "label"


SETS = {
    "ag_news": Zhang(
        "AG's news",
        "ag_news_csv",
        "",
        (120_000, 7_600),
        120,
        4,
        "fancyzhx/ag_news",
    ),
    "dbpedia": Zhang(
        "DBPedia",
        "dbpedia_csv",
        "dca7b1ae12b1091090db52aa7ec5ca64",
        (560_000, 70_000),
        450,
        14,
        "fancyzhx/dbpedia_14",
        ("title", "content"),
    ),
    "yelp_polarity": Zhang(
        "Yelp polarity",
        "yelp_review_polarity_csv",
        "620c8ae4bd5a150b730f1ba9a7c6a4d3",
        (560_000, 38_000),
        560,
        2,
        "fancyzhx/yelp_polarity",
    ),
    "yelp_full": Zhang(
        "Yelp full",
        "yelp_review_full_csv",
        "f7ddfafed1033f68ec72b9267863af6c",
        (650_000, 50_000),
        560,
        5,
        "Yelp/yelp_review_full",
    ),
    "yahoo": Zhang(
        "Yahoo answers",
        "yahoo_answers_csv",
        "f3f9899b997a42beb24157e62e3eea8d",
        (1_400_000, 60_000),
        650,
        10,
        "community-datasets/yahoo_answers_topics",
        ("question_title", "question_content", "best_answer"),
        "topic",
    ),
    "amazon_full": Zhang(
        "Amazon full",
        "amazon_review_full_csv",
        "57d28bd5d930e772930baddf36641c7c",
        (3_000_000, 650_000),
        3000,
        5,
    ),
    "amazon_polarity": Zhang(
        "Amazon polarity",
        "amazon_review_polarity_csv",
        "fe39f8b653cada45afd5792e0f0e8f9b",
        (3_600_000, 400_000),
        3600,
        2,
        "fancyzhx/amazon_polarity",
        ("title", "content"),
    ),
}
PARTS = ("train", "test")
AG_FILES = {"train": "b1a00f826fdfbd249f79597b59e1dc12", "test": "d52ea96a97a2d943681189a97654912d"}


def load(name: str, data: Path | None) -> tuple[Part, Part]:
    """Train and test rows of one of the seven sets."""
    spec = SETS[name]
    parts = from_hub(spec) if data is None else from_files(spec, data)
    for part, found, expected in zip(PARTS, map(len, parts), spec.rows, strict=True):
        if found != expected:
            raise SystemExit(f"{name} has {expected:,} {part} rows, found {found:,}")
    return parts


def from_files(spec: Zhang, data: Path) -> tuple[Part, Part]:
    archive, folder = data / f"{spec.archive}.tar.gz", data / spec.archive
    if archive.exists():
        check(archive, spec.md5)
        with tempfile.TemporaryDirectory() as unpacked:
            with tarfile.open(archive) as tar:
                members = [f"{spec.archive}/{part}.csv" for part in PARTS]
                tar.extractall(unpacked, [tar.getmember(m) for m in members], filter="data")
            return read_folder(Path(unpacked) / spec.archive, spec)
    if folder.is_dir():
        return read_folder(folder, spec)
    raise SystemExit(f"found neither {archive} nor {folder}")


def read_folder(folder: Path, spec: Zhang) -> tuple[Part, Part]:
    if spec.archive == "ag_news_csv":
        for part, md5 in AG_FILES.items():
            check(folder / f"{part}.csv", md5)
    return zhang_csv(folder / "train.csv"), zhang_csv(folder / "test.csv")


def check(path: Path, md5: str) -> None:
    """Refuse a file with another checksum, if the right one is known."""
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "md5").hexdigest()
    if md5 and found != md5:
        raise SystemExit(f"{path} has the MD5 checksum {found}, expected {md5}: get it again")


def from_hub(spec: Zhang) -> tuple[Part, Part]:
    """Load from the hub, or from a folder in the format of the hub's copy."""
    if not spec.hub:
        raise SystemExit(
            f"{spec.title} is not on the hub in this form: name the folder that holds "
            f"{spec.archive}.tar.gz with --data"
        )
    try:
        from datasets import load_dataset
    except ImportError:
        raise SystemExit(
            'the hub needs one more package: pip install "hashembed[experiments]"'
        ) from None
    try:
        rows = [load_dataset(spec.hub, split=part).with_format("arrow") for part in PARTS]
    except OSError as error:  # no connection, no such set
        raise SystemExit(
            f"could not get {spec.hub} from the hub ({error}): name the folder that holds "
            f"{spec.archive}.tar.gz with --data, or try again"
        ) from None
    train, test = (_part(part[:], spec.columns, spec.label) for part in rows)
    return train, test


def _part(table, columns: Sequence[str], label: str) -> Part:
    return Part(joined([table[c] for c in columns]), table[label].to_numpy().astype(np.int64))
