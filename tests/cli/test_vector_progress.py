"""What `hashembed vectors` shows while it reads and trains."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from hashembed.cli import vector_progress
from hashembed.cli.vector_progress import Bars, PlainLines, count_of, duration, vector_display
from hashembed.vectors.training import VectorProgress


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (12_300, "12k"), (1_250_000, "1.2M"), (63e6, "63.0M"), (4e9, "4.0G")],
)
def test_counts(number, text):
    assert count_of(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (59.4, "59 s"), (125, "2:05 min"), (11_400, "3:10 h")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def at(words, epoch, total=2000):
    return VectorProgress(epoch, 2, words, total, 1e5, 3.0, 2.5)


def test_plain_lines_show_the_end_of_each_pass_once(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(vector_progress.time, "monotonic", lambda: now[0])
    lines = PlainLines()
    for words, epoch in [(500, 0), (1000, 0), (1500, 1), (2000, 1)]:
        lines.train(at(words, epoch))
    now[0] += 6
    lines.read(2, 5_000_000)
    printed = capsys.readouterr().err.splitlines()
    assert printed == [
        "pass 1/2: 1k of 2k words, 100k words/s, loss 2.5000, 3 s left",
        "pass 2/2: 2k of 2k words, 100k words/s, loss 2.5000, 3 s left",
        "reading 2: 5 MB of text",
    ]


def test_bars_go_from_reading_to_training():
    out = io.StringIO()
    columns = (TextColumn("{task.description} {task.fields[state]} {task.fields[left]}"),)
    corpus = SimpleNamespace(bytes=4_000_000)
    console = Console(file=out, force_terminal=True, width=100)
    with Progress(*columns, console=console, auto_refresh=False) as bar:
        bars = Bars(bar, corpus)
        bars.read(2, 2_000_000)
        assert (bar.tasks[0].description, bar.tasks[0].percentage) == ("Reading (2)", 50)
        bars.say("read [b]400 rows")
        bars.train(at(1500, 1))
        assert [task.description for task in bar.tasks] == ["pass 2/2"]
        assert bar.tasks[0].percentage == 75
        bar.refresh()
    assert "read [b]400 rows" in out.getvalue()
    assert "100k words/s  loss 2.5000" in out.getvalue()


def test_quiet_shows_nothing(capsys):
    with vector_display(SimpleNamespace(bytes=0), quiet=True) as display:
        display.say("hello")
        display.read(1, 10)
        display.train(at(2000, 1))
    assert capsys.readouterr().err == ""
