"""Labels and texts of files in all formats, with quotes, escapes, broken rows and line ends."""

import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from hashembed.readers import read, read_fasttext, read_texts

CELLS = (
    "a",
    "good film",
    '"quoted, here"',
    '"two ""quotes"" in"',
    '"line\nend"',
    "wörter",
    "\\n",
    "x" * 70,
)
LINES = ("plain line", "with\ttab", "", "line with \r", "ünï", "y" * 200, "__label__b in it")


def rows(seed, delimiter, count=400):
    """Two columns of labels and texts."""
    draw = random.Random(seed)
    return [f"{draw.choice('+-0')}{delimiter}{draw.choice(CELLS)}" for _ in range(count)]


def cases():
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files(Path(folder)):
            yield name, [data.labels, data.texts] if hasattr(data, "labels") else data


def files(folder):
    def write(name, text):
        path = folder / name
        path.write_bytes(text.encode())
        return path

    for name, delimiter, end in (
        ("a.csv", ",", "\n"),
        ("b.csv", ";", "\r\n"),
        ("c.tsv", "\t", "\n"),
    ):
        text = end.join(["label" + delimiter + "text", *rows(0, delimiter)])
        yield name, read(write(name, text))
    text = "\n".join(f'"{i % 4 + 1}","title {i}","some \\n ""text"" {i}"' for i in range(300))
    yield "zhang.csv", read(write("zhang.csv", text), text=[2, 3], label=1)
    bad = "\n".join([*rows(1, ","), '+,"open', *rows(2, ","), '-,"after" x', "+,z"])
    yield "bad.csv", read(write("bad.csv", "label,text\n" + bad), on_error="skip")
    objects = "\n".join(f'{{"label": "{i % 3}", "text": "text {i} ö"}}' for i in range(300))
    yield "d.jsonl", read(write("d.jsonl", objects))
    table = pa.table({"label": ["+", "-"] * 50, "text": [f"text {i}" for i in range(100)]})
    pq.write_table(table, folder / "e.parquet")
    yield "e.parquet", read(folder / "e.parquet")
    draw = random.Random(3)
    labelled = [f"__label__{draw.choice('abc')} {draw.choice(LINES[:-1])}" for _ in range(300)]
    yield "f.txt", read(write("f.txt", "\n".join(labelled)), format="fasttext")
    yield "fast f.txt", read_fasttext(folder / "f.txt")
    several = [f"__label__x {line}" for line in labelled] + ["__label__y in __label__z between"]
    yield "g.txt", read(write("g.txt", "\n".join(several)), format="fasttext")
    lines = "\n".join(draw.choice(LINES) for _ in range(500))
    yield "h.txt", read_texts(write("h.txt", lines), format="lines")
