"""`WordVectors(device=...)`: what is accepted, and that files do not keep it."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from hashembed import WordVectors
from hashembed.vectors import devices
from hashembed.vectors.training import Trainer

TEXTS = ["the cat sat on the mat", "the dog sat"]


@pytest.mark.parametrize("device", ["gpu", "cuda:", "CUDA", "cuda:-1", "", None, 0])
def test_what_is_no_device(device):
    with pytest.raises(ValueError, match="device must be 'auto', 'cpu', 'cuda' or 'cuda:N', found"):
        WordVectors(device=device)


def test_a_gpu_that_is_not_there(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    vectors = WordVectors(device="cuda:3", min_count=1)
    with pytest.raises(ValueError, match=r"device='cuda:3' needs a CUDA GPU.* finds none; use 'cp"):
        vectors.fit(TEXTS)
    assert devices.trainer_on("auto") is Trainer


def test_too_few_gpus(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match="finds only cuda:0 to cuda:1"):
        devices.choose_device("cuda:2")
    if find_spec("triton"):
        assert devices.choose_device("auto") == "cuda"
        assert devices.choose_device("cuda:1") == "cuda:1"


def test_files_do_not_name_a_device(tmp_path):
    vectors = WordVectors(device="auto", min_count=1, passes=1).fit(TEXTS)
    vectors.save(tmp_path / "vectors.bin")
    assert WordVectors.load(tmp_path / "vectors.bin").device == "cpu"
    assert "device" not in vectors.settings.to_dict()


def test_training_on_the_cpu_does_not_import_torch():
    code = (
        "import sys; from hashembed import WordVectors; WordVectors(min_count=1, passes=1)"
        f".fit({TEXTS!r}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
