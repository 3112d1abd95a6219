"""The demonstration of word vectors shows what it says."""

import re

import pytest
from click.testing import CliRunner

from hashembed.cli import demo_vectors as demo
from hashembed.cli import main
from hashembed.core.printable import printable


@pytest.fixture(scope="module")
def output() -> str:
    result = CliRunner().invoke(main, ["demo", "--vectors"])
    assert result.exit_code == 0, result.output
    return result.output


def test_it_trains_and_teaches(output):
    for words in ("6,400 sentences", "just now", "in the package", "hashembed nearest", "(unseen)"):
        assert words in output
    assert "walk is to walked as look is to looked" in output
    assert output == "\n".join(printable(line) for line in output.split("\n"))


def test_the_table_shows_that_more_text_helps(output):
    rows = re.findall(r"(just now|in the package) +([\d,]+) +(\d+)% +(\d+)%", output)
    assert [row[0] for row in rows] == ["just now", "in the package"]
    (_, _, here, now), (_, _, there, packaged) = rows
    assert min(int(here), int(there)) > 75  # by chance 6
    assert int(now) > 65
    assert int(packaged) > int(now) + 5


def test_the_file_is_small_and_knows_its_words():
    vectors, size = demo.of_package()
    assert size < 600_000
    assert all(word in vectors for word in (*demo.WORDS, *demo.ANALOGY))
    assert demo.UNSEEN not in vectors
    nearest = dict(demo.nearest_words(vectors))
    assert {"sept", "vingt", "deux"} < {near.word for near in nearest["trois"]}
    assert vectors.analogy(*demo.ANALOGY, 1)[0].word == "looked"


def test_one_demonstration_at_a_time():
    result = CliRunner().invoke(main, ["demo", "--vectors", "--page", "x.html"])
    assert result.exit_code == 2
    assert "found both" in result.stderr
