"""Labels: several in one string, of another prefix, in keys within keys; those that look odd."""

import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.cases.files import pairs, write

from hashembed.cli import main
from hashembed.core.wording import command_options
from hashembed.readers import DataError, read, read_batches, read_texts
from hashembed.readers.rows import encoded

SPLIT = [(["a", "b"], "x"), (["b"], "y"), ([], "z"), (["c"], "u")]


def files(folder):
    """The same rows in every format: two labels, one, none, one that is named twice."""
    labels = ["a, b", "b", "", "c,c,"]
    texts = ["x", "y", "z", "u"]
    rows = list(zip(labels, texts, strict=True))
    yield write(folder / "a.csv", "label,text\n" + "".join(f'"{y}",{x}\n' for y, x in rows))
    yield write(folder / "a.tsv", "label\ttext\n" + "".join(f"{y}\t{x}\n" for y, x in rows))
    lines = [json.dumps({"label": y, "text": x}) for y, x in rows]
    yield write(folder / "a.jsonl", "\n".join(lines))
    yield write(folder / "b.jsonl", "\n".join(lines).replace('"a, b"', '["a", "b,a"]'))
    pq.write_table(pa.table({"label": labels, "text": texts}), folder / "a.parquet")
    yield folder / "a.parquet"
    listed = pa.array([["a", "b"], ["b"], [], ["c,c,"]])
    pq.write_table(pa.table({"label": listed, "text": texts}), folder / "b.parquet")
    yield folder / "b.parquet"


def test_labels_are_separated_in_every_format(tmp_path):
    for path in files(tmp_path):
        data = read(path, label_separator=",")
        assert pairs(data) == SPLIT, path
        assert data.labels.type == pa.list_(pa.string())
        batches = list(read_batches(path, rows=1, label_separator=","))
        assert [p for b in batches for p in pairs(b)] == SPLIT
    lines = write(tmp_path / "a.txt", "__label__a,b x\n__label__b __label__c,a y\n")
    assert pairs(read(lines, label_separator=",")) == [(["a", "b"], "x"), (["b", "c", "a"], "y")]
    (tmp_path / "classes" / "a+b").mkdir(parents=True)
    write(tmp_path / "classes/a+b/1.txt", "x")
    assert pairs(read(tmp_path / "classes", label_separator="+")) == [(["a", "b"], "x")]


@pytest.mark.parametrize("separator", [";", "|", " ", "||", " and ", "é"])
def test_separators_of_any_kind(tmp_path, separator):
    path = write(tmp_path / "a.tsv", f"a{separator}b\tx\nb\ty\n")
    assert pairs(read(path, label_separator=separator)) == [(["a", "b"], "x"), (["b"], "y")]


@pytest.mark.parametrize("separator", ["", 3])
def test_separators_that_are_none(tmp_path, separator):
    with pytest.raises(ValueError, match="label_separator must be a string"):
        read(write(tmp_path / "a.csv", "a,x\n"), label_separator=separator)


@pytest.mark.parametrize("prefix", ["__class__", "#", "__label__", "L:", "é", "aa"])
def test_the_prefix_of_fasttext(tmp_path, prefix):
    text = f"{prefix}x eins\n{prefix}y {prefix}z zwei\n\ndrei {prefix}x\n"
    path = write(tmp_path / "a.txt", text)
    data = read(path, label_prefix=prefix)
    assert pairs(data) == [(["x"], "eins"), (["y", "z"], "zwei"), (["x"], "drei ")]
    assert data.report.labels == [f"{prefix}NAME"]
    assert read_texts(path, label_prefix=prefix).texts.to_pylist() == ["eins", "zwei", "", "drei "]
    write(path, "nothing\n")
    with pytest.raises(DataError, match=f"expected a line that begins with {prefix}NAME"):
        read(path, label_prefix=prefix)


@pytest.mark.parametrize("prefix", ["", "a b", "\n", 3, "\ud800"])
def test_prefixes_that_are_none(tmp_path, prefix):
    with pytest.raises(ValueError, match="label_prefix must be a string without blanks"):
        read(write(tmp_path / "a.txt", "x"), label_prefix=prefix)


NESTED = {
    "id": 7,
    "meta": {"stars": 5, "by": {"name": "me"}},
    "review": {"body": "b", "title": "t"},
}


def test_keys_within_keys(tmp_path):
    lines = [NESTED, {**NESTED, "meta": {"stars": [1, "2"]}}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)))
    data = read(path, label="meta.stars", text=["review.title", "review.body"])
    assert pairs(data) == [(["5"], "t b"), (["1", "2"], "t b")]
    assert data.report.labels == ["key 'meta.stars'"]
    assert data.report.texts == ["keys 'review.title', 'review.body'"]
    with pytest.raises(DataError, match=r"line 2: found no key 'meta.by.name'"):
        read(path, label="meta.by.name", text="review.body")
    assert len(read(path, label="meta.by.name", text="review.body", on_error="skip")) == 1
    with pytest.raises(DataError, match=r"no label key 'stars'.*'meta.stars', 'meta.by', 'review"):
        read(path, label="stars", text="review.body")
    with pytest.raises(DataError, match="found an object for 'review', expected a string"):
        read(path, label="id", text="review")
    # a key of this name comes first, and numbers count the outer keys
    literal = {"review.body": "outer", "review": {"body": "inner"}, "y": 1}
    path = write(tmp_path / "b.jsonl", json.dumps(literal))
    assert pairs(read(path, label="y", text="review.body")) == [("1", "outer")]
    assert pairs(read(path, label=3, text=1)) == [("1", "outer")]


def test_columns_within_columns(tmp_path):
    pq.write_table(pa.table({k: [v, v] for k, v in NESTED.items()}), tmp_path / "a.parquet")
    data = read(tmp_path / "a.parquet", label="meta.stars", text=["meta.by.name", "review.body"])
    assert pairs(data) == [("5", "me b")] * 2
    assert data.report.texts == ["columns 'meta.by.name', 'review.body'"]


def test_parquet_columns_of_one_name(tmp_path):
    path = tmp_path / "a.parquet"
    columns = [pa.array([c]) for c in "abcd"]
    pq.write_table(pa.table(columns, names=["text", "label", "text", "label"]), path)
    data = read(path)
    assert pairs(data) == [("b", "a")]
    assert (data.report.labels, data.report.texts) == (
        ["column 2 ('label')"],
        ["column 1 ('text')"],
    )
    assert pairs(read(path, label=4, text=[3, 1])) == [("d", "c a")]
    with pytest.raises(DataError, match="found 2 text columns 'text', numbers 1 and 3: give a num"):
        read(path, text="text")


def test_parquet_labels_that_are_not_utf8(tmp_path):
    binary = pa.array([b"ok", b"\xff", b"fine"])
    broken = pa.StringArray.from_buffers(3, *binary.buffers()[1:])
    path = tmp_path / "a.parquet"
    for labels in (
        broken,
        broken.dictionary_encode(),
        pa.ListArray.from_arrays([0, 1, 2, 3], broken),
    ):
        pq.write_table(pa.table({"label": labels, "text": ["x", "y", "z"]}), path)
        with pytest.raises(DataError, match="row 2: found bytes that are not UTF-8"):
            read(path)
        data = read(path, on_error="skip")
        assert data.texts.to_pylist() == ["x", "z"]
        assert [y if isinstance(y, str) else y[0] for y in data.labels.to_pylist()] == [
            "ok",
            "fine",
        ]


def test_large_whole_numbers_are_labels(tmp_path):
    """Neither an error nor two of them one."""
    large = [2**63, 2**63 + 1, 2**64 - 1]
    pq.write_table(
        pa.table({"label": pa.array(large, pa.uint64()), "text": ["x"] * 3}), tmp_path / "a.parquet"
    )
    assert read(tmp_path / "a.parquet").labels.to_pylist() == list(map(str, large))
    for numbers in (large, [2**64, 2**64 + 1], [10**400, -(10**30)], [1, 2**64]):
        lines = "\n".join(json.dumps({"label": n, "text": "x"}) for n in numbers)
        data = read(write(tmp_path / "a.jsonl", lines))
        assert data.labels.to_pylist() == list(map(str, numbers))
    huge = f'{{"label": {"9" * 5000}, "text": "x"}}\n{{"label": 1, "text": "x"}}'
    with pytest.raises(DataError, match="line 1: found JSON that cannot be read"):
        read(write(tmp_path / "a.jsonl", huge))
    for column in (2**64, "9" * 5000):
        with pytest.raises(DataError, match="found no label column"):
            read(write(tmp_path / "a.csv", "label,text\na,x\n"), label=column)


def warning(folder, labels):
    lines = [json.dumps({"label": y, "text": f"text {i}"}) for i, y in enumerate(labels)]
    path = write(folder / "a.jsonl", "\n".join(lines))
    data = read(path)
    assert data.report.to_dict()["warnings"] == data.report.warnings
    return data.report.warnings[0] if data.report.warnings else None


def joint(separator, seed=0):
    draw = random.Random(seed)
    return [
        separator.join(sorted({str(draw.randrange(28)) for _ in range(draw.randint(1, 3))}))
        for _ in range(1000)
    ]


@pytest.mark.parametrize("separator", [",", ";", "|", " ", "/"])
def test_joint_labels_are_noticed(tmp_path, separator):
    """As in GoEmotions: "3,17" is not a class."""
    found = warning(tmp_path, joint(separator))
    assert "combinations of 28" in found
    assert found.endswith(f"give label_separator={separator!r}")
    with command_options({"label_separator": "--label-separator"}):
        assert warning(tmp_path, joint(separator)).endswith(f'give --label-separator "{separator}"')


ODD = [
    (
        [f"2023-01-{i % 28 + 1:02}" for i in range(100)],
        "the labels are dates, such as '2023-01-01'",
    ),
    ([f"{i % 12 + 1}/{i % 28 + 1}/2023" for i in range(100)], "the labels are dates"),
    ([f"{i / 7:.3f}" for i in range(100)], "the labels are 100 different fractions"),
    ([f"id-{i}" for i in range(100)], "100 different labels in 100 rows, such as 'id-0'"),
    ([str(i) for i in range(100)], "100 different labels in 100 rows"),
    (["['a', 'b']", "['b']"] * 50, "the labels look like lists"),
]


@pytest.mark.parametrize(("labels", "message"), ODD)
def test_odd_labels_are_noticed(tmp_path, labels, message):
    assert warning(tmp_path, labels).startswith(message)
    path = tmp_path / "a.jsonl"
    assert f"\nWarning: {message}" in str(list(read_batches(path, rows=10))[-1].report)


FINE = [
    ["spam", "ham"] * 100,
    [str(i % 10) for i in range(200)],
    [f"{i % 9 / 2}" for i in range(200)],  # stars
    [f"2023-01-{i % 7 + 1:02}" for i in range(200)],
    ["Politics, Economy", "Sports", "Arts, Culture, Film", "Weather"] * 50,
    [f"{verb} {noun}" for verb in ("open", "close", "cancel", "show") for noun in "abcdefghij"] * 5,
    ["sci/tech", "sports", "world", "business"] * 50,
    [f"id-{i}" for i in range(20)],  # too few to tell
    [["a", "b"], ["b"]] * 50,
]


@pytest.mark.parametrize("labels", FINE)
def test_labels_that_are_fine(tmp_path, labels):
    assert warning(tmp_path, labels) is None


def test_options_that_are_not_used_are_named(tmp_path):
    lines = write(tmp_path / "a.jsonl", '{"label": 1, "text": "x"}\n')
    data = read(lines, delimiter=",", header=False, label_prefix="#")
    assert data.report.warnings == [
        f"{option} was ignored: it does not apply to the format JSON lines"
        for option in ("header=False", "delimiter=", "label_prefix=")
    ]
    fasttext = write(tmp_path / "a.ft", "__label__a x\n")
    assert "label= was ignored" in read(fasttext, label="y").report.warnings[0]
    assert read(fasttext).report.warnings == []


def test_texts_of_a_file_without_an_extension_may_be_columns(tmp_path):
    path = write(tmp_path / "a", "label,text\na,x\nb,y\n")
    assert read_texts(path).texts.to_pylist() == ["label,text", "a,x", "b,y"]
    assert read_texts(path, text="text").texts.to_pylist() == ["x", "y"]
    assert read_texts(path, header=True).texts.to_pylist() == ["x", "y"]


# --- the command ------------------------------------------------------------------------------


def train(folder, *options, content="stars,title,body\n1,t,x\n2,u,y\n"):
    path = write(folder / "a.csv", content)
    output = str(folder / "m.safetensors")
    return CliRunner().invoke(main, ["train", str(path), "-o", output, *options])


def test_a_repeated_text_option_means_both(tmp_path):
    for options in (["--text", "title", "--text", "body"], ["--text", "title,body"]):
        result = train(tmp_path, "--label", "stars", *options)
        assert result.exit_code == 0, result.output
        assert "text = columns 'title', 'body'" in result.stderr
    result = train(tmp_path, "--label", "1", "--text", "3", "--text", "2", "--header")
    assert "text = columns 'body', 'title'" in result.stderr


def test_a_repeated_label_option_is_an_error(tmp_path):
    result = train(tmp_path, "--label", "stars", "--label", "title", "--text", "body")
    assert result.exit_code == 2
    assert "found 'stars' and 'title', expected one column" in result.stderr


def test_the_command_separates_labels(tmp_path):
    content = "label,text\n" + 'a|b,good film\nb,"bad film"\n' * 5
    result = train(tmp_path, "--label-separator", "|", content=content)
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(main, ["info", str(tmp_path / "m.safetensors"), "--json"])
    assert '"a|b"' not in result.stdout


def test_messages_of_the_command_name_its_options(tmp_path):
    """And not Python's arguments."""
    for options, content, message in [
        (["--label", "kind"], "foo,bar\na,x\n", "if it is data, give --no-header"),
        ([], "foo,bar,baz\n" * 2, None),
        ([], "id,text,colour\n1,x,red\n", "Choose one with --label."),
        ([], 'label,text\na,x\nb,"y" z\n', "give --no-quotes"),
        (["--delimiter", ",,"], "a,x\n", "--delimiter must be one ASCII character"),
        (["--encoding", "zip"], "a,x\n", "--encoding must be an encoding that Python knows"),
        (["--label-prefix", " "], "a,x\n", "--label-prefix must be a string without blanks"),
        (["--text", "1", "--text", "1"], "a,x\n", "--text must name each column once"),
    ]:
        result = train(tmp_path, *options, content=content)
        if message is not None:
            assert result.exit_code == 1, result.output
            assert message in result.stderr
        assert "=" not in result.stderr.replace(str(tmp_path), "").replace(" = ", "")
    assert train(tmp_path, "--delimiter", "\\t", content="a\tx\nb\ty\n").exit_code == 0
    with pytest.raises(DataError, match="Choose one with label="):
        read(write(tmp_path / "a.csv", "id,text,colour\n1,x,red\n"))


def test_a_separator_that_no_label_has_is_reported(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("label,text\n" + "a|b,x\na,y\n" * 30)
    assert read(path, label_separator="|").report.warnings == []
    (warning,) = read(path, label_separator=";").report.warnings
    assert "but no row has more than one" in warning
    assert "label_separator=" in warning


def test_another_prefix_is_named_where_it_may_be_meant(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text("__class__a good\n__class__b bad\n")
    for options in ({}, {"format": "fasttext"}):
        with pytest.raises(DataError, match="label_prefix="):
            read(path, **options)
    assert read(path, label_prefix="__class__").labels.to_pylist() == ["a", "b"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("distinct", [1, 3, 1000, 100_000])
def test_labels_are_numbered_like_by_arrow(kind, distinct):
    numbers = np.random.default_rng(distinct).integers(0, distinct, 5000)
    names = ["", "a", "b", "ab", "ü", *map(str, numbers.tolist())]
    for column in (pa.array(names, kind), pa.array(names, kind).slice(7, 900), pa.array([], kind)):
        ours, theirs = encoded(column), column.dictionary_encode()
        assert ours.type == pa.dictionary(pa.int32(), pa.string())
        assert ours.indices.to_pylist() == theirs.indices.to_pylist()
        assert ours.dictionary.to_pylist() == theirs.dictionary.to_pylist()
        ours.validate(full=True)


def test_labels_with_nulls_stay_null():
    assert encoded(pa.array(["a", None, "a"])).to_pylist() == ["a", None, "a"]


@pytest.mark.parametrize(
    "line", ["a__label__b x", "__label____label__a x", "__label__a x __label__b", "_ __label__a _"]
)
def test_prefixes_anywhere_in_a_line(tmp_path, line):
    """The fast way to find labels and the thorough one agree; the last line needs the latter."""
    labelled = line if line.startswith("__label__") else f"__label__z {line}"
    lines = [labelled, "__label__c text __label__d between"]
    alone, both = (write(tmp_path / f"{n}.ft", "\n".join(lines[:n]) + "\n") for n in (1, 2))
    one, two = read(alone), read(both)
    label = one.labels.to_pylist()[0]
    assert two.labels.to_pylist()[0] == (label if isinstance(label, list) else [label])
    assert two.texts.to_pylist()[0] == one.texts.to_pylist()[0]
