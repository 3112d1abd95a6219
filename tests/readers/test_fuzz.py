"""Mutated data files: every reader reads them, or refuses them with a sentence; none crashes."""

import bz2
import gzip
import io
import json
import lzma
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases.files import write, zstd

from hashembed.readers import DataError, read, read_batches, read_text_batches, read_texts, streams

READERS = (read, read_batches, read_texts, read_text_batches)
TEXTS = ["Der Hund, ein Tier", 'sagt "wau"', "zwei\nZeilen", "", "snow ☃ 雪", "x" * 300, "a;b|c\td"]
TOKENS = [
    *(b'"', b",", b"\n", b"\r\n", b"\t", b"\0", b"\xff", b"\xfe", b"\xe9", b'""', b'",', b'\n"'),
    *(b"{", b"}", b"[", b"]", b":", b"null", b"1e999", b"9" * 40, b"-", b"\\u0000", b"\\ud800"),
    *(b"__label__", b"__label__ ", b"label", b"text", b"\\n", b"\xef\xbb\xbf", b"\xff\xfe\0\0"),
    *(b"\x1f\x8b", b"BZh9", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"PAR1", b"{" * 3000, b"[" * 3000),
    *(b'x","y\n' * 50, b"\n" * 500, b'{"a":' * 500, b" ", b"a,b,c,d,e,f,g\n", b"\x7f", b"\xc3\x28"),
]


def table(labels):
    return pa.table({"label": labels, "title": TEXTS[::-1], "text": TEXTS, "n": range(len(TEXTS))})


def parquet(labels, **how):
    file = io.BytesIO()
    pq.write_table(table(labels), file, **how)
    return file.getvalue()


def seeds():
    """(name, content) of sound files in every format and compression."""
    rows = [(["spam", "ham"][i % 2], text) for i, text in enumerate(TEXTS * 3)]
    quoted = "".join(f'{y},"{t.replace(chr(34), chr(34) * 2)}"\n' for y, t in rows)
    lines = "".join(json.dumps({"label": y, "text": t, "in": {"y": y}}) + "\n" for y, t in rows)
    listed = "".join(json.dumps({"label": [y, 1], "text": t}) + "\n" for y, t in rows)
    fasttext = "".join(f"__label__{y} __label__z {t.replace(chr(10), ' ')}\n" for y, t in rows)
    lists = [["a", "b"], [], ["c"], ["a"], ["b"], ["c"], ["a", "c"]]
    texts = {
        "a.csv": f"label,text\n{quoted}",
        "b.csv": quoted,
        "c.csv": f"v1,v2,,,\n{quoted}".replace("\n", "\r\n"),
        "a.tsv": quoted.replace(",", "\t"),
        "a.jsonl": lines,
        "b.jsonl": listed,
        "a.ft": fasttext,
        "a.txt": fasttext,
        "a": quoted.replace(",", ";"),
    }
    for name, text in texts.items():
        yield name, text.encode()
    yield "utf16.csv", texts["a.csv"].encode("utf-16")
    yield "latin.csv", texts["a.csv"].encode("latin-1", "replace").replace(b"Hund", b"H\xfcnd")
    for name, squeeze in [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)]:
        yield f"a.csv.{name}", squeeze(texts["a.csv"].encode())
    yield "a.jsonl.zst", zstd(lines.encode())
    yield "a.parquet", parquet([1, 2, 1, 2, 1, 2, 1])
    yield "b.parquet", parquet(lists, compression="zstd")
    yield "c.parquet", parquet(pa.array(list("abababc")).dictionary_encode(), compression="none")


def mutate(content, others, draw):
    """A few random changes, of the kinds that break parsers."""
    data = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 5, 20])):
        at = draw.randrange(len(data) + 1)
        end = min(len(data), at + draw.choice([1, 2, 8, 60]))
        match draw.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << draw.randrange(8)
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = draw.choice(TOKENS)
            case 3:
                data[at:at] = data[at:end] * draw.choice([1, 3, 200])
            case 4:
                data[at:end] = draw.randbytes(end - at)
            case 5:
                del data[at:]
            case 6:
                other = draw.choice(others)
                data[at:at] = other[: draw.randrange(len(other))]
    return bytes(data)


def options(draw):
    """Some of the options, at random."""
    chosen = {
        "format": draw.choice([None] * 6 + ["csv", "tsv", "jsonl", "fasttext", "parquet"]),
        "encoding": draw.choice([None] * 6 + ["utf-8", "utf-16", "latin-1", "shift_jis", "utf-7"]),
        "label": draw.choice([None] * 6 + ["label", 1, "in.y", 9]),
        "text": draw.choice([None] * 6 + ["text", 2, ["title", "text"], "nothing"]),
        "header": draw.choice([None] * 4 + [True, False]),
        "quotes": draw.choice([None] * 4 + [True, False]),
        "label_separator": draw.choice([None] * 4 + [",", "a", " "]),
        "label_prefix": draw.choice([None] * 9 + ["__", "{"]),
        "on_error": draw.choice(["skip", "skip", "stop"]),
    }
    return {name: value for name, value in chosen.items() if value is not None}


def check(batch):
    """Columns that are what they say they are."""
    batch.texts.validate(full=True)
    assert batch.texts.type == pa.large_string()
    if batch.labels is not None:
        batch.labels.validate(full=True)
        assert len(batch.labels) == len(batch.texts)
        assert batch.labels.null_count == batch.texts.null_count == 0
    assert str(batch.report)


def hostile(path, number, monkeypatch):
    """Reads mutated files, each by all readers -> (how many were read, how many refused)."""
    sound = list(seeds())
    contents = [content for _, content in sound]
    counts = {"read": 0, "refused": 0}
    for seed in range(number):
        draw = random.Random(seed)
        name, content = sound[seed % len(sound)]
        file = write(path / name, mutate(content, contents, draw))
        monkeypatch.setattr(streams, "BLOCK", draw.choice([1 << 23, 100, 7]))
        monkeypatch.setattr(streams, "LINES", draw.choice([1 << 16, 3]))
        monkeypatch.setattr(streams, "MAX_LINES", draw.choice([1 << 20, 10]))
        chosen = options(draw)
        for reader in READERS:
            batched = {"rows": 5} if reader in (read_batches, read_text_batches) else {}
            try:
                found = reader(file, **chosen, **batched)
                for batch in found if batched else [found]:
                    check(batch)
                counts["read"] += 1
            except DataError:
                counts["refused"] += 1
            except Exception as error:
                raise AssertionError(f"seed {seed}, {name}, {reader.__name__}, {chosen}") from error
    return counts


def test_mutated_files_are_read_or_refused(tmp_path, monkeypatch):
    counts = hostile(tmp_path, 376, monkeypatch)
    assert sum(counts.values()) == 4 * 376
    assert min(counts.values()) > 300  # neither all nor nothing


@pytest.mark.slow
def test_twenty_thousand_mutated_files_are_read_or_refused(tmp_path, monkeypatch):
    assert sum(hostile(tmp_path, 20_000, monkeypatch).values()) == 80_000
