"""Every format, recognised and read."""

import bz2
import csv
import gzip
import json
import lzma
import os
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases.files import pairs, write, zstd

from hashembed.classify.classifier import TextClassifier
from hashembed.readers import DataError, read, read_batches, read_text_batches, read_texts, streams

TEXTS = ["Der Hund, ein Tier", 'sagt "wau"', "zwei\nZeilen", "", "snow ☃ 雪"]
LABELS = ["dog", "dog", "cat", "cat", "ß"]


def write_csv(path, rows, **how):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, **how).writerows(rows)
    return path


def test_csv_with_a_header(tmp_path):
    path = write_csv(
        tmp_path / "a.csv",
        [
            ["id", "Text", "Label"],
            *([i, t, y] for i, (t, y) in enumerate(zip(TEXTS, LABELS, strict=True))),
        ],
    )
    data = read(path)
    assert pairs(data) == list(zip(LABELS, TEXTS, strict=True))
    assert data.labels.type == pa.dictionary(pa.int32(), pa.string())
    assert data.texts.type == pa.large_string()
    assert str(data.report) == (
        "read 5 rows from 1 file (CSV), label = column 'Label', text = column 'Text', with a header"
    )
    assert json.loads(json.dumps(data.report.to_dict()))["rows"] == 5


def test_csv_of_zhang_et_al(tmp_path):
    """Class, title, text; no header; quotes doubled; line ends as a backslash and an n."""
    path = write(
        tmp_path / "train.csv",
        '"3","Wall St. ""Bears"", Claw","line one\\nline two"\n"4","","C:\\temp\\\\n"\n',
    )
    data = read(path)
    assert pairs(data) == [
        ("3", 'Wall St. "Bears", Claw line one\nline two'),
        ("4", " C:\\temp\\\n"),
    ]
    assert str(data.report) == (
        "read 2 rows from 1 file (CSV), label = column 1, text = columns 2-3, "
        "\\n read as a line end"
    )
    assert pairs(read(path, escapes=False))[0][1].endswith("line one\\nline two")


def test_escapes_are_left_alone_elsewhere(tmp_path):
    path = write(tmp_path / "a.csv", '1,"C:\\new"\n2,"D:\\new"\n')
    assert read(path).texts.to_pylist() == ["C:\\new", "D:\\new"]


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_delimiters_are_recognised(tmp_path, delimiter):
    rows = [[y, t, "more, of; it|"] for y, t in zip(LABELS, TEXTS, strict=True)]
    path = write_csv(tmp_path / "a.csv", rows, delimiter=delimiter)
    assert pairs(read(path)) == [(y, f"{t} {m}") for y, t, m in rows]


def test_label_in_the_last_column(tmp_path):
    rows = [[f"a text that is never the same {i}", "ab"[i % 2]] for i in range(40)]
    data = read(write_csv(tmp_path / "a.csv", rows))
    assert data.report.labels == ["column 2"]
    assert data.texts.to_pylist() == [t for t, _ in rows]


def test_columns_can_be_said(tmp_path):
    path = write_csv(tmp_path / "a.csv", [["a", "b", "c"], ["1", "2", "3"]])
    assert pairs(read(path, label="c", text="a", header=True)) == [("3", "1")]
    assert pairs(read(path, label=2, text=[3, 1], header=True)) == [("2", "3 1")]
    assert pairs(read(path, label="2", text=["C", "1"], header=True)) == [("2", "3 1")]
    assert pairs(read(path, label=1, header=False)) == [("a", "b c"), ("1", "2 3")]
    with pytest.raises(ValueError, match="each column once"):
        read(path, label=1, text=[2, 1], header=True)


def test_tsv_with_quotes_that_are_not_quotes(tmp_path):
    path = write(tmp_path / "a.tsv", 'x\t"Good" she said\ny\t5" disk\nx\t"open\n')
    data = read(path)
    assert pairs(data) == [("x", '"Good" she said'), ("y", '5" disk'), ("x", '"open')]
    assert "quotes kept as they are" in data.report.notes
    quoted = write(tmp_path / "b.tsv", 'x\t"a\tb"\ny\t"c ""d"""\n')
    assert pairs(read(quoted)) == [("x", "a\tb"), ("y", 'c "d"')]


def test_json_lines(tmp_path):
    lines = [{"id": 1, "label": y, "text": t} for y, t in zip(LABELS, TEXTS, strict=True)]
    path = write(tmp_path / "a.jsonl", "\n".join(json.dumps(x) for x in lines) + "\n\n")
    data = read(path)
    assert pairs(data) == list(zip(LABELS, TEXTS, strict=True))
    assert data.report.labels == ["key 'label'"]
    assert data.report.texts == ["key 'text'"]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([1, 20, -3], ["1", "20", "-3"]),
        ([True, False, True], ["true", "false", "true"]),
        ([1, "a", 2.5], ["1", "a", "2.5"]),
        ([["a", "b"], [], ["c"]], [["a", "b"], [], ["c"]]),
        ([[1, 2], [3], []], [["1", "2"], ["3"], []]),
        (["a", ["b", "c"], 3], [["a"], ["b", "c"], ["3"]]),
        ([10**30, 1, 2], [str(10**30), "1", "2"]),
    ],
)
def test_json_labels_of_any_kind(tmp_path, values, labels):
    path = write(tmp_path / "a.jsonl", "\n".join(json.dumps({"y": v, "x": "t"}) for v in values))
    assert read(path).labels.to_pylist() == labels


def test_json_that_arrow_refuses(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        '{"label": "a", "text": "\\ud83d\\ude00 \\ud800"}\n   \n'
        '{"label": "x", "label": "b", "title": "t", "text": "u"}\n',
    )
    assert pairs(read(path, text="text")) == [("a", "😀 \ufffd"), ("b", "u")]


@pytest.mark.parametrize("compression", ["snappy", "zstd"])
def test_parquet(tmp_path, compression):
    table = pa.table({"label": [1, 2, 1], "title": ["a", "b", "c"], "text": ["x", "", "z"]})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, compression=compression)
    data = read(path)
    assert pairs(data) == [("1", "a x"), ("2", "b "), ("1", "c z")]
    assert data.report.texts == ["columns 'title', 'text'"]
    renamed = tmp_path / "without_extension"
    path.rename(renamed)
    assert pairs(read(renamed)) == pairs(data)
    squeezed = write(tmp_path / "b.gz", gzip.compress(renamed.read_bytes()))
    assert pairs(read(squeezed, format="parquet")) == pairs(data)


def test_parquet_with_lists_and_dictionaries(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "labels": [["a", "b"], [], ["c"]],
            "text": pa.array(["x", "y", "x"]).dictionary_encode(),
            "class": pa.array(["p", "q", "p"]).dictionary_encode(),
        }
    )
    pq.write_table(table, path)
    assert pairs(read(path)) == [(["a", "b"], "x"), ([], "y"), (["c"], "x")]
    assert pairs(read(path, label="class")) == [("p", "x"), ("q", "y"), ("p", "x")]


def test_fasttext(tmp_path):
    path = write(tmp_path / "a.txt", "__label__a eins  zwei \r\n\n__label__ß\tdrei\n__label__a")
    data = read(path)
    assert pairs(data) == [("a", "eins  zwei "), ("ß", "drei"), ("a", "")]
    assert data.report.formats == ["fastText"]


def test_fasttext_with_several_labels(tmp_path):
    path = write(tmp_path / "a.txt", "__label__a __label__b x y\n__label__c z\n")
    data = read(path)
    assert pairs(data) == [(["a", "b"], "x y"), (["c"], "z")]
    assert data.labels.type == pa.list_(pa.string())
    write(path, "__label__a x __label__b y\nz __label__c\n__label__d not__label__e\n")
    assert pairs(read(path)) == [(["a", "b"], "x y"), (["c"], "z "), (["d"], "not__label__e")]


def test_a_folder_for_each_class(tmp_path):
    for name, text in [("pos/1.txt", "good\n"), ("pos/deep/2", "fine"), ("neg/1.txt", "bad ☃")]:
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    write(tmp_path / "data/neg/2.txt.gz", gzip.compress(b"\xef\xbb\xbfworse"))
    write(tmp_path / "data/neg/.hidden", "no")
    data = read(tmp_path / "data")
    assert pairs(data) == [
        ("neg", "bad ☃"),
        ("neg", "worse"),
        ("pos", "good\n"),
        ("pos", "fine"),
    ]
    assert data.report.formats == ["folder"]
    assert read_texts(tmp_path / "data/neg").texts.to_pylist() == ["bad ☃", "worse"]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, zstd])
def test_compression_is_told_by_the_content(tmp_path, compress):
    content = "".join(f"{i % 2},text {i}\n" for i in range(5000)).encode()
    path = write(tmp_path / "a.csv", compress(content))
    assert read(path).texts.to_pylist() == [f"text {i}" for i in range(5000)]
    twice = write(tmp_path / "b.csv", compress(content) + compress(content))
    assert len(read(twice)) == 10_000


def test_many_files(tmp_path):
    write_csv(tmp_path / "1.csv", [["label", "text"], ["a", "x"]])
    write_csv(tmp_path / "2.csv", [["text", "label"], ["y", "b"]])  # other order
    write_csv(tmp_path / "3.csv", [["c", "z"]])  # no header, as `split` leaves it
    write(tmp_path / "4.jsonl", '{"text": "u", "label": "d"}\n')
    expected = [("a", "x"), ("b", "y"), ("c", "z"), ("d", "u")]
    data = read([tmp_path / "*.csv", str(tmp_path / "4.jsonl")])
    assert pairs(read(str(tmp_path / "*"))) == expected
    assert pairs(data) == expected
    assert data.report.formats == ["CSV", "JSON lines"]
    assert pairs(read([tmp_path / "4.jsonl", tmp_path / "1.csv"])) == [expected[3], expected[0]]


def test_later_files_without_a_header_have_the_columns_of_the_first(tmp_path):
    rows = [[f"a text that is never the same {i}", "ab"[i % 2]] for i in range(40)]
    first = write_csv(tmp_path / "1.csv", rows)
    second = write_csv(tmp_path / "2.csv", [["b", "c"]])
    assert pairs(read([first, second]))[-1] == ("c", "b")


def test_names_without_extension_are_told_by_content(tmp_path):
    write(tmp_path / "a", "ham\tGo until jurong point, crazy..\nspam\tFree entry in 2 a\n")
    assert read(tmp_path / "a").report.formats == ["TSV"]
    write(tmp_path / "a", '\n{"label": 1, "text": "x"}')
    assert read(tmp_path / "a").report.formats == ["JSON lines"]
    write(tmp_path / "a", "just some text\nand more of it\n")
    with pytest.raises(DataError, match="the first line is 'just some text'"):
        read(tmp_path / "a")


def test_texts_line_by_line(tmp_path):
    path = write(tmp_path / "a.txt", "one\n\n  two \r\n\u2028__label__x\n\nlast")
    data = read_texts(path)
    assert data.texts.to_pylist() == ["one", "", "  two ", "\u2028__label__x", "", "last"]
    assert data.labels is None
    assert str(data.report) == "read 6 rows from 1 file (lines)"
    assert read_texts(write(path, "")).texts.to_pylist() == []
    assert read_texts(write(path, "\n")).texts.to_pylist() == [""]
    assert read_texts(write(path, "\ufeff\n\n")).texts.to_pylist() == ["", ""]


def test_texts_of_other_formats(tmp_path):
    a = write_csv(tmp_path / "a.csv", [["id", "text"], ["1", "x"], ["2", ""]])
    assert read_texts(a).texts.to_pylist() == ["x", ""]
    b = write_csv(tmp_path / "b.csv", [["1", "title", "x"], ["2", "title", "y"]])
    assert read_texts(b).texts.to_pylist() == ["title x", "title y"]
    assert read_texts(b, text=3).texts.to_pylist() == ["x", "y"]
    c = write(tmp_path / "c.jsonl", '{"text": "x"}\n{"label": 1, "text": "y"}\n')
    assert read_texts(c).texts.to_pylist() == ["x", "y"]
    pq.write_table(pa.table({"n": [1], "text": ["x"]}), tmp_path / "d.parquet")
    assert read_texts(tmp_path / "d.parquet").texts.to_pylist() == ["x"]
    e = write(tmp_path / "e.txt", "__label__a x\n\ny\n")
    assert read_texts(e, format="fasttext").texts.to_pylist() == ["x", "", "y"]


def test_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK", 100)
    rows = [[str(i % 7), f'text "{i}"\n{"x" * (i % 50)}'] for i in range(500)]
    path = write_csv(tmp_path / "a.csv", rows)
    batches = list(read_batches([path, path], rows=64))
    assert [len(b) for b in batches] == [64] * 15 + [40]
    assert [p for b in batches for p in pairs(b)] == [tuple(r) for r in rows * 2]
    assert pairs(read([path, path])) == [tuple(r) for r in rows * 2]
    assert batches[-1].report.rows == 1000
    assert [len(b) for b in read_text_batches(path, rows=300)] == [300, 200]


def test_labels_become_lists_and_stay_lists(tmp_path, monkeypatch):
    path = write(tmp_path / "a.txt", "__label__a x\n__label__b __label__c y\n__label__d z\n")
    monkeypatch.setattr(streams, "BLOCK", 10)
    labels = [b.labels.to_pylist() for b in read_batches(path, rows=1)]
    assert labels == [["a"], [["b", "c"]], [["d"]]]
    assert read(path).labels.to_pylist() == [["a"], ["b", "c"], ["d"]]


def test_a_row_longer_than_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK", 64)
    text = "line\n" * 1000
    path = write_csv(tmp_path / "a.csv", [["a", "x"], ["b", text], ["c", "y"]])
    assert pairs(read(path)) == [("a", "x"), ("b", text), ("c", "y")]


def test_standard_input():
    code = (
        "from hashembed.readers import read; d = read('-'); "
        "print(d.labels.to_pylist(), d.texts.to_pylist(), d.report)"
    )
    content = gzip.compress(b"a,x\nb,y\n")
    out = subprocess.run([sys.executable, "-c", code], input=content, capture_output=True)
    expected = "['a', 'b'] ['x', 'y'] read 2 rows from 1 file (CSV), label = column 1"
    assert out.stdout.decode().startswith(expected), out.stderr


def test_standard_input_from_a_file(tmp_path, monkeypatch):
    pq.write_table(pa.table({"label": ["a"], "text": ["x"]}), tmp_path / "a.parquet")
    with open(tmp_path / "a.parquet") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert pairs(read("-")) == [("a", "x")]
    with open(write(tmp_path / "a.csv", "not for us\na,x\nb,y\n")) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        stdin.buffer.readline()  # somebody else's
        assert pairs(read("-")) == [("a", "x"), ("b", "y")]


def test_a_live_stream_is_handed_on_as_it_comes(monkeypatch):
    """Lines are there before the writer goes on; a half line waits for its end."""
    source, sink = os.pipe()
    with open(source) as stdin, os.fdopen(sink, "wb", buffering=0) as writer:
        monkeypatch.setattr(sys, "stdin", stdin)
        batches = read_text_batches("-", rows=100)
        writer.write(b"one\n\ntwo\nhalf")
        assert next(batches).texts.to_pylist() == ["one", "", "two"]
        threading.Timer(0.05, lambda: (writer.write(b" line\n"), writer.close())).start()
        assert next(batches).texts.to_pylist() == ["half line"]
        assert list(batches) == []


def test_a_classifier_takes_what_was_read(tmp_path):
    rows = [[["hot", "cold"][i % 2], ["sun fire", "ice snow"][i % 2]] for i in range(60)]
    data = read(write_csv(tmp_path / "a.csv", rows))
    model = TextClassifier(threads=1).fit(data.texts, data.labels)
    assert model.predict(["fire", "ice"]).tolist() == ["hot", "cold"]
    assert np.isclose(model.score(data.texts, data.labels), 1)
