"""`hashembed train`: no option is ignored, other spellings work, early stopping does something."""

import weakref

import pytest
from click.testing import CliRunner

from hashembed import TextClassifier
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
