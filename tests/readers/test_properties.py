"""Readers against slow references, on anything."""

import csv
import gzip
import io
import json
import re
from contextlib import contextmanager

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cases.files import pairs, write

from hashembed.readers import (
    DataError,
    read,
    read_batches,
    read_fasttext,
    read_text_batches,
    read_texts,
    streams,
)
from hashembed.readers.formats.delimited_kernels import GOOD
from hashembed.readers.formats.dialect import Dialect, Table

BLOCKS = st.sampled_from([1, 3, 16, 50, 1 << 20])
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff")
WORDS = st.text(LETTERS | st.sampled_from(',;"\n\r\t\\ né☃'), max_size=12)
NAMES = WORDS.filter(lambda name: name.strip())


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("data") / "data"


@contextmanager
def blocks_of(size):
    before, streams.BLOCK = streams.BLOCK, size
    try:
        yield
    finally:
        streams.BLOCK = before


def joined(batches, sizes=None):
    labels, texts, last = [], [], None
    for batch in batches:
        labels += batch.labels.to_pylist() if batch.labels is not None else []
        texts += batch.texts.to_pylist()
        last = batch.report
    return labels, texts, last


@settings(deadline=None)
@given(
    st.lists(st.tuples(NAMES, WORDS, WORDS), min_size=1, max_size=8),
    st.sampled_from(",;\t|"),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.booleans(),
    BLOCKS,
)
def test_what_csv_writes_is_read(path, rows, delimiter, quoting, header, block):
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, quoting=quoting)
    writer.writerows([("label", "title", "text"), *rows] if header else rows)
    write(path, file.getvalue())
    options = {"delimiter": delimiter, "escapes": False, "quotes": True, "format": "csv"}
    if not header:
        options |= {"header": False, "label": 1}
    with blocks_of(block):
        data = read(path, **options)
    assert pairs(data) == [(label, f"{title} {text}") for label, title, text in rows]


def reference_rows(text, delimiter, quotes):
    """(line, columns or None if it is malformed) of each row, by regular expressions."""
    d = re.escape(delimiter)
    plain = rf'[^"{d}\n][^{d}\n]*' if quotes else rf"[^{d}\n]+"
    column = rf'(?:"(?:[^"]|"")*+"(?={d}|\r?\n|\r?\Z)|{plain}|(?=[{d}\n]|\Z))'
    row = re.compile(rf"{column}(?:{d}{column})*\r?(?:\n|\Z)" if quotes else r"[^\n]*(?:\n|\Z)")
    at, line = 0, 1
    while at < len(text):
        found = row.match(text, at)
        end = found.end() if found else (text.find("\n", at) + 1 or len(text))
        body = re.sub(r"\r?\n?\Z", "", text[at:end], count=1)
        if found and body:
            yield line, _columns(body, delimiter, quotes)
        elif not found:
            yield line, None
        line += text.count("\n", at, end)
        at = end


def _columns(body, delimiter, quotes):
    columns = [""]
    at = 0
    while at < len(body):
        quoted = re.compile(r'"((?:[^"]|"")*+)"').match(body, at) if quotes else None
        if quoted and (at == 0 or body[at - 1] == delimiter):
            columns[-1] = quoted[1].replace('""', '"')
            at = quoted.end()
        elif body[at] == delimiter:
            columns.append("")
            at += 1
        else:
            columns[-1] += body[at]
            at += 1
    return columns


@settings(max_examples=250, deadline=None)
@given(st.text(st.sampled_from('ab,"\n\r'), max_size=60), st.booleans())
@example('x","y\n' * 4, True)
@example('x","y\n' * 4 + '"', True)
@example('x","y\n' * 4 + '","z"\n', True)
@example('"\n,"\n"a",""\n,""",b\n', True)
@example('a,"b\n"c",d\n"', True)
@example('"a"\r', True)
@example('"a"\rb\n', True)
@example('""\n\n""""\n', True)
def test_rows_are_those_of_the_grammar(text, quotes):
    table = Table.scan(text.encode(), 1, 0, Dialect(",", quotes), range(80))
    found = []
    for i, line in enumerate(table.lines.tolist()):
        columns = None
        if table.wrong[i] == GOOD:
            columns = []
            for j in range(table.fields[i]):
                one = table.take(slice(i, i + 1))
                good = one.wrong == GOOD
                columns += one.join(slice(j, j + 1), good, False).to_pylist()
        found.append((line, columns))
    assert found == list(reference_rows(text, ",", quotes))
    assert table.used == len(text.encode())


JSON_LABELS = st.one_of(
    NAMES, st.integers(-(2**70), 2**70), st.booleans(), st.lists(NAMES | st.integers(), max_size=3)
)
ANY_TEXT = st.text(st.characters() | st.sampled_from("\ud800\udc00\0"), max_size=12)


def json_label(value):
    if isinstance(value, list):
        return [json_label(v) for v in value]
    return value if isinstance(value, str) else json.dumps(value)


@settings(deadline=None)
@given(
    st.lists(st.tuples(JSON_LABELS, ANY_TEXT), min_size=1, max_size=8),
    st.booleans(),
    st.sampled_from(["\n", "\r\n", "\n \n"]),
    BLOCKS,
)
def test_what_json_writes_is_read(path, rows, ascii_only, end, block):
    lines = [{"id": 1.5, "text": t, "label": y, "more": {"text": [None]}} for y, t in rows]
    content = end.join(json.dumps(line, ensure_ascii=ascii_only) for line in lines)
    write(path, content.encode("utf-8", "replace"))
    with blocks_of(block):
        data = read(path, format="jsonl")
    swap = "replace" if not ascii_only else "surrogatepass"
    texts = [t.encode("utf-8", swap).decode("utf-8", swap) for _, t in rows]
    texts = [t.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for t in texts]
    assert data.texts.to_pylist() == texts
    labels = [json_label(y) for y, _ in rows]
    if any(isinstance(y, list) for y in labels):
        labels = [y if isinstance(y, list) else [y] for y in labels]
    assert data.labels.to_pylist() == labels


@settings(deadline=None)
@given(st.lists(st.text(LETTERS | st.just("\r"), max_size=10), max_size=8), BLOCKS, st.booleans())
def test_a_line_a_text(path, texts, block, end):
    content = "\n".join(texts) + ("\n" if end and texts else "")
    write(path, content)
    lines = content.split("\n")
    lines = [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]
    with blocks_of(block):
        assert read_texts(path).texts.to_pylist() == lines
        assert joined(read_text_batches(path, rows=2))[1] == lines


FASTTEXT_WORDS = st.lists(
    st.sampled_from(["__label__a", "__label__ß", "__label__", "x__label__", "word", "", "\t"]),
    max_size=5,
).map(" ".join)


@settings(max_examples=200, deadline=None)
@given(st.lists(FASTTEXT_WORDS, max_size=6), BLOCKS)
def test_fasttext_lines(path, lines, block):
    """Words that begin with the prefix are labels, the others the text."""
    write(path, "\n".join(lines))
    expected, bad = [], []
    for i, line in enumerate(lines):
        words = re.split("[ \t]", line)
        labels = [w.removeprefix("__label__") for w in words if w.startswith("__label__")]
        text = " ".join(w for w in words if w and not w.startswith("__label__"))
        if labels and all(labels):
            expected.append((labels, text))
        elif labels or text:
            bad.append(i + 1)
    try:
        with blocks_of(block):
            data = read(path, format="fasttext", on_error="skip")
    except DataError:
        assert not expected
        return
    found = [([y] if isinstance(y, str) else y, " ".join(t.split())) for y, t in pairs(data)]
    assert found == expected
    assert [p.line for p in data.report.problems] == bad
    plain = re.compile("__label__[^ \t]+([ \t](?!__label__)[^ \t]*)*")
    if all(plain.fullmatch(line) for line in lines):
        labels, texts = read_fasttext(path)
        assert labels.to_pylist() == data.labels.to_pylist()
        assert [t.lstrip(" \t") for t in texts.to_pylist()] == data.texts.to_pylist()


PIECES = st.sampled_from(
    [
        *(b'"', b",", b"\n", b"\r\n", b"\t", b"\0", b"\xff", b"\xfe", b"\xe9", "é☃".encode()),
        *(b'{"label": 1, "text": "x"}', b'{"label": ["a"], "text": "x"}', b"{", b"[", b"\\n"),
        *(b"__label__a", b"__label__", b" ", b"label,text\n", b"a,x\n", b'b,"y"\n', b'"1","z"\n'),
        *(b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b", b"BZh9", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"),
        *(b"PAR1", gzip.compress(b"a,x\n"), b"\xff\xfe\0\0"),
    ]
)
ANYTHING = st.one_of(st.binary(max_size=60), st.lists(PIECES, max_size=12).map(b"".join))
FORMATS = st.sampled_from([None, "csv", "tsv", "jsonl", "parquet", "fasttext"])
ERRORS = st.sampled_from(["stop", "skip"])


@settings(max_examples=250, deadline=None)
@given(ANYTHING, FORMATS, ERRORS, BLOCKS, st.sampled_from([None, "utf-8", "utf-16", "shift_jis"]))
def test_anything_is_read_or_refused(path, content, format, on_error, block, encoding):
    write(path, content)
    with blocks_of(block):
        for reader in (read, read_texts):
            try:
                data = reader(path, format=format, on_error=on_error, encoding=encoding)
            except DataError:
                continue
            data.texts.validate(full=True)
            assert data.labels is None or len(data.labels) == len(data.texts)
            if data.labels is not None:
                data.labels.validate(full=True)
            assert str(data.report)
        lines = read_texts(path, format="lines", on_error="skip", encoding=encoding)
        lines.texts.validate(full=True)


@settings(max_examples=250, deadline=None)
@given(ANYTHING, st.sampled_from(["csv", "fasttext", "jsonl", "lines"]), BLOCKS, st.integers(1, 5))
def test_batches_are_the_whole_in_parts(path, content, format, block, rows):
    """Also the same problems on the same lines, wherever the blocks end."""
    write(path, content)
    options = {"format": format, "on_error": "skip"}
    if format == "csv":
        options |= {"delimiter": ",", "quotes": True, "escapes": True, "header": True}
        write(path, b"label,text\n" + content)
    if format == "jsonl":
        options |= {"label": "label", "text": "text"}
    whole, batches = read, read_batches
    if format == "lines":
        whole, batches = read_texts, read_text_batches
    try:
        expected = joined([whole(path, **options)])
    except DataError:
        with blocks_of(block), pytest.raises(DataError):
            list(batches(path, rows=rows, **options))
        return
    with blocks_of(block):
        found = joined(batches(path, rows=rows, **options))
    assert found[1] == expected[1]
    lists = any(isinstance(y, list) for y in expected[0])
    assert [[y] if lists and isinstance(y, str) else y for y in found[0]] == expected[0]
    if found[2] is not None:
        assert found[2].to_dict() == expected[2].to_dict()
