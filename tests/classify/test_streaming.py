"""Streams: resuming an interrupted one, continuing with new data, Ctrl-C."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

from hashembed import TextClassifier
from hashembed.classify.stream_position import StreamPosition
from hashembed.classify.streaming import OtherStreamError, learn_stream, unlearned
from hashembed.cli import main
from hashembed.engine.tensor_file import load_tensors

SIZES = ("--num-embeddings", "5k", "--ngrams", "1", "--batch-size", "16")


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


def write(path, rows, seed):
    rng = random.Random(seed)
    lines = ["label,text"]
    for _ in range(rows):
        label = rng.choice(["good", "bad"])
        lines.append(f"{label},{label}{rng.randrange(9)} w{rng.randrange(50)} w{rng.randrange(50)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def weights(path):
    return load_tensors(path, "TextClassifier")[0]


def same(one, other):
    one, other = weights(one), weights(other)
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


@pytest.fixture
def days(tmp_path):
    return write(tmp_path / "day1.csv", 100, 1), write(tmp_path / "day2.csv", 70, 2)


def test_the_next_day_is_learned_with_continue(days, tmp_path):
    model, both = tmp_path / "m", tmp_path / "both"
    run("train", "--stream", days[0], "-o", model, *SIZES)
    result = run("train", "--stream", days[1], "-o", model, "--continue")
    assert "has learned 100 texts, with new data" in result.stderr
    assert "after 170 texts, 70 of them new" in result.stderr
    assert TextClassifier.load(model).texts_seen_ == 170
    clf = TextClassifier.load(model)
    assert clf.stream_position_.texts == 70  # of day 2
    clf = TextClassifier(num_embeddings=5000, ngrams=(1, 1), batch_size=16)
    for day in days:
        rows = [line.split(",") for line in day.read_text().splitlines()[1:]]
        learn_stream(
            clf,
            [
                ([t for _, t in rows[i : i + 16]], [y for y, _ in rows[i : i + 16]])
                for i in range(0, len(rows), 16)
            ],
        )
    clf.save(both, for_training=True)
    assert same(model, both)


def test_resume_refuses_other_data(days, tmp_path):
    model = tmp_path / "m"
    run("train", "--stream", days[0], "-o", model, *SIZES)
    before = model.read_bytes()
    longer = write(tmp_path / "other.csv", 300, 3)
    result = run("train", "--stream", longer, "-o", model, "--resume", code=1)
    assert "the first 100 texts of this stream are not the ones" in result.stderr
    assert "or learn them as new data with --continue" in result.stderr
    result = run("train", "--stream", days[1], "-o", model, "--resume", code=1)
    assert "this stream has only 70. Give the same files" in result.stderr
    assert model.read_bytes() == before


def test_resume_learns_what_a_grown_file_has_more(days, tmp_path):
    model, data = tmp_path / "m", days[0]
    run("train", "--stream", data, "-o", model, *SIZES)
    result = run("train", "--stream", data, "-o", model, "--resume")
    assert "Found no new texts: 100 were learned before" in result.stderr
    with data.open("a") as file:
        file.write("good,late news\n")
    result = run("train", "--stream", data, "-o", model, "--resume")
    assert "skipping the first 100 texts of the stream" in result.stderr
    assert TextClassifier.load(model).texts_seen_ == 101
    # the last day's stream is what can be resumed, after a day before it, too
    run("train", "--stream", days[1], "-o", model, "--continue")
    result = run("train", "--stream", days[1], "-o", model, "--resume")
    assert "Found no new texts: 70 were" in result.stderr


def test_resume_needs_a_stream(days, tmp_path):
    model = tmp_path / "m"
    run("train", days[0], "-o", model, *SIZES)
    result = run("train", "--stream", days[0], "-o", model, "--resume", code=2)
    assert "was not trained with --stream" in result.stderr
    run("train", "--stream", days[1], "-o", model, "--continue")
    assert TextClassifier.load(model).texts_seen_ == 170


def test_a_first_run_may_resume_but_not_continue(days, tmp_path):
    first = ("train", "--stream", days[0], "-o", tmp_path / "m", *SIZES)
    result = run(*first, "--continue", code=2)
    assert "to continue. Leave out --continue" in result.stderr
    result = run(*first, "--resume")
    assert "Found no model" in result.stderr
    assert TextClassifier.load(tmp_path / "m").texts_seen_ == 100


def test_a_stream_that_breaks_off_says_what_it_wrote(days, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text(days[0].read_text() + ",no label\n")
    result = run("train", "--stream", bad, "-o", tmp_path / "m", *SIZES, code=1)
    texts = TextClassifier.load(tmp_path / "m").texts_seen_
    assert 0 < texts <= 100
    assert (
        f"Wrote {tmp_path / 'm'} after {texts} texts. Run the command again with --resume"
        in result.stderr
    )


def test_a_loss_that_is_not_finite_leaves_the_file(days, tmp_path):
    model = tmp_path / "m"
    run("train", "--stream", days[0], "-o", model, *SIZES)
    before = model.read_bytes()
    more = ("train", "--stream", days[1], "-o", model, "--continue", "--save-seconds", "0")
    result = run(*more, "--learning-rate", "1e30", code=1)
    assert "no longer a finite number" in result.stderr
    assert "Wrote" not in result.stderr
    assert model.read_bytes() == before


def test_a_row_that_is_skipped_is_no_class(tmp_path):
    data = tmp_path / "data.csv"
    data.write_text("label,text\n" + "a,good\nb,bad\n" * 9 + ",no label\na,one,too many\n")
    for way in ((), ("--stream", "--num-embeddings", "1k")):
        run("train", data, "-o", tmp_path / "m", "--on-error", "skip", *way)
        assert TextClassifier.load(tmp_path / "m").classes_.tolist() == ["a", "b"]


def test_a_model_keeps_its_options(days, tmp_path):
    model = tmp_path / "m"
    run("train", "--stream", days[0], "-o", model, *SIZES)
    more = ("train", "--stream", days[1], "-o", model)
    result = run(*more, "--continue", "--ngrams", "1-3", code=2)
    assert "--ngrams is 1-3, but" in result.stderr
    assert "was made with 1-1: leave out --ngrams" in result.stderr
    run(*more, "--continue", "--embedding-dim", "7", code=2)
    run(*more, "--continue", "--class-weight", "balanced", code=2)
    run(*more, "--continue", "--save-seconds", "nan", code=2)
    run(*more, "--resume", "--learning-rate", "0.5", code=2)
    run(*more, "--resume", "--continue", code=2)
    run(
        *more,
        "--continue",
        "--embedding-dim",
        "16",
        "--ngrams",
        "1",
        "--learning-rate",
        "0.5",
        "--batch-size",
        "8",
    )
    clf = TextClassifier.load(model)
    assert (clf.stream_rate_, clf.batch_size) == (0.5, 8)


def test_labels_of_numbers_are_continued_from_files(days, tmp_path):
    clf = TextClassifier(num_embeddings=1000).partial_fit(["a b", "c d"], [1, 2])
    clf.save(tmp_path / "m", for_training=True)
    data = tmp_path / "more.csv"
    data.write_text("label,text\n2,e f\n3,g h\n")
    run("train", "--stream", data, "-o", tmp_path / "m", "--continue")
    assert TextClassifier.load(tmp_path / "m").classes_.tolist() == [1, 2, 3]
    result = run("train", "--stream", days[0], "-o", tmp_path / "m", "--continue", code=1)
    assert "the model's classes are whole numbers, such as" in result.stderr


def test_positions_do_not_depend_on_batches():
    texts, labels = [f"text {i}" for i in range(10)], [str(i % 3) for i in range(10)]
    whole = StreamPosition().after(texts, labels)
    parts = StreamPosition().after(texts[:3], labels[:3]).after(texts[3:], labels[3:])
    assert whole == parts != StreamPosition().after(texts[::-1], labels[::-1])
    assert whole != StreamPosition().after(texts, labels[::-1])
    assert StreamPosition.from_dict(whole.to_dict()) == whole


def test_unlearned_skips_inside_a_batch():
    batches = [(["a", "b"], "xy"), (["c", "d"], "xy"), (["e"], "x")]
    position = StreamPosition().after(["a", "b", "c"], "xyx")
    assert list(unlearned(batches, position)) == [(["d"], "y"), (["e"], "x")]
    with pytest.raises(OtherStreamError, match="the first 3 texts"):
        list(unlearned([(["a", "b", "X"], "xyx")], position))
    with pytest.raises(OtherStreamError, match="has only 2"):
        list(unlearned(batches[:1], position))


def test_a_rate_that_cannot_be_is_refused(days, tmp_path):
    model = tmp_path / "m"
    run("train", "--stream", days[0], "-o", model, *SIZES)
    before = model.read_bytes()
    for rate in ("nan", "-1", "0", "inf"):
        more = ("train", "--stream", days[1], "-o", model, "--learning-rate", rate)
        result = run(*more, "--continue", code=1)
        assert "--learning-rate must be above 0" in result.stderr
        run(*more, code=1)
        with pytest.raises(ValueError, match="learning_rate must be above 0"):
            TextClassifier(learning_rate=float(rate)).partial_fit(["a"], ["b"])
    assert model.read_bytes() == before


INTERRUPTED = """
import random, signal, sys
from hashembed import TextClassifier
from hashembed.classify.streaming import learn_stream

def interrupt(number, frame):
    raise KeyboardInterrupt

def batches():
    rng = random.Random(0)
    for _ in range(200):
        labels = [rng.choice("ab") for _ in range(8)]
        yield [f"{y}{rng.randrange(9)} w{rng.randrange(20)}" for y in labels], labels

def made():
    return TextClassifier(num_embeddings=500, num_buckets=50, ngrams=(1, 1), threads=2)

import numpy as np
whole = made()
learn_stream(whole, batches())
signal.signal(signal.SIGALRM, interrupt)
rng, interrupts, clf, resume = random.Random(int(sys.argv[1])), 0, made(), False
while True:
    try:
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.001, 0.03))
        learn_stream(clf, batches(), resume=resume)
        signal.setitimer(signal.ITIMER_REAL, 0)
        break
    except KeyboardInterrupt:
        interrupts += 1
        resume = True
        assert getattr(clf, "texts_seen_", 0) % 8 == 0
assert clf.texts_seen_ == 1600 == clf.stream_position_.texts
one, other = whole.model_.state(), clf.model_.state()
assert all(np.array_equal(one[n], other[n]) for n in one)
print(interrupts)
"""


@pytest.mark.parametrize(
    "runs", [1, pytest.param(30, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_an_interrupted_stream_learns_each_batch_once(runs):
    interrupts = 0
    for seed in range(runs):
        command = [sys.executable, "-c", INTERRUPTED, str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        interrupts += int(done.stdout)
    assert interrupts >= runs


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "hashembed", *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        # Tests that a shell runs in the background ignore the signal, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_control_c_in_a_stream_then_resume_is_one_run(tmp_path):
    data = write(tmp_path / "data.csv", 3000, 1)
    whole, model = tmp_path / "whole", tmp_path / "m"
    stream = ("train", "--stream", data, *SIZES)
    run(*stream, "-o", whole)
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    lines = data.read_text().splitlines(keepends=True)
    process = start("train", "--stream", pipe, *SIZES, "-o", model, "--save-seconds", "0")
    with pipe.open("w") as file:
        file.write("".join(lines[: 1 + 16 * 90]))
        file.flush()
        deadline = time.monotonic() + 120
        while not model.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    said = process.stderr.read()
    process.stderr.close()
    assert "with --resume to learn the rest" in said
    assert "Traceback" not in said
    run(*stream, "-o", model, "--resume")
    assert TextClassifier.load(model).texts_seen_ == 3000
    assert (
        TextClassifier.load(model).stream_position_ == TextClassifier.load(whole).stream_position_
    )


def test_control_c_in_the_first_pass_leaves_the_older_model(tmp_path):
    data, model = write(tmp_path / "data.csv", 20_000, 1), tmp_path / "m"
    run("train", write(tmp_path / "small.csv", 100, 2), "-o", model)
    before = model.read_bytes()
    process = start(
        *("train", data, "-o", model, "--embedding-dim", "256", "--members", "400"),
        *("--batch-size", "2", "--passes", "1"),
    )
    for line in process.stderr:
        if "classes" in line:  # training begins
            break
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(120) == 130
    process.stderr.close()
    assert "wrote no model" in rest
    assert "Traceback" not in rest
    assert model.read_bytes() == before


def test_control_c_after_a_pass_keeps_what_was_learned(tmp_path):
    data, model = write(tmp_path / "data.csv", 2000, 1), tmp_path / "m"
    process = start("train", data, "-o", model, "--passes", "100000")
    for line in process.stderr:
        if line.startswith("pass 3/"):
            break
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(120) == 130
    process.stderr.close()
    assert "Stopped: interrupted in pass" in rest
    assert f"Wrote {model}" in rest
    assert TextClassifier.load(model).history_.stopped.startswith("interrupted in pass")


def test_control_c_reaches_loops_around_fit():
    clf = TextClassifier(passes=5)

    def interrupt(progress):
        if progress.epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clf.fit(["good film", "bad film"] * 20, ["+", "-"] * 20, callbacks=[interrupt])
    assert clf.history_.stopped == "interrupted in pass 2"
    assert clf.predict(["good"]).tolist() == ["+"]
