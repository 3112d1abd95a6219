"""examples/ddp_rows.py: two processes of torchrun do what one process does with the joined batch.

What must come out:

- Both processes have the same bits.
- Up to rounding: one process that takes the joined batch. It adds the terms of a row in another
  order. In float64, 1e-9 is far more than that rounding, and far less than a weight moves.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
PASSES = 2


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("ddp_rows", EXAMPLES / "ddp_rows.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What the two processes print, and their weights."""
    folder = tmp_path_factory.mktemp("weights")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    script = [str(EXAMPLES / "ddp_rows.py"), "--double", "--save", str(folder)]
    done = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", *script, "--passes", str(PASSES)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


def test_all_processes_have_the_same_weights(run):
    printed, (first, second) = run
    assert "processes: 2, different weights: 0" in printed
    assert first.keys() == second.keys()
    for name, weights in first.items():
        assert torch.equal(weights, second[name]), name


def test_one_process_with_the_joined_batch_gets_these_weights(run, example):
    _, (found, _) = run
    alone = example.train(0, 1, PASSES, torch.float64).state_dict()
    torch.manual_seed(0)
    start = example.new_model(torch.float64).state_dict()
    assert found.keys() == alone.keys()
    for name, weights in alone.items():
        torch.testing.assert_close(found[name], weights, rtol=1e-9, atol=1e-9, msg=name)
        if weights.is_floating_point():
            assert (weights - start[name]).abs().max() > 0.01, name


def test_it_learns(run):
    printed, _ = run
    loss, accuracy = re.search(r"test loss ([\d.]+), accuracy ([\d.]+)%", printed).groups()
    assert float(loss) < 1.0 < 1.609  # ln 5: a guess
    assert float(accuracy) > 70 > 20


def test_without_torchrun_one_process_runs(example, monkeypatch, capsys):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(sys, "argv", ["ddp_rows.py", "--passes", "1"])
    example.main()
    assert "processes: 1, different weights: 0" in capsys.readouterr().out
