"""Whether the first row is a header, and which columns are taken: many files, one line each."""

import pytest
from tests.cases.files import pairs, write

from hashembed.core.wording import command_options
from hashembed.readers import DataError, read, read_texts

WORDS = ["the", "film", "was", "a", "very", "long", "and", "slow", "story", "about", "rain"]


def sentence(i):
    return " ".join(WORDS[(i * k) % len(WORDS)] for k in (1, 3, 5, 7)) + f" {i}"


def body(kind, rows=40):
    """Rows of a kind: L a label, T a text, N a number, D a date, 0 an empty cell, W a word."""
    columns = {
        "L": lambda i: ["spam", "ham", "eggs"][i % 3],
        "C": lambda i: str(i % 2),
        "T": sentence,
        "N": lambda i: str(1000 + i),
        "D": lambda i: f"2023-01-{i % 28 + 1:02}",
        "0": lambda i: "",
        "W": lambda i: f"word{i}",
    }
    return "".join(",".join(columns[c](i) for c in kind) + "\n" for i in range(rows))


# the first row, the rows below it, whether it is a header, the label's column, the text's
HEADERS = [
    ("label,text", "LT", True, 1, [2]),
    ("text,label", "TL", True, 2, [1]),
    ("Label,Text", "LT", True, 1, [2]),
    (" label , text ", "LT", True, 1, [2]),
    ('"label","text"', "LT", True, 1, [2]),
    ("label,text,,,", "LT000", True, 1, [2]),  # a spreadsheet's empty columns
    ("label,text,,,", "LT", True, 1, [2]),  # in the header only
    ("v1,v2,,,", "LT000", True, 1, [2]),  # Kaggle's SMS spam
    ("v1,v2", "LT", True, 1, [2]),
    ("label,text,comment,comment", "LTTC", True, 1, [2]),
    ("label,text,2023", "LTN", True, 1, [2]),
    ("label,text,text", "LTT", True, 1, [2]),
    ("text,label,label", "TLL", True, 2, [1]),
    ("label,label,text", "LCT", True, 1, [3]),
    (",label,text", "NLT", True, 2, [3]),  # pandas' index
    ("Unnamed: 0,text,label", "NTL", True, 3, [2]),
    ("id,text,label", "NTL", True, 3, [2]),
    ("class,title,description", "CTT", True, 1, [2, 3]),
    ("Class Index,Title,Description", "CTT", True, 1, [2, 3]),
    ("sentence,label", "TC", True, 2, [1]),
    ("review,sentiment", "TL", True, 2, [1]),
    ("id,comment_text,toxic", "NTC", True, 3, [2]),
    ("date,headline,category", "DTL", True, 3, [2]),
    ("x,y", "TC", True, 2, [1]),
    ("y,x", "CT", True, 1, [2]),
    ("foo,bar", "LT", True, 1, [2]),  # neither is among the labels, which all recur
    ("foo,bar", "TL", True, 2, [1]),
    ("foo,bar", "CT", True, 1, [2]),  # a word above numbers
    ("col_1,col_2", "TL", True, 2, [1]),
    ("0,1", "LT", True, 1, [2]),  # pandas without names
    (",0,1", "NLT", True, 2, [3]),
    ("how do you like this film,text", "LT", True, 1, [2]),
    ("spam,text", "CT", True, 1, [2]),
    ("language,words", "LT", True, 1, [2]),
    ("lang,sentence,2,3", "LTNN", True, 1, [2]),
    ("text", "T", True, None, [1]),
    ("v1,v2,,,", "TT000", True, None, None),  # which is the label?
    ("foo,bar,baz", "LTL", True, None, [2]),  # two might be
    # not headers
    ("spam,free entry in a weekly draw", "LT", False, 1, [2]),  # a usual name, but a class, too
    ("free entry in a weekly draw,spam", "TL", False, 2, [1]),
    ("ham,go until jurong point", "LT", False, 1, [2]),
    ("ham,text", "LT", False, 1, [2]),
    ("eggs,title", "LT", False, 1, [2]),
    ("1,a film", "CT", False, 1, [2]),
    ("1,text", "CT", False, 1, [2]),
    ("0,title,a text", "CTT", False, 1, [2, 3]),
    ("bacon,a class that comes only once in the file", "LT", False, 1, [2]),
    ("2023-05-01,words of the first text of all,ham", "DTL", False, 3, [1, 2]),
    ("word9,ham", "WL", False, 2, [1]),
    ("word,ham", "WL", False, 2, [1]),
    (",", "LT", False, 1, [2]),
]


@pytest.mark.parametrize(
    ("first", "kind", "header", "label", "texts"), HEADERS, ids=[f"{h[0]}-{h[1]}" for h in HEADERS]
)
def test_headers(tmp_path, first, kind, header, label, texts):
    path = write(tmp_path / "a.csv", f"{first}\n{body(kind)}")
    if label is None or texts is None:
        with pytest.raises(DataError, match="if it is data, give header=False"):
            read(path)
        return
    data = read(path, on_error="skip")
    assert ("with a header" in data.report.notes) == header, str(data.report)
    rows = [line.split(",") for line in body(kind).splitlines()]
    expected = [(row[label - 1], " ".join(row[t - 1] for t in texts)) for row in rows]
    assert pairs(data)[-len(rows) :] == expected
    assert len(data) + data.report.skipped == len(rows) + (not header)


@pytest.mark.parametrize(
    ("first", "kind"), [h[:2] for h in HEADERS if h[2] and h[1].startswith("LT")]
)
def test_texts_alone_have_no_header_among_them(tmp_path, first, kind):
    """It would be an extra answer, and shift all that follow."""
    path = write(tmp_path / "a.csv", f"{first}\n{body(kind)}")
    data = read_texts(path, text=2)
    assert data.texts.to_pylist() == [sentence(i) for i in range(40)]


@pytest.mark.parametrize(
    "first", ["foo,bar", "v1,v2,,,", "label,text,2023", "1,2", "spam,a b c d e f"]
)
def test_names_imply_a_header(tmp_path, first):
    """Also of a file with one row, in which nothing else could tell."""
    names = first.split(",")
    commas = "," * (len(names) - 2)
    path = write(tmp_path / "a.csv", f"{first}\nspam,free entry{commas}\n")
    if first == "1,2":  # numbers are no names
        assert pairs(read(path, label="1", text="2")) == [("1", "2"), ("spam", "free entry")]
        return
    for label, text in [
        (names[0], names[1]),
        (names[0], 2),
        (1, [names[1]]),
        (names[0].upper(), 2),
    ]:
        data = read(path, label=label, text=text)
        assert pairs(data) == [("spam", "free entry")]
        assert "with a header" in data.report.notes


def test_numbers_imply_nothing(tmp_path):
    path = write(tmp_path / "a.csv", "foo,bar\nspam,free entry\n")
    assert pairs(read(path, label=1, text=2)) == [("foo", "bar"), ("spam", "free entry")]
    path = write(tmp_path / "b.csv", f"v1,v2,,,\n{body('LT000')}")
    assert len(read(path, label=1, text=2)) == 40


def test_a_number_may_be_a_name(tmp_path):
    path = write(tmp_path / "a.csv", "label,text,2023\nspam,a text,another\n")
    for name in (2023, "2023"):
        assert pairs(read(path, text=name)) == [("spam", "another")]
    path = write(tmp_path / "b.csv", f",0,1\n{body('NLT', 3)}")
    assert pairs(read(path, label=2, text=3))[0] == ("spam", sentence(0))
    assert pairs(read(path, label="0", text="1"))[0] == ("spam", sentence(0))


def test_names_that_are_there_twice(tmp_path):
    path = write(tmp_path / "a.csv", "label,text,comment,Comment\na,b,c,d\n")
    assert pairs(read(path, text="comment")) == [("a", "c")]
    with pytest.raises(
        DataError, match="found 2 text columns 'COMMENT', numbers 3 and 4: give a num"
    ):
        read(path, text="COMMENT")
    path = write(tmp_path / "b.csv", "label,text,comment,comment\na,b,c,d\n")
    with pytest.raises(
        DataError, match="found 2 text columns 'comment', numbers 3 and 4: give a num"
    ):
        read(path, text="comment")
    data = read(path, text=[4, 2])
    assert pairs(data) == [("a", "d b")]
    assert data.report.texts == ["columns 4 ('comment'), 'text'"]
    assert pairs(read([path, path], text=4)) == [("a", "d"), ("a", "d")]


def test_names_that_are_not_there(tmp_path):
    path = write(tmp_path / "a.csv", "stars,body\n1,x\n")
    found = "found no label column 'kind': the columns are 'stars', 'body'. Row 1 was read as the "
    with pytest.raises(DataError, match=found + "header; if it is data, give header=False$"):
        read(path, label="kind")
    options = command_options({"header": "--header"})
    with options, pytest.raises(DataError, match=found + ".*give --no-header$"):
        read(path, label="kind")
    with pytest.raises(DataError, match=r"have no names, give a number .* give header=True$"):
        read(path, label="stars", header=False)
    path = write(tmp_path / "b.csv", ",".join(f"c{i}" for i in range(900)) + "\n")
    with pytest.raises(DataError, match=r"'c28', 'c29', and 870 more. Row 1"):
        read(path, label="kind")


def test_a_header_that_comes_again(tmp_path):
    """As `cat` leaves it: the first is a header nevertheless."""
    path = write(tmp_path / "a.csv", f"label,text\n{body('LT')}label,text\n{body('LT')}")
    data = read(path)
    assert "with a header" in data.report.notes
    assert len(data) == 81


def test_parts_of_a_file_with_a_header(tmp_path):
    """What `split` leaves; names are those of the first part."""
    first = write(tmp_path / "1.csv", f"foo,bar\n{body('LT')}")
    second = write(tmp_path / "2.csv", body("LT", 3))
    third = write(tmp_path / "3.csv", "bar,foo\nthe text,eggs\n")
    for options in ({}, {"label": "foo", "text": "bar"}):
        data = pairs(read([first, second, third], **options))
        assert len(data) == 44
        assert data[40] == ("spam", sentence(0))
        assert data[-1] == ("eggs", "the text")
