"""Chooses the engine that a classifier trains: shallow or torch, a single one or an ensemble."""

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from hashembed.core.checks import one_of, whole_number
from hashembed.core.wording import given, named
from hashembed.engine.coded import Stored
from hashembed.engine.ensemble import VOTES, Ensemble, Votes, member_seeds
from hashembed.engine.packed import PackedTable
from hashembed.engine.protocol import Engine
from hashembed.engine.shallow.kernel import MAX_DIM
from hashembed.engine.shallow.listed import ListedModel
from hashembed.engine.shallow.model import ShallowModel
from hashembed.engine.tensor_file import ModelFileError
from hashembed.hashing.spec import HashSpec

MAX_MEMBERS = 10_000


@dataclass(frozen=True)
class EnginePlan:
    """The engine to make. Members differ in their hash seeds and initial weights only."""

    spec: HashSpec
    embedding_dim: int
    members: int = 1
    multilabel: bool = False
    device: str = "cpu"
    votes: Votes = "logits"  # what is averaged over the members
    importance: bool = True  # False fixes all importance weights at 1

    def __post_init__(self) -> None:
        whole_number("embedding_dim", self.embedding_dim, 1, MAX_DIM)
        whole_number("members", self.members, 1, MAX_MEMBERS)
        one_of("votes", self.votes, VOTES)
        for name in ("multilabel", "importance"):
            if not isinstance(value := getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, found {value!r:.50}")

    @property
    def shallow(self) -> bool:
        """Whether the shallow engine trains it."""
        return self.device == "cpu"

    @property
    def specs(self) -> list[HashSpec]:
        """The hash functions of each member."""
        return [replace(self.spec, seed=s) for s in member_seeds(self.spec.seed, self.members)]

    def make(self, num_classes: int, threads: int | None = None) -> Engine:
        """Make an engine with initial weights."""
        made = [self._member(spec, num_classes, threads) for spec in self.specs]
        return made[0] if self.members == 1 else Ensemble(made, self.votes)

    def restore(self, tensors: Stored, threads: int | None = None) -> Engine:
        """Make the engine with these `tensors()`."""
        if self.members == 1:
            return self._restored(self.spec, tensors, threads)
        return Ensemble.from_tensors(
            lambda i, part: self._restored(self.specs[i], part, threads), tensors, self.votes
        )

    def shapes(self, num_classes: int) -> dict[str, tuple[int, ...]]:
        """The names and shapes of the engine's `tensors()`."""
        spec = self.spec
        shapes: dict[str, tuple[int, ...]] = {
            "E": (spec.num_buckets, self.embedding_dim),
            "P": (spec.num_embeddings, spec.num_hashes),
            "W": (num_classes, self.embedding_dim),
            "bias": (num_classes,),
        }
        if not self.importance:
            del shapes["P"]
        if self.members == 1:
            return shapes
        return {f"{i}.{name}": shapes[name] for i in range(self.members) for name in shapes}

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values, without the device, which is not part of a model."""
        fields = asdict(self)
        del fields["device"]
        if self.importance:
            del fields["importance"]  # earlier versions do not know the field
        return {**fields, "hidden_layers": []}  # earlier versions look for them

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "EnginePlan":
        """The plan from `to_dict`, of this version or an earlier one."""
        # Without this field, an ensemble averages probabilities.
        fields = {"votes": "probabilities", **saved, "spec": HashSpec(**saved["spec"])}
        if (hidden := fields.pop("hidden_layers", [])) != []:
            raise ModelFileError(_has_hidden_layers(hidden))
        fields.pop("batch_norm", None)  # it was between hidden layers
        return cls(**fields)

    def _member(self, spec: HashSpec, num_classes: int, threads: int | None) -> Engine:
        if self.shallow:
            return ShallowModel(
                spec,
                self.embedding_dim,
                num_classes,
                importance=self.importance,
                multilabel=self.multilabel,
                seed=spec.seed,
                threads=threads,
            )
        from hashembed.nn.engine.model import DeepModel

        return DeepModel(
            spec,
            self.embedding_dim,
            num_classes,
            multilabel=self.multilabel,
            optimizer="adagrad",
            seed=spec.seed,
            device=self.device,
        )

    def _restored(self, spec: HashSpec, tensors: Stored, threads: int | None) -> Engine:
        if not self.importance and isinstance(tensors["E"], PackedTable):
            return ListedModel.from_packed(
                spec, tensors, multilabel=self.multilabel, threads=threads
            )
        if self.shallow:
            return ShallowModel.from_tensors(
                spec, tensors, multilabel=self.multilabel, threads=threads
            )
        from hashembed.nn.engine.model import DeepModel

        return DeepModel.from_tensors(
            spec,
            {name: np.asarray(tensor) for name, tensor in tensors.items()},
            multilabel=self.multilabel,
            optimizer="adagrad",
            seed=spec.seed,
            device=self.device,
        )


def _has_hidden_layers(widths: Any) -> str:
    """What an error says about the model file of an earlier version."""
    shown = ", ".join(map(str, widths)) if isinstance(widths, list) else str(widths)
    return (
        f"has a model with hidden layers ({shown:.50}), which TextClassifier no longer has: train "
        "a new model, or read the file with the version of hashembed that wrote it"
    )


def choose_device(device: str) -> str:
    """The device to use: "auto" is a GPU if torch finds one, otherwise the CPU."""
    if device == "cpu":
        return device
    if device != "auto" and not re.fullmatch(r"cuda(:\d+)?", device):
        raise ValueError(
            f"{named('device')} must be 'auto', 'cpu', 'cuda' or 'cuda:N', found {device!r}"
        )
    found = 'torch is not installed (pip install "hashembed[torch]")'
    try:
        import torch
    except ImportError:
        pass
    else:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count and device in ("auto", "cuda"):
            return "cuda"
        if count and int(device.removeprefix("cuda:")) < count:
            return device
        found = f"torch {torch.__version__} finds "
        found += f"only cuda:0 to cuda:{count - 1}" if count else "none"
    if device == "auto":
        return "cpu"
    raise ValueError(
        f"{given('device', device)} needs a CUDA GPU and a build of torch for it, but {found}; "
        "use 'cpu', or 'auto' for a GPU only if there is one"
    )
