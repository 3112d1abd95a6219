"""`hashembed train`: no option is ignored, other spellings work, early stopping does something."""

import gzip
import json
import random
import weakref

import pytest
from click.testing import CliRunner

from hashembed import TextClassifier, WordVectors
from hashembed.cli import main
from hashembed.cli.aliases import translate
from hashembed.cli.train import train_command


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def data(tmp_path):
    rows = [f"{'+-'[i % 2]},{'good' if i % 2 == 0 else 'bad'}{i % 7} w{i % 31}" for i in range(200)]
    path = tmp_path / "data.csv"
    path.write_text("label,text\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--stream", "--plot", "p.png"], "--plot cannot be used with --stream"),
        (["--stream", "--validation", "no.csv"], "--validation cannot be used with --stream"),
        (["--stream", "--validation-fraction", "0.1"], "--validation-fraction cannot be used with"),
        (["--stream", "--checkpoint", "c"], "--checkpoint cannot be used with --stream"),
        (["--stream", "--cache-dir", "c"], "--cache-dir cannot be used with --stream"),
        (["--stream", "--passes", "3"], "--passes cannot be used with --stream: a stream is read"),
        (["--stream", "--patience", "3"], "--patience cannot be used with --stream"),
        (["--stream", "--bits", "16"], "--bits cannot be used with --stream"),
        (["--stream", "--unlabelled", "u"], "--unlabelled cannot be used with --stream"),
        (["--stream", "--pretrained", "v"], "--pretrained cannot be used with --stream"),
        (["--cache-dir", "c", "--unlabelled", "u"], "--unlabelled cannot be used with --cache-dir"),
        (["--on", "auto", "--pretrained", "v"], "--pretrained cannot be used with --on"),
        (["--unlabelled", "u", "--pretrained", "v"], "Give either --unlabelled"),
        (["--unlabelled", "-", "-"], "Standard input holds either"),
        (["--stream", "--resume", "--continue"], "Give either --resume"),
        (["--resume"], "--resume needs --stream"),
        (["--continue"], "--continue needs --stream"),
        (["--save-seconds", "3"], "--save-seconds needs --stream"),
        (["--patience", "3"], "--patience needs validation data"),
        (
            ["--validation", "v.csv", "--validation-fraction", "0.1"],
            "Give either --validation or --validation-fraction, found both",
        ),
        (["--class-weight", "half"], "expected balanced, sqrt, or weights such as"),
        (["--class-weight", "+=x"], "expected balanced, sqrt, or weights such as"),
    ],
)
def test_no_option_is_ignored(data, tmp_path, options, said):
    result = run("train", data, "-o", tmp_path / "m", *options, code=2)
    assert said in result.stderr
    assert not (tmp_path / "m").exists()


def test_python_refuses_the_same():
    texts, labels = ["a", "b"] * 10, ["x", "y"] * 10
    with pytest.raises(ValueError, match="patience=3 needs validation data"):
        TextClassifier(patience=3).fit(texts, labels)
    clf = TextClassifier(validation_fraction=0.2)
    with pytest.raises(ValueError, match=r"validation_fraction=0\.2: give only one of them"):
        clf.fit(texts, labels, validation=(texts, labels))


def test_options_are_named_as_pythons_arguments():
    options = {param.name: param.opts for param in train_command.params}
    for name in TextClassifier._parameters():
        if name not in ("verbose",):  # --quiet
            assert f"--{name.replace('_', '-')}" in options[name], name


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["-lr", "0.5"], ["--learning-rate", "0.5"]),
        (["--lr=0.5"], ["--learning-rate", "0.5"]),
        (["-epoch", "3", "-dim", "10"], ["--passes", "3", "--embedding-dim", "10"]),
        (["-wordNgrams", "2"], ["--ngrams", "1-2"]),
        (["--wordNgrams=3"], ["--ngrams", "1-3"]),
        (["-minn", "2", "-maxn", "5"], ["--subwords", "2-5"]),
        (["-minn", "0", "-maxn", "0"], ["--subwords", "none"]),
        (["-input", "t.txt", "-output", "m"], ["t.txt", "--output", "m"]),
        (["--rows", "1M", "--balanced"], ["--num-embeddings", "1M", "--class-weight", "balanced"]),
        (["a.csv", "-o", "m", "-q", "-"], ["a.csv", "-o", "m", "-q", "-"]),
        (["--", "-lr"], ["--", "-lr"]),
    ],
)
def test_other_spellings(given, meant):
    assert translate(given) == meant


@pytest.mark.parametrize("option", ["--hidden-layers", "--hidden", "-hidden", "--hidden-layers=8"])
def test_hidden_layers_get_a_sentence(data, tmp_path, option):
    result = run("train", data, "-o", tmp_path / "m", option, "100,100", code=2)
    name = option.partition("=")[0]
    assert f"Error: {name}: there are no hidden layers any more: on no data set" in result.stderr
    assert "HashEmbeddingBag" in result.stderr
    assert not (tmp_path / "m").exists()
    assert "hidden" not in run("train", "--help").output


def test_fasttexts_options_train_the_same_model(data, tmp_path):
    ours = ("--learning-rate", "0.3", "--passes", "2", "--embedding-dim", "4", "--ngrams", "1-3")
    theirs = ("-lr", "0.3", "-epoch", "2", "-dim", "4", "-wordNgrams", "3")
    run("train", data, "-o", tmp_path / "ours", *ours)
    run("train", "-input", data, "-output", tmp_path / "theirs", *theirs)
    one, other = (TextClassifier.load(tmp_path / name) for name in ("ours", "theirs"))
    assert one.decision_function(["good1 w3"]) == other.decision_function(["good1 w3"])
    assert "--rate" not in run("train", "--help").output
    result = run("train", data, "-o", tmp_path / "x", "-lr", code=2)
    assert "requires an argument" in result.stderr


def test_class_weights_of_the_command(data, tmp_path):
    run("train", data, "-o", tmp_path / "m", "--class-weight", "+=3,-=0.5")
    assert TextClassifier.load(tmp_path / "m").class_weight == {"+": 3.0, "-": 0.5}


def test_patience_goes_on_beyond_the_default_passes(data, tmp_path):
    result = run(
        *("train", data, "-o", tmp_path / "m"),
        *("--validation-fraction", "0.2", "--patience", "3"),
    )
    history = TextClassifier.load(tmp_path / "m").history_
    best, count = history.best.number + 1, len(history.epochs)
    assert count > 3
    assert count == 100 or count == best + 3
    for epoch in history.epochs:  # shown after each pass
        assert str(epoch) in result.stderr
    assert f"Kept pass {best} of {count}: the best validation loss" in result.stderr


def test_patience_obeys_the_passes_that_are_given(data):
    clf = TextClassifier(passes=2, patience=5, validation_fraction=0.2)
    rows = [line.split(",") for line in data.read_text().splitlines()[1:]]
    clf.fit([t for _, t in rows], [y for y, _ in rows])
    assert len(clf.history_.epochs) == 2


def test_messages_speak_the_commands_language(data, tmp_path):
    result = run("train", data, "-o", tmp_path / "m", "--learning-rate", "-1", code=1)
    assert "--learning-rate must be above 0" in result.stderr
    result = run("train", data, "-o", tmp_path / "m", "--validation-fraction", "2", code=1)
    assert "the validation fraction must be from 0 to below 1" in result.stderr


def test_texts_are_freed_before_training(tmp_path, monkeypatch):
    """The memory of the text is there for the tables."""
    import hashembed.readers as readers
    from hashembed.classify import training

    read, fit, refs, alive = readers.read, training.fit, [], []

    def watched_read(*arguments, **options):
        data = read(*arguments, **options)
        refs.append(weakref.ref(data.texts))
        return data

    def watched_fit(*arguments, **options):
        alive.append(refs[0]() is not None)
        return fit(*arguments, **options)

    monkeypatch.setattr(readers, "read", watched_read)
    monkeypatch.setattr(training, "fit", watched_fit)
    (tmp_path / "a.csv").write_text("label,text\n" + "a,good\nb,bad\n" * 20)
    order = ["train", str(tmp_path / "a.csv"), "-o", str(tmp_path / "model")]
    assert CliRunner().invoke(main, order).exit_code == 0
    assert alive == [False]


# --- texts without labels ---


@pytest.fixture
def few_labels(tmp_path):
    """Six labelled texts, and many without labels in several formats."""
    rng = random.Random(0)
    topics = {
        "animals": ["cat", "dog", "cow", "hen", "pig"],
        "food": ["bread", "milk", "rice", "soup", "salt"],
    }
    more = [" ".join(rng.choices(topics[rng.choice([*topics])], k=6)) for _ in range(900)]
    rows = [f"{t},{w[i]} {w[i + 1]}" for t, w in topics.items() for i in (0, 1, 0, 1)]
    (tmp_path / "few.csv").write_text("label,text\n" + "\n".join(rows) + "\n")
    (tmp_path / "more.txt").write_text("\n".join(more[:300]) + "\n")
    with gzip.open(tmp_path / "more.csv.gz", "wt") as file:
        file.write("number,text\n" + "\n".join(f"{i},{t}" for i, t in enumerate(more[300:600])))
    lines = [json.dumps({"text": text}) for text in more[600:]]
    (tmp_path / "more.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_unlabelled_texts_of_all_formats(few_labels):
    files = ("more.txt", "more.csv.gz", "more.jsonl")
    more = [part for name in files for part in ("--unlabelled", few_labels / name)]
    model = few_labels / "m"
    result = run(
        "train", few_labels / "few.csv", *more, "--text", "text", "--label", "label", "-o", model
    )
    assert "Learning word vectors from 908 texts" in result.stderr
    assert "Pretrained vectors:" in result.stderr
    loaded = TextClassifier.load(model)
    assert loaded.vectors_ is not None
    assert loaded.predict(["hen pig", "soup salt"]).tolist() == ["animals", "food"]


def test_pretrained_vectors_from_a_file(few_labels):
    vectors = WordVectors(embedding_dim=8, min_count=1, sample=0.01)
    vectors.fit((few_labels / "more.txt").read_text().splitlines()).save(few_labels / "v")
    options = ("--pretrained", few_labels / "v", "-o", few_labels / "m", "--json")
    result = run("train", few_labels / "few.csv", *options)
    assert 0 < json.loads(result.stdout)["vectors_share"] < 1
    assert run("test", few_labels / "m", few_labels / "few.csv")


def test_the_same_seed_gives_the_same_file(few_labels):
    for name, threads in (("a", 1), ("b", 2)):
        options = ("--unlabelled", few_labels / "more.txt", "--threads", threads, "-q")
        run("train", few_labels / "few.csv", *options, "-o", few_labels / name)
    assert (few_labels / "a").read_bytes() == (few_labels / "b").read_bytes()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--unlabelled", "none.txt"], "none.txt"),
        (["--pretrained", "none.safetensors"], "none.safetensors"),
        (["--pretrained", "few.csv"], "few.csv is damaged or not a safetensors file"),
        (["--unlabelled", "empty.txt"], "empty.txt"),
    ],
)
def test_bad_files_of_vectors_are_refused(few_labels, monkeypatch, options, said):
    monkeypatch.chdir(few_labels)
    (few_labels / "empty.txt").write_text("")
    result = CliRunner().invoke(main, ["train", "few.csv", "-o", "m", *options])
    assert result.exit_code != 0
    assert said in result.output
    assert not (few_labels / "m").exists()


def test_the_unlabelled_file_is_not_overwritten(few_labels):
    file = few_labels / "more.txt"
    run("train", few_labels / "few.csv", "--unlabelled", file, "-o", file, "--force", code=2)
    assert file.read_text().count("\n") == 300
