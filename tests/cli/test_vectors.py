"""The commands around word vectors, as people and scripts use them."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

from hashembed import TextClassifier, WordVectors
from hashembed.cli import main
from hashembed.cli.demo_vectors import path_of_file

ANIMALS = ["cat", "dog", "horse", "cow", "mouse", "goat"]
TOOLS = ["hammer", "saw", "drill", "wrench", "chisel", "pliers"]
SMALL = ("--dim", "12", "--batch-size", "64", "--passes", "4")


def has(method):
    return pytest.mark.skipif(
        not hasattr(WordVectors, method), reason=f"WordVectors has no {method}"
    )


def texts_about(count=400, seed=0):
    """Texts whose words come from one topic each."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice((ANIMALS, TOOLS)[i % 2], 12)) for i in range(count)]


def run(*arguments, code=0, **options):
    result = CliRunner().invoke(main, [str(a) for a in arguments], **options)
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """corpus.txt, vectors of it (v), without n-grams (words), for training (full); a classifier."""
    path = tmp_path_factory.mktemp("vectors")
    (path / "corpus.txt").write_text("".join(f"{text}\n" for text in texts_about()))
    run("vectors", path / "corpus.txt", "-o", path / "v", *SMALL, "-q")
    run("vectors", path / "corpus.txt", "-o", path / "words", *SMALL, "--subwords", "none", "-q")
    run("vectors", path / "corpus.txt", "-o", path / "full", *SMALL, "--for-training", "-q")
    TextClassifier(effort="fast").fit(["good", "bad"] * 5, ["+", "-"] * 5).save(path / "model")
    return path


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)


# --- vectors --------------------------------------------------------------------------------------


def test_vectors_says_what_it_read_and_made(tmp_path):
    out = tmp_path / "v.safetensors"
    result = run("vectors", "corpus.txt", "-o", out, *SMALL)
    assert "read 400 rows from 1 file (lines)" in result.stderr
    assert "pass 1/4: 5k of 21k words" in result.stderr
    assert "pass 4/4" in result.stderr
    assert "4,800 words, 12 different ones that occur at least 5 times" in result.stderr
    assert f"Wrote {out} (" in result.stderr
    next_word = result.stderr.split(f"Next: hashembed nearest {out} ")[1].strip()
    assert next_word in ANIMALS + TOOLS
    assert result.stdout == ""
    assert run("vectors", "corpus.txt", "-o", out, *SMALL, "-q").output == ""


def test_vectors_is_the_class_in_python(folder, tmp_path):
    want = WordVectors(embedding_dim=12, batch_size=64, passes=4).fit(texts_about())
    want.save(tmp_path / "python")
    assert (tmp_path / "python").read_bytes() == (folder / "v").read_bytes()


def test_vectors_in_json(tmp_path):
    options = ("--model", "cbow", "--bits", "4", "--seed", "3", "--no-lowercase", "--json", "-q")
    found = json.loads(run("vectors", "corpus.txt", "-o", tmp_path / "v", *SMALL, *options).stdout)
    assert found["data"]["rows"] == 400
    assert found["words"] == 4800
    assert found["vocabulary"] == 12
    assert len(found["losses"]) == 4
    assert found["model"]["bytes"] == (tmp_path / "v").stat().st_size
    wanted = {"model": "cbow", "seed": 3, "lowercase": False, "passes": 4, "embedding_dim": 12}
    assert wanted.items() <= found["settings"].items()


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.txt.gz", "t.ft", "t.parquet"])
def test_every_format_gives_the_same_vectors(name, folder, tmp_path):
    texts, path = texts_about(), tmp_path / name
    if name == "t.csv":
        path.write_text("id,text\n" + "".join(f"{i},{text}\n" for i, text in enumerate(texts)))
    elif name == "t.jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    elif name == "t.ft":
        path.write_text("".join(f"__label__x {text}\n" for text in texts))
    elif name == "t.parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"text": texts}), path)
    else:
        path.write_bytes(gzip.compress("".join(f"{text}\n" for text in texts).encode()))
    given = [("--text", "text")] if name == "t.csv" else [()]
    run("vectors", path, "-o", tmp_path / "v", *SMALL, *given[0], "-q")
    assert (tmp_path / "v").read_bytes() == (folder / "v").read_bytes()


def test_a_folder_is_a_text_for_each_file_or_data_files(folder, tmp_path):
    texts = texts_about()
    (tmp_path / "texts").mkdir()
    (tmp_path / "data" / "more").mkdir(parents=True)
    for i, text in enumerate(texts):
        (tmp_path / "texts" / f"{i:04}").write_text(text[:20] + "\n" + text[20:])
    for name, part in (("data/a", texts[:150]), ("data/more/b", texts[150:])):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in part)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    (tmp_path / "data" / "README").write_text("not data")
    run("vectors", tmp_path / "data", "-o", tmp_path / "v", *SMALL, "-q")
    assert (tmp_path / "v").read_bytes() == (folder / "v").read_bytes()
    result = run("vectors", tmp_path / "texts", "-o", tmp_path / "w", *SMALL)
    assert "read 400 rows" in result.stderr


def test_standard_input_and_pipes_are_copied_and_removed(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    text = (folder / "corpus.txt").read_bytes()
    result = run("vectors", "-", "-o", tmp_path / "v", *SMALL, input=text)
    assert (tmp_path / "v").read_bytes() == (folder / "v").read_bytes()
    assert "read 400 rows from 1 file (lines)" in result.stderr
    assert os.listdir(tmp_path) == ["v"]
    twice = run("vectors", "-", "-", "-o", tmp_path / "w", input=text, code=2)
    assert "found standard input twice" in twice.stderr
    bad = run("vectors", "-", "--format", "csv", "-o", tmp_path / "w", input='a,b\n"x\n', code=1)
    assert "standard input, line 2: found a quote that is never closed" in bad.stderr
    skipped = run(
        *("vectors", "-", "--format", "jsonl", "--on-error", "skip", "-o", tmp_path / "v"),
        *("--min-count", "1", "--json", *SMALL),
        input='{"text": "one two"}\n{"text": \n{"text": "two"}\n',
    )
    found = json.loads(skipped.stdout)["data"]
    assert found["files"] == ["standard input"]
    assert found["problems"][0]["file"] == "standard input"
    assert "skipped 1 row: standard input, line 2" in skipped.stderr
    assert os.listdir(tmp_path) == ["v"]


def test_a_corpus_larger_than_memory_is_read_again(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("hashembed.cli.corpus.IN_MEMORY", 1000)
    run("vectors", "corpus.txt", "-o", tmp_path / "v", *SMALL, "-q")
    assert (tmp_path / "v").read_bytes() == (folder / "v").read_bytes()


def test_names_of_fasttext(tmp_path):
    sizes = ("-dim", "12", "-epoch", "2", "-ws", "3", "-minCount", "2", "-thread", "1")
    names = (*sizes, "-minn", "2", "-maxn", "4", "-t", "1e-3")
    result = run("vectors", "-input", "corpus.txt", "-output", tmp_path / "v", *names, "--json")
    settings = json.loads(result.stdout)["settings"]
    wanted = {"embedding_dim": 12, "passes": 2, "window": 3, "min_count": 2, "subwords": [2, 4]}
    assert {**wanted, "sample": 1e-3}.items() <= settings.items()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.txt"], 1, "missing.txt: no such file"),
        (["corpus.txt", "--subwords", "6-3"], 2, "expected a length from 1 to 99 or a range"),
        (["corpus.txt", "--subwords", "auto"], 2, "found 'auto', expected lengths such as 3-6"),
        (["corpus.txt", "--sample", "0"], 2, "--sample"),
        (["corpus.txt", "--for-training", "--bits", "4"], 2, "found both"),
        (["corpus.txt", "--phrase-threshold", "5"], 2, "needs --phrases"),
        (["corpus.txt", "--continue", "full", "--dim", "5"], 2, "vectors keep their settings"),
        (["corpus.txt", "--continue", "v"], 1, "v has no training state"),
        (["corpus.txt", "--continue", "model"], 1, "model holds a text classifier"),
        (["corpus.txt", "--min-count", "1000"], 1, "found no word that occurs 1000 times"),
    ],
)
def test_what_cannot_be_trained(arguments, code, message, tmp_path):
    result = run("vectors", *arguments, "-o", tmp_path / "v", code=code)
    assert message in result.stderr
    assert os.listdir(tmp_path) == []


def test_outputs_are_checked_before_the_work(tmp_path):
    for output, message in [
        ("corpus.txt", "is also an input"),
        (tmp_path / "no" / "v", "found no folder"),
    ]:
        assert message in run("vectors", "corpus.txt", "-o", output, code=2).stderr
    (tmp_path / "notes").write_text("my notes")
    result = run("vectors", "corpus.txt", "-o", tmp_path / "notes", *SMALL, code=2)
    assert "already exists and is not a model" in result.stderr
    run("vectors", "corpus.txt", "-o", tmp_path / "notes", *SMALL, "--force", "-q")
    assert len(WordVectors.load(tmp_path / "notes")) == 12


def test_ctrl_c_leaves_nothing_behind(folder, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "hashembed", "vectors", "-", "-o", "v", "--passes", "100000"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "TMPDIR": str(temporary),
        },
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdin.write((folder / "corpus.txt").read_text())
    process.stdin.close()
    for line in process.stderr:
        if line.startswith("pass"):
            break
    assert len(os.listdir(temporary)) == 1
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 130
    assert "interrupted" in rest
    assert os.listdir(tmp_path) == ["tmp"]
    assert os.listdir(temporary) == []


@has("partial_fit")
def test_training_continues(tmp_path):
    new = tmp_path / "new.txt"
    new.write_text("zebra cat dog zebra horse\n" * 50)
    result = run("vectors", new, "--continue", "full", "-o", tmp_path / "more")
    more = WordVectors.load(tmp_path / "more")
    assert "zebra" in more
    assert set(ANIMALS) < set(more.index_to_key)
    assert "Next: hashembed nearest" in result.stderr
    run("vectors", new, "--continue", tmp_path / "more", "-o", tmp_path / "more", "-q")
    run("vectors", new, "--continue", tmp_path / "more", "-o", tmp_path / "use", "--bits", "8")
    info = run("info", tmp_path / "use", "--json")
    assert json.loads(info.stdout)["meta"]["bits"] == 8


# --- nearest and analogy --------------------------------------------------------------------------


def test_nearest_words():
    result = run("nearest", "v", "cat", "--top", "5")
    first, *rest = result.stdout.splitlines()
    assert first == "cat"
    assert {line.split()[1] for line in rest} == set(ANIMALS) - {"cat"}
    assert all(0.3 < float(line.split()[0]) < 1 for line in rest)


def test_nearest_words_of_unknown_ones():
    result = run("nearest", "v", "hammers", "cat dog", "--top", "3")
    assert "hammers (not in the vocabulary: a vector of its character n-grams)" in result.stdout
    assert "cat dog (the mean of its words)" in result.stdout
    assert result.stdout.splitlines()[1].split()[1] in TOOLS
    none = run("nearest", "words", "hammers", code=1)
    assert none.stderr == (
        "hammers: not in the vocabulary, and these vectors have no character n-grams\n"
    )
    assert "found no word" in run("nearest", "v", "?!", code=1).stderr
    assert "found no word" in run("nearest", "v", "", code=1).stderr
    some = run("nearest", "words", "hammers", "saw")
    assert some.stdout.startswith("saw\n")


def test_nearest_words_in_json():
    found = json.loads(run("nearest", "v", "cat", "hammers", "?!", "--top", "2", "--json").stdout)
    assert [one["word"] for one in found] == ["cat", "hammers", "?!"]
    assert [one.get("known") for one in found] == [True, False, None]
    assert [len(one["nearest"]) for one in found] == [2, 2, 0]
    assert "problem" in found[2]
    assert found[0]["nearest"][0]["word"] in ANIMALS


@pytest.mark.parametrize("given", [[], ["-"]])
def test_nearest_words_of_standard_input(given):
    words = "cat\n\n  saw \nжжж\n"
    result = run("nearest", "words", *given, "--top", "1", input=words)
    lines = result.stdout.splitlines()
    assert [lines[0], lines[2]] == ["cat", "saw"]
    assert "жжж" in result.stderr
    result = run("nearest", "words", *given, "--top", "1", "--json", input=words)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["word"] for one in found] == ["cat", "saw", "жжж"]


def test_control_characters_do_not_reach_the_terminal():
    assert "\x1b" not in run("nearest", "v", "cat\x1b[2J", "--top", "1").output


def test_analogy():
    result = run("analogy", "v", "cat", "dog", "saw", "--top", "2")
    first, *rest = result.stdout.splitlines()
    assert first == "cat : dog = saw : ?"
    assert len(rest) == 2
    want = WordVectors.load("v").analogy("cat", "dog", "saw", 2)
    assert [line.split()[1] for line in rest] == [near.word for near in want]
    lines = "cat dog saw\ncat dog\nжжж dog saw\n"
    result = run("analogy", "words", "--json", "--top", "1", input=lines)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(found[0]["nearest"]) == 1
    assert "expected three words, found 2" in found[1]["problem"]
    assert "жжж: not in the vocabulary" in found[2]["problem"]
    assert "expected three words, A B C, found 2" in run("analogy", "v", "a", "b", code=2).stderr
    assert run("analogy", "words", "cat", "dog", "nix", code=1).stdout == ""


# --- similarity -----------------------------------------------------------------------------------


@pytest.fixture
def sets(tmp_path):
    path = tmp_path / "sets"
    path.mkdir()
    (path / "one.txt").write_text("cat dog 9\ncat saw 1\ncow goat 8\ncow drill 2\n")
    (path / "two.csv").write_text("word1,word2,score\ncat,horse,9\nhammers,goat,1\nsaws,mice,2\n")
    (path / "README.md").write_text("about the sets")
    return path


def test_similarity(sets):
    found = json.loads(run("similarity", "v", sets, "--json").stdout)
    one, two = found["sets"]
    assert (one["name"], one["pairs"], one["unknown_pairs"]) == ("one", 4, 0)
    assert one["spearman"] >= 60  # as it is if pairs of one topic are ahead of the others
    assert one["unknown_spearman"] is None
    assert (two["name"], two["pairs"], two["unknown_pairs"]) == ("two", 3, 2)
    assert found["mean"] == pytest.approx((one["spearman"] + two["spearman"]) / 2, abs=0.01)
    printed = run("similarity", "v", sets).stdout
    assert "mean of 2 sets" in printed
    assert "rare: other pairs with a word that occurs less than 100 times" in printed
    assert "mean" not in run("similarity", "v", sets / "one.txt").stdout


def test_rare_words_are_counted_apart(sets):
    command = ("similarity", "v", sets, "--json")
    assert [s["rare_pairs"] for s in json.loads(run(*command).stdout)["sets"]] == [0, 0]
    found = json.loads(run(*command, "--rare", "100000").stdout)["sets"]
    assert [one["rare_pairs"] for one in found] == [4, 1]
    assert found[0]["rare_spearman"] == found[0]["spearman"]


def test_analogies_by_section(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text(
        ": animals\ncat dog cow goat\ncat dog zebra goat\n: tools\nsaw drill saw drill\n"
    )
    found = json.loads(run("similarity", "v", "--analogies", path, "--json").stdout)
    assert [(a["name"], a["questions"], a["left_out"]) for a in found["analogies"]] == [
        ("animals", 1, 1),
        ("tools", 1, 0),
    ]
    assert found["mean"] is None
    assert 0 <= found["analogy_accuracy"] <= 1
    assert "all analogies" in run("similarity", "v", "--analogies", path).stdout


def test_what_similarity_refuses(tmp_path):
    assert "give a file or a folder" in run("similarity", "v", code=2).stderr
    assert "found no file that ends in" in run("similarity", "v", tmp_path, code=1).stderr
    (tmp_path / "bad.txt").write_text("cat dog 1\ncat dog\n")
    assert "bad.txt" in run("similarity", "v", tmp_path, code=1).stderr
    (tmp_path / "q").write_text("one two three\n")
    assert "line 1" in run("similarity", "v", "--analogies", tmp_path / "q", code=1).stderr


# --- files ----------------------------------------------------------------------------------------


def test_info():
    printed = run("info", "v").stdout
    for words in (
        "12 words, d = 12; other words by their character n-grams",
        "characters 3-6, case ignored",
        "skip-gram, window 5",
        "in 8 bits",
        "pass 4      loss",
        "hashembed nearest v WORD",
    ):
        assert words in printed
    assert "for training, in full precision" in run("info", "full").stdout
    assert "no other word has a vector" in run("info", "words").stdout
    assert json.loads(run("info", "v", "--json").stdout)["kind"] == "WordVectors"


def test_compress_to_bits(tmp_path):
    small = tmp_path / "small"
    found = json.loads(run("compress", "full", "-o", small, "--bits", "4", "--json").stdout)
    assert found["bytes_after"] == small.stat().st_size < found["bytes_before"]
    assert found["agreement"] > 0.8
    assert WordVectors.load(small).nearest("cat", 1)[0].word in ANIMALS
    assert "times smaller" in run("compress", "full", "-o", small, "--bits", "2").stdout


@has("compress")
def test_compress_to_a_size(tmp_path):
    small = tmp_path / "small"
    run("compress", path_of_file(), "-o", small, "--size", "250kB", "-q")
    assert small.stat().st_size <= 250_000
    assert f"{len(WordVectors.load(small)):,} words" in run("info", small).stdout
    assert "times smaller" in run("compress", path_of_file(), "-o", small, "--bits", "2").stdout
    unreachable = run("compress", path_of_file(), "-o", tmp_path / "x", "--size", "1kB", code=1)
    assert "bytes" in unreachable.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "word vectors need --size"),
        (["--bits", "5"], "found 5, but word vectors take 8, 4, 3 or 2"),
        (["--bits", "4", "--max-loss", "1"], "are for classifiers"),
        (["--bits", "4", "--data", "corpus.txt"], "are for classifiers"),
    ],
)
def test_what_compress_refuses(arguments, message, tmp_path):
    assert message in run("compress", "v", "-o", tmp_path / "s", *arguments, code=2).stderr


@has("export_word2vec")
@pytest.mark.parametrize("binary", [(), ("--binary",)])
def test_export_and_import(binary, tmp_path):
    result = run("export", "v", "-o", tmp_path / "v.vec", *binary)
    assert "12 words, d = 12" in result.stderr
    result = run("import", tmp_path / "v.vec", "-o", tmp_path / "back", "--json")
    assert json.loads(result.stdout)["words"] == 12
    assert "Next: hashembed nearest" in result.stderr
    want, found = WordVectors.load("v"), WordVectors.load(tmp_path / "back")
    assert found.index_to_key == want.index_to_key
    np.testing.assert_allclose(found.vectors, want.vectors, atol=0.02 * np.abs(want.vectors).max())
    again = run("export", "v", "-o", tmp_path / "v.vec", *binary, code=2)
    assert "may be data" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nearest", "model", "cat"], "model holds a text classifier, not word vectors. "
         "hashembed predict model FILE classifies texts."),
        (["predict", "v", "corpus.txt"], "v holds word vectors, not a text classifier. "
         "hashembed nearest v WORD finds similar words."),
        (["analogy", "model", "a", "b", "c"], "holds a text classifier"),
        (["similarity", "model", "corpus.txt"], "holds a text classifier"),
        (["export", "model", "-o", "x"], "holds a text classifier"),
        (["test", "v", "corpus.txt"], "holds word vectors"),
        (["explain", "v", "a text"], "holds word vectors"),
        (["words", "v", "corpus.txt"], "holds word vectors"),
        (["compare", "model", "v", "corpus.txt"], "v holds word vectors"),
        (["page", "v", "-o", "x.html"], "holds word vectors"),
        (["card", "v"], "holds word vectors"),
        (["nearest", "corpus.txt", "cat"], "not a safetensors file"),
    ],
)  # fmt: skip
def test_files_of_another_kind(arguments, message):
    result = run(*arguments, code=1)
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "name", ["vectors", "nearest", "analogy", "similarity", "export", "import"]
)
def test_help_has_an_example(name):
    printed = run(name, "--help").stdout
    assert f"  hashembed {name} " in printed.split("Example")[1]
