"""Chooses the engine that a classifier trains: shallow or torch, a single one or an ensemble."""

import re
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from hashembed.core.checks import one_of, whole_number
from hashembed.core.wording import given, named
from hashembed.engine.ensemble import VOTES, Ensemble, Votes, member_seeds
from hashembed.engine.protocol import Engine, State
from hashembed.engine.shallow.kernel import MAX_DIM
from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing.spec import HashSpec

MAX_MEMBERS, MAX_LAYERS, MAX_WIDTH = 10_000, 1_000, 2**24
DEEP_RATE = 0.003  # initial rate of Adam, with hidden layers
DEEP_TEXTS, DEEP_PASSES = 100_000, (2, 5)  # texts to train on in total; least and most passes


@dataclass(frozen=True)
class EnginePlan:
    """The engine to make. Members differ in their hash seeds and initial weights only."""

    spec: HashSpec
    embedding_dim: int
    hidden_layers: tuple[int, ...] = ()
    members: int = 1
    multilabel: bool = False
    device: str = "cpu"
    batch_norm: bool = False  # between hidden layers
    votes: Votes = "logits"  # what is averaged over the members

    def __post_init__(self) -> None:
        whole_number("embedding_dim", self.embedding_dim, 1, MAX_DIM)
        whole_number("members", self.members, 1, MAX_MEMBERS)
        one_of("votes", self.votes, VOTES)
        whole_number("the number of hidden layers", len(self.hidden_layers), 0, MAX_LAYERS)
        for width in self.hidden_layers:
            whole_number("hidden_layers", width, 1, MAX_WIDTH)
        for name in ("multilabel", "batch_norm"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, found {getattr(self, name)!r:.50}")

    @property
    def shallow(self) -> bool:
        """Whether the shallow engine trains it."""
        return not self.hidden_layers and self.device == "cpu"

    @property
    def specs(self) -> list[HashSpec]:
        """The hash functions of each member."""
        return [replace(self.spec, seed=s) for s in member_seeds(self.spec.seed, self.members)]

    def make(self, num_classes: int, threads: int | None = None) -> Engine:
        """Make an engine with initial weights."""
        made = [self._member(spec, num_classes, threads) for spec in self.specs]
        return made[0] if self.members == 1 else Ensemble(made, self.votes)

    def restore(self, tensors: State, threads: int | None = None) -> Engine:
        """Make the engine with these `tensors()`."""
        if self.members == 1:
            return self._restored(self.spec, tensors, threads)
        return Ensemble.from_tensors(
            lambda i, part: self._restored(self.specs[i], part, threads), tensors, self.votes
        )

    def shapes(self, num_classes: int) -> dict[str, tuple[int, ...]]:
        """The names and shapes of the engine's `tensors()`."""
        spec, widths = self.spec, (self.embedding_dim, *self.hidden_layers)
        shapes: dict[str, tuple[int, ...]] = {
            "E": (spec.num_buckets, self.embedding_dim),
            "P": (spec.num_embeddings, spec.num_hashes),
            "W": (num_classes, widths[-1]),
            "bias": (num_classes,),
        }
        for i, (width, wider) in enumerate(pairwise(widths)):
            shapes |= {f"hidden.{i}.weight": (wider, width), f"hidden.{i}.bias": (wider,)}
        for i, width in enumerate(widths if self.hidden_layers and self.batch_norm else ()):
            for name in ("weight", "bias", "mean", "variance"):
                shapes[f"norms.{i}.{name}"] = (width,)
            shapes[f"norms.{i}.documents"] = ()
        if self.members == 1:
            return shapes
        return {f"{i}.{name}": shapes[name] for i in range(self.members) for name in shapes}

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values, without the device, which is not part of a model."""
        fields = asdict(self)
        del fields["device"]
        return fields

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "EnginePlan":
        """The plan from `to_dict`."""
        # Files without these fields have batch normalisation, and average probabilities.
        older = {"batch_norm": True, "votes": "probabilities"}
        fields = {**older, **saved, "spec": HashSpec(**saved["spec"])}
        fields["hidden_layers"] = tuple(fields["hidden_layers"])
        return cls(**fields)

    def _member(self, spec: HashSpec, num_classes: int, threads: int | None) -> Engine:
        if self.shallow:
            return ShallowModel(
                spec,
                self.embedding_dim,
                num_classes,
                multilabel=self.multilabel,
                seed=spec.seed,
                threads=threads,
            )
        deep = _deep_model()
        model: Engine = deep(
            spec,
            self.embedding_dim,
            num_classes,
            self.hidden_layers,
            batch_norm=self.batch_norm,
            multilabel=self.multilabel,
            optimizer="adam" if self.hidden_layers else "adagrad",
            seed=spec.seed,
            device=self.device,
        )
        return model

    def _restored(self, spec: HashSpec, tensors: State, threads: int | None) -> Engine:
        if self.shallow:
            return ShallowModel.from_tensors(
                spec, tensors, multilabel=self.multilabel, threads=threads
            )
        model: Engine = _deep_model().from_tensors(
            spec,
            tensors,
            multilabel=self.multilabel,
            optimizer="adam" if self.hidden_layers else "adagrad",
            seed=spec.seed,
            device=self.device,
        )
        return model


def deep_passes(texts: int) -> int:
    """Default passes with hidden layers: few for large data, which would be memorised."""
    least, most = DEEP_PASSES
    return min(max(round(DEEP_TEXTS / max(texts, 1)), least), most)


def _deep_model() -> Any:
    try:
        from hashembed.nn.engine.model import DeepModel
    except ImportError:
        raise ImportError(
            'hidden layers and GPUs need torch: pip install "hashembed[torch]"'
        ) from None
    return DeepModel


def choose_device(device: str) -> str:
    """The device to use: "auto" is a GPU if torch finds one, otherwise the CPU."""
    if device == "cpu":
        return device
    if device != "auto" and not re.fullmatch(r"cuda(:\d+)?", device):
        raise ValueError(
            f"{named('device')} must be 'auto', 'cpu', 'cuda' or 'cuda:N', found {device!r}"
        )
    found = "torch is not installed"
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
