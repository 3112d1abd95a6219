"""Text to keys against the slow reference: any text, any bytes, any configuration, any input."""

import re
import string
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils import murmurhash3_32
from tests.cases import text_reference as reference

from hashembed.hashing import spec as hashing
from hashembed.hashing.bags import Bags
from hashembed.text import characters as unicode_tables
from hashembed.text import pipeline as text
from hashembed.text.arrow import to_arrow
from hashembed.text.config import TextConfig
from hashembed.text.pipeline import text_to_bags

quick = settings(max_examples=60, deadline=None)

WORDS = TextConfig((1, 1), lowercase=False)

orders = st.tuples(st.integers(1, 9), st.integers(1, 9)).map(lambda pair: tuple(sorted(pair)))
lengths = st.tuples(st.integers(1, 7), st.integers(1, 7)).map(lambda pair: tuple(sorted(pair)))
punctuations = st.sampled_from(["drop", "keep"])
repeats = st.sampled_from(["all", "damp", "once"])
configs = st.builds(TextConfig, orders, st.booleans(), st.none() | lengths, punctuations, repeats)

# Characters of every width, class and way of folding, words at the edges of the fast paths, and
# what is no UTF-8: stray, overlong, truncated, surrogates, too large.
CHARACTERS = list("aBz09 .\t\n\0\x1c\x7féßẞİΣςǰΐﬃԱﬓя…—\u3000\u00a0。漢한😀🏳\u200d\ufffd€߸𐐀𞤀")
LENGTHS = [c * n for n in (3, 4, 8, 11, 12, 15, 16, 17, 63, 64, 65, 200) for c in "x-"]
# Alternating words and punctuation, punctuation of all widths, marks that combine with it, emoji
# that join.
SMALL_WORDS = [
    "a." * 40,
    "…—" * 30,
    "-x" * 7,
    ":-)",
    "C++",
    "'\u0301",
    "#\ufe0f\u20e3",
    "𐄀𞥞",
    "👩\u200d💻",
]
BROKEN = [
    b"\x80", b"\xbf\xbf", b"\xc0\x80", b"\xc3", b"\xc3 ", b"\xe2\x80", b"\xe2\x80a",
    b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xef\xbf", b"\xf0\x9f\x98", b"\xf0\x80\x80\x80",
    b"\xf4\x90\x80\x80", b"\xf5\x80", b"\xff", b"\xe2\xe2\x80\xa6", b"\xc2\xc2\xa0",
]  # fmt: skip
fragments = st.sampled_from(
    [c.encode() for c in CHARACTERS + LENGTHS + SMALL_WORDS] + BROKEN
) | st.just(b" ")
documents = st.lists(fragments, max_size=60).map(b"".join) | st.binary(max_size=80)
# The last bytes of the data are read in a careful way; with these at the end, all others are not.
endings = st.sampled_from([[], [b" " * 100]])
texts = st.text(st.characters(codec="utf8") | st.sampled_from(CHARACTERS), max_size=40)


def assert_matches(bags: Bags, expected: list[str | bytes | None], config: TextConfig) -> None:
    assert len(bags) == len(expected)
    for i, document in enumerate(expected):
        assert bags[i].tolist() == reference.keys(document, config), (document, config)


# --- against the reference ---------------------------------------------------------------------


@quick
@given(st.lists(st.none() | texts, max_size=5), configs, endings)
def test_any_text(documents, config, ending):
    documents += [end.decode() for end in ending]
    assert_matches(text_to_bags(documents, config), documents, config)


@quick
@given(st.lists(st.none() | documents, max_size=5), configs, endings)
def test_any_bytes(documents, config, ending):
    documents += ending
    column = pa.array(documents, pa.binary())
    assert_matches(text_to_bags(column, config), documents, config)


@quick
@given(st.lists(st.none() | documents, max_size=9), configs, endings, st.integers(1, 300))
def test_documents_cut_in_segments(documents, config, ending, size):
    documents += ending
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_TASK", size)
        bags = text_to_bags(pa.array(documents, pa.large_binary()), config)
    assert_matches(bags, documents, config)


@quick
@given(st.binary(max_size=200), st.integers(0, 100))
def test_text_that_ends_with_the_buffer(data, skip):
    """No byte after the text may be read, and no byte before it may matter."""
    buffer = pa.py_buffer(bytearray(data))
    start = min(skip, len(data))
    offsets = pa.py_buffer(np.array([start, len(data)], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, buffer])
    assert_matches(text_to_bags(column, WORDS), [data[start:]], WORDS)


@quick
@given(st.lists(st.none() | documents, min_size=1, max_size=12), st.data())
def test_slices_chunks_and_types(documents, data):
    kinds = [pa.binary(), pa.large_binary(), pa.binary_view()]
    column = pa.array(documents, data.draw(st.sampled_from(kinds)))
    a, b, c = sorted(data.draw(st.integers(0, len(documents))) for _ in range(3))
    config = TextConfig((1, 3))
    assert_matches(text_to_bags(column[a:c], config), documents[a:c], config)
    chunks = pa.chunked_array([column[a:b], column[b:b], column[b:c]])
    assert_matches(text_to_bags(chunks, config), documents[a:c], config)
    assert_matches(text_to_bags(chunks.slice(1), config), documents[a:c][1:], config)


def every_character() -> tuple[pa.Array, list[str]]:
    points = np.delete(np.arange(0x110000), slice(0xD800, 0xE000))
    data = points.astype("<u4").tobytes().decode("utf-32-le").encode()
    first = np.frombuffer(data, np.uint8)
    starts = np.flatnonzero(first & 0xC0 != 0x80)
    offsets = np.append(starts, len(data)).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(points), buffers), list(map(chr, points))


@pytest.mark.parametrize("punctuation", ["drop", "keep"])
@pytest.mark.parametrize("lowercase", [True, False])
def test_every_character(lowercase, punctuation):
    """The class and the folding of all code points, each as a document."""
    column, characters = every_character()
    bags = text_to_bags(column, TextConfig((1, 1), lowercase, punctuation=punctuation))
    words = [reference.split(c, lowercase, punctuation) for c in characters]
    assert np.array_equal(bags.lengths, [len(w) for w in words])
    assert np.array_equal(bags.keys, fast_word_keys([w[0] for w in words if w]))


def fast_word_keys(words: list[str]) -> np.ndarray:
    """`hashing.word_key` of each, quickly enough for a million words."""
    data = [word.encode() for word in words]
    a, b = hashing.WORD_SEEDS
    return hashing.pack(
        [murmurhash3_32(d, a, positive=True) for d in data],
        [murmurhash3_32(d, b, positive=True) for d in data],
    )


@pytest.mark.parametrize(
    "prefix", ["", "some words to fill a chunk of sixty-four bytes and more, "]
)
@pytest.mark.parametrize("punctuation", ["drop", "keep"])
def test_every_character_inside_text(prefix, punctuation):
    """In the fast path too: between letters, far from the end of the data."""
    _, characters = every_character()
    characters = characters[:0x3000] + characters[0xA000:0xAC00] + characters[0xF000:0x12000]
    config = TextConfig((1, 1), punctuation=punctuation)
    bags = text_to_bags([f"{prefix}a{c}b" for c in characters], config)
    separators = np.array([reference.is_separator(c) for c in characters])
    before = len(reference.split(prefix, True, punctuation))
    kept = np.array([reference.kind(c, punctuation) == "punctuation" for c in characters])
    assert np.array_equal(bags.lengths, before + 1 + separators + kept)
    for i in np.flatnonzero(kept):
        assert bags[i][-2] == hashing.word_key(characters[i])
    for i in np.flatnonzero(~separators)[::7]:
        assert bags[i][-1] == hashing.word_key(f"a{reference.fold(characters[i])}b")


# --- what the words are ------------------------------------------------------------------------


def words(document: str | bytes, **options: object) -> list[int]:
    column = pa.array([document], pa.binary())
    return text_to_bags(column, TextConfig((1, 1), **options)).keys.tolist()


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("", []),
        (" \t\r\n\x0b\x0c\x1c\x85\u2028", []),
        (string.punctuation + "…—«»。、", []),
        ("It's a-b_c", ["it", "s", "a", "b", "c"]),
        ("a\0b \0", ["a\0b", "\0"]),
        ("€5 😀! a\u200db", ["€5", "😀", "a\u200db"]),
        ("ΟΔΟΣ οδος οδοσ", ["οδοσ"] * 3),
        ("Straße STRASSE", ["strasse"] * 2),
        ("İ ﬃ", ["i\u0307", "ffi"]),
        (b"a\xff b\xe2\x80", ["a\ufffd", "b\ufffd"]),
        (b"\xed\xa0\x80", ["\ufffd\ufffd\ufffd"]),
        (b"\xc0\xaf", ["\ufffd\ufffd"]),
        (b"a\xe2 b", ["a\ufffd", "b"]),
    ],
)
def test_words(document, expected):
    assert words(document) == [hashing.word_key(word) for word in expected]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (" \t\r\n\x0b\x0c\x1c\x85\u2028", []),
        ("C++ and C#!", ["c", "++", "and", "c", "#!"]),
        (":-) <3 ;D", [":-)", "<", "3", ";", "d"]),
        ("It's a-b_c", ["it", "'", "s", "a", "-", "b", "_", "c"]),
        ("no… 。、«»\u3000—", ["no", "…", "。、«»", "—"]),
        ("€5 😀!! 👩\u200d💻", ["€5", "😀", "!!", "👩\u200d💻"]),
        ("'\u0301 #\ufe0f\u20e3", ["'", "\u0301", "#", "\ufe0f\u20e3"]),
        (b"a\xff.\xe2\x80 b", ["a\ufffd", ".", "\ufffd", "b"]),
    ],
)
def test_words_where_punctuation_is_kept(document, expected):
    assert words(document, punctuation="keep") == [hashing.word_key(word) for word in expected]


@pytest.mark.parametrize("mark", ["!", "…", "𐄀"])
def test_punctuation_of_every_length(mark):
    config = TextConfig((1, 2), punctuation="keep")
    document = "a".join(mark * n + "-" * m for n in range(90) for m in range(4))
    assert_matches(text_to_bags([document], config), [document], config)


@pytest.mark.parametrize("letter", ["a", "Z", "é", "я", "漢", "𐐀", "ß"])
def test_words_of_every_length(letter):
    config = TextConfig((1, 2))
    document = " ".join(letter * n + "e" * m for n in range(90) for m in range(4))
    assert_matches(text_to_bags([document], config), [document], config)


def test_words_of_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "guides" / "text.md").read_text("utf8")
    table = page.split("| text | words with")[1].split("\n\n")[0]
    rows = [line.split("|")[1:4] for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) == 5
    for row in rows:
        document, *both = (re.findall("`(.+?)`", cell) for cell in row)
        for punctuation, expected in zip(("drop", "keep"), both, strict=True):
            found = words(document[0], punctuation=punctuation)
            assert found == [hashing.word_key(word) for word in expected]


def test_case_is_kept():
    assert words("Ab ΟΣ", lowercase=False) == [hashing.word_key(word) for word in ("Ab", "ΟΣ")]


def test_order_of_keys():
    bags = text_to_bags(["a b"], TextConfig((1, 2), subwords=(2, 3)))
    a = [hashing.subword_key(piece) for piece in ("<a", "<a>", "a>")]
    b = [hashing.subword_key(piece) for piece in ("<b", "<b>", "b>")]
    ab = hashing.ngram_key(["a", "b"])
    assert bags[0].tolist() == [hashing.word_key("a"), ab, *a, hashing.word_key("b"), *b]


def test_ngrams_stay_in_their_document():
    bags = text_to_bags(["a", "b c", "", "d"], TextConfig((2, 3)))
    assert bags.lengths.tolist() == [0, 1, 0, 0]
    assert bags.keys.tolist() == [hashing.ngram_key(["b", "c"])]


# --- size --------------------------------------------------------------------------------------


def big_document(megabytes: int) -> tuple[bytes, list[str]]:
    vocabulary = ["the", "a", "Quick", "brown", "été", "naïve", "антиконституционный", "x" * 100]
    chosen = np.random.default_rng(0).integers(0, len(vocabulary), 70_000)
    found = [vocabulary[i] for i in chosen]
    document = " ".join(found).encode()
    times = megabytes * 2**20 // len(document) + 1
    return b" ".join([document] * times), found * times


def check_big_document(megabytes: int, separator: bytes) -> None:
    document, found = big_document(megabytes)
    column = pa.array([b"before it", document.replace(b" ", separator), b"after it"])
    bags = text_to_bags(column, TextConfig((1, 3)))
    n = len(found)
    assert bags.lengths.tolist() == [3, 3 * n - 3, 3]
    unigrams = [hashing.word_key(word.casefold()) for word in dict.fromkeys(found)]
    table = dict(zip(dict.fromkeys(found), unigrams, strict=True))
    expected = np.array([table[word] for word in found])
    assert np.array_equal(bags[1][: 3 * (n - 2) : 3], expected[:-2])
    assert np.array_equal(bags[1][-3:-1:2], expected[-2:-1])
    one_thread = text_to_bags([document.decode()[: 2**17]], TextConfig((1, 3)))
    count = len(one_thread.keys) - 9
    assert np.array_equal(bags[1][:count], one_thread[0][:count])


@pytest.mark.parametrize("separator", [b" ", "。".encode()])
def test_one_big_document(separator):
    check_big_document(5, separator)


@pytest.mark.slow
def test_one_huge_document():
    check_big_document(100, b" ")


def test_one_big_word():
    """No place to cut."""
    word = "ab" * 2_000_000
    bags = text_to_bags([word + " c"], TextConfig((1, 2)))
    assert bags.keys[0] == fast_word_keys([word])[0]
    assert len(bags.keys) == 3


def test_a_megabyte_of_punctuation():
    """One word, no place to cut; and the most words that there can be."""
    keep = TextConfig((1, 2), punctuation="keep")
    run = "!?" * 2**19
    bags = text_to_bags([run, "", run + " a"], keep)
    assert bags.lengths.tolist() == [1, 0, 3]
    assert bags.keys[0] == bags.keys[1] == fast_word_keys([run])[0]
    bags = text_to_bags(["a." * 2**19], TextConfig((1, 1), punctuation="keep"))
    assert np.array_equal(bags.keys, np.tile(fast_word_keys(["a", "."]), 2**19))
    assert len(text_to_bags(["a." * 2**19 + run], TextConfig((1, 2))).keys) == 2**20 - 1


def test_a_million_empty_documents():
    offsets = np.zeros(1_000_001, np.int32)
    column = pa.Array.from_buffers(
        pa.string(), 1_000_000, [None, pa.py_buffer(offsets), pa.py_buffer(b"")]
    )
    bags = text_to_bags(column)
    assert len(bags) == 1_000_000
    assert len(bags.keys) == 0


THREADS = """
import sys, zlib, numpy as np
from hashembed.text.pipeline import TextConfig, text_to_bags
rng = np.random.default_rng(0)
words = np.array(["one", "Two", "three,", "vier", "fünf", "шесть", "…", "", "seven" * 5])
long = [" ".join(words[rng.integers(0, 9, 600_000)])]
short = [" ".join(words[rng.integers(0, 9, n)]) for n in rng.integers(0, 60, 20_000)]
bags = text_to_bags(short + long + short, TextConfig((1, 3), subwords=(4, 5)), int(sys.argv[1]))
print(len(bags.keys), zlib.crc32(bags.keys), zlib.crc32(bags.offsets))
"""


def test_any_number_of_threads():
    results = {
        subprocess.run(
            [sys.executable, "-c", THREADS, threads],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2", "8")
    }
    assert len(results) == 1
    assert int(results.pop().split()[0]) > 1_000_000


# --- inputs ------------------------------------------------------------------------------------

TEXTS = ["Hello world", "b" * 50, None, "", "x y z"]


class Stream:
    """An object with Arrow's C stream and nothing else, like a column of a data frame library."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self.column = column

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.column.__arrow_c_stream__(requested_schema)


class Objects:
    """An object with `to_numpy`, like a column of an older data frame library."""

    def __init__(self, values: list[object]) -> None:
        self.values = values

    def to_numpy(self) -> np.ndarray:
        return np.array(self.values, object)


NOT_A_NUMBER = float("nan")


@pytest.mark.parametrize(
    "column",
    [
        TEXTS,
        tuple(TEXTS),
        iter(TEXTS),
        (t for t in TEXTS),
        dict(enumerate(TEXTS)).values(),
        np.array(TEXTS, object),
        np.array([NOT_A_NUMBER if t is None else t for t in TEXTS], object),
        pa.array(TEXTS),
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.string_view()),
        pa.array(TEXTS, pa.binary()),
        pa.array(TEXTS).dictionary_encode(),
        pa.array(TEXTS, pa.string_view()).cast(pa.string()).dictionary_encode(),
        pa.chunked_array([[t] for t in TEXTS], pa.string()),
        Stream(pa.chunked_array([TEXTS[:2], TEXTS[2:]])),
        Objects([NOT_A_NUMBER if t is None else t for t in TEXTS]),
        [t and t.encode() for t in TEXTS],
    ],
    ids=lambda column: type(column).__name__,
)
def test_inputs(column):
    config = TextConfig()
    assert_matches(text_to_bags(column, config), TEXTS, config)


def test_numpy_strings():
    for column in (np.array(["a b", "c"]), np.array([b"a b", b"c"])):
        assert_matches(text_to_bags(column), ["a b", "c"], TextConfig())


@pytest.mark.parametrize(
    "column",
    [
        [],
        iter([]),
        pa.array([], pa.string()),
        pa.chunked_array([], pa.string()),
        np.array([], object),
    ],
)
def test_no_texts(column):
    assert len(text_to_bags(column)) == 0


def test_only_nulls():
    assert text_to_bags(pa.nulls(3)).lengths.tolist() == [0, 0, 0]


def test_null_with_bytes_of_its_own():
    buffers = [
        pa.py_buffer(b"\x01"),
        pa.py_buffer(np.array([0, 1, 3], np.int32)),
        pa.py_buffer(b"abc"),
    ]
    column = pa.Array.from_buffers(pa.string(), 2, buffers)
    assert_matches(text_to_bags(column), ["a", None], TextConfig())


def test_many_python_texts():
    """More than one batch of objects becomes Arrow."""
    many = [f"text {i}" for i in range(10_000)]
    bags = text_to_bags(iter(many), WORDS)
    assert len(bags) == 10_000
    assert bags[9_999].tolist() == reference.keys("text 9999", WORDS)


def test_lone_surrogates():
    odd = ["a\ud800b c", "\udfff", "fine"]
    expected = ["a\ufffdb c", "\ufffd", "fine"]
    for column in (odd, np.array(odd, object), Objects(odd)):
        assert_matches(text_to_bags(column), expected, TextConfig())


def test_arrow_is_not_copied():
    column = pa.array(["a b", "c"])
    assert to_arrow(column).chunk(0).buffers()[2].address == column.buffers()[2].address


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("a b", r"found one str: put it in a list"),
        (b"a b", r"found one bytes: put it in a list"),
        (["a", 3], r"text 1 must be a str or None, found 3 of type int"),
        (["a", NOT_A_NUMBER], r"text 1 must be a str or None, found nan of type float"),
        ((t for t in ["a"] * 5000 + [b"b", ["c"]]), r"text 5001 must be a str .*found \['c'\]"),
        (np.arange(3), r"text 0 must be a str or None, found 0 of type int"),
        (np.array([["a"]]), r"one dimension, found an array of shape \(1, 1\)"),
        (pa.array([1]), r"must be strings, found Arrow's int64"),
        (pa.array([1]).dictionary_encode(), r"must be strings, found Arrow's int64"),
        (pa.table({"a": ["b"]}), r"found Arrow's struct<a: string>: pass one of its columns"),
        ({"a": "b"}, r"an iterable of str, found dict"),
        (None, r"an iterable of str, found NoneType"),
    ],
)
def test_refused_inputs(column, message):
    with pytest.raises(TypeError, match=message):
        text_to_bags(column)


def test_damaged_arrow():
    buffers = [None, pa.py_buffer(np.array([0, 3, 1, 2], np.int32)), pa.py_buffer(b"abc")]
    with pytest.raises(ValueError, match="damaged Arrow array"):
        text_to_bags(pa.Array.from_buffers(pa.string(), 3, buffers))


# --- configuration -----------------------------------------------------------------------------


@given(configs)
def test_configuration_survives_saving(config):
    assert TextConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ngrams": (0, 2)}, ValueError, r"ngrams\[0\] must be .* from 1 to 9, found 0"),
        ({"ngrams": (2, 1)}, ValueError, r"ngrams\[1\] must be .* from 2 to 9, found 1"),
        ({"ngrams": (1, 10)}, ValueError, r"ngrams\[1\] must be .* from 1 to 9, found 10"),
        ({"ngrams": 2}, TypeError, r"ngrams must be \(lowest, highest\).*, found 2"),
        ({"ngrams": (1, 2.5)}, TypeError, r"ngrams\[1\] must be .*found 2.5 of type float"),
        ({"subwords": (3,)}, TypeError, r"subwords must be \(lowest, highest\).*, found \(3,\)"),
        ({"subwords": (3, 99)}, ValueError, r"subwords\[1\] must be .* from 3 to 32, found 99"),
        ({"lowercase": 1}, TypeError, r"lowercase must be True or False, found 1"),
        ({"punctuation": "split"}, ValueError, r"punctuation must be one of 'drop', 'keep'"),
    ],
)
def test_refused_configurations(options, error, message):
    with pytest.raises(error, match=message):
        TextConfig(**options)


def test_the_default_saves_what_older_versions_read():
    assert "punctuation" not in TextConfig().to_dict()
    old = {"ngrams": [1, 2], "lowercase": True, "subwords": None, "unicode": "14.0.0"}
    assert TextConfig.from_dict(old) == TextConfig(punctuation="drop")


def test_refused_saved_configurations():
    with pytest.raises(ValueError, match=r"saved for Unicode 1\.0, but .* has Unicode 14\.0\.0"):
        TextConfig.from_dict({"unicode": "1.0"})
    with pytest.raises(ValueError, match="unknown setting of the text configuration: 'stem'"):
        TextConfig.from_dict({"stem": True})


# --- tables ------------------------------------------------------------------------------------


def test_white_space_is_what_python_calls_so():
    space = [c for c in map(chr, range(0x110000)) if c.isspace()]
    assert space == [chr(c) for run in unicode_tables.WHITE_SPACE for c in range(*run)]


@pytest.mark.skipif(not reference.SAME_UNICODE, reason="this Python has another Unicode")
def test_shipped_tables_are_those_of_unicode(capsys):
    unicode_tables.main()
    source = Path(unicode_tables.__file__).read_text("utf8")
    assert all(line in source for line in capsys.readouterr().out.splitlines())


def test_shipped_tables_agree_with_any_python():
    """Later versions of Unicode assign more code points, and change nothing else."""
    separator = unicode_tables.character_table(False)[:0x110000] == unicode_tables.SEPARATOR
    now = [unicode_tables.is_separator(chr(c)) for c in range(0x110000)]
    assert not (separator & ~np.array(now)).any()
    points = unicode_tables.expand(unicode_tables._FOLDS, 4)
    for c, *folded in points.tolist():
        assert chr(c).casefold() == "".join(chr(f) for f in folded if f >= 0)
    assert int(unicodedata.unidata_version.split(".")[0]) >= 14
