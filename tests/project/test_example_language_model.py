"""examples/language_model.py runs on a small text in the same format, and does not look ahead."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "examples" / "language_model.py"
SMALL = {"dim": 16, "layers": 1, "length": 16, "batch": 8, "epochs": 3, "share": 0.5, "rate": 0.01}


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("example_language_model", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path):
    """Three words after each other, in a text like wikitext-2's."""
    generator = torch.Generator().manual_seed(0)
    for split, lines in (("train", 300), ("validation", 40)):
        starts = torch.randint(0, 50, (lines,), generator=generator).tolist()
        rows = [" ".join(f"w{(s + i) % 50}" for i in range(9)) for s in starts]
        text = " = Title = \n\n " + " \n\n ".join(rows) + " <unk> \n"
        (tmp_path / f"{split}.txt").write_text(text, encoding="utf8")
    return tmp_path


def run(example, monkeypatch, capsys, **options):
    arguments = [f"--{name}={value}" for name, value in options.items()]
    monkeypatch.setattr(sys, "argv", ["language_model.py", *arguments])
    example.main()
    return capsys.readouterr().out


@pytest.mark.parametrize("pairs", [0, 500])
def test_it_learns(example, folder, monkeypatch, capsys, pairs):
    printed = run(example, monkeypatch, capsys, data=folder, pairs=pairs, **SMALL)
    words, mine, full = re.match(
        r"(\S+) words; table: (\S+) parameters instead of (\S+)", printed
    ).groups()
    assert words == "54"  # 50, "=", "Title", "<eos>", "<unk>"
    assert int(mine) <= 0.5 * int(full)
    found = [float(x) for x in re.findall(r"validation perplexity ([\d.]+)", printed)]
    assert len(found) == 3
    assert found[-1] < 20 < 54  # words


def test_nothing_after_a_position_reaches_its_scores(example):
    torch.manual_seed(0)
    model = example.LanguageModel(100, 16, 2, 12, 0.5, pairs=500).eval()
    torch.nn.init.ones_(model.pairs.importance)
    tokens = torch.randint(0, 100, (3, 12))
    changed = tokens.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 100
    before, after = model(tokens).detach(), model(changed).detach()
    torch.testing.assert_close(before[:, :6], after[:, :6], rtol=0, atol=0)
    assert ((before[:, 6:8] - after[:, 6:8]).abs().amax(-1) > 1e-4).all()


def test_pairs_have_ids_of_their_own(example):
    tokens = torch.cartesian_prod(torch.arange(7), torch.arange(7))
    ids = example.pair_ids(tokens, 7)
    assert (ids[:, 0] == 0).all()
    assert len(ids[:, 1].unique()) == 49
    assert (ids[:, 1] > 0).all()


def test_a_share_that_is_too_small_is_refused(example):
    with pytest.raises(SystemExit, match=r"--share 0\.25 leaves too little for E: .* 0\.2900"):
        example.LanguageModel(100, 16, 2, 12, 0.25, pairs=0)
    example.LanguageModel(100, 16, 2, 12, 0.29, pairs=0)


def test_a_missing_folder_is_named(example, tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit, match=r"train\.txt is missing"):
        run(example, monkeypatch, capsys, data=tmp_path / "nowhere")
    monkeypatch.delenv("HASHEMBED_DATA", raising=False)
    with pytest.raises(SystemExit):
        run(example, monkeypatch, capsys)
    assert "--data is needed" in capsys.readouterr().err
