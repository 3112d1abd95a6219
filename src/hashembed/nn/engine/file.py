"""A model of the torch engine and its dictionary in one safetensors file.

A `TextClassifier` saves itself; this is for a `DeepModel` that you train yourself.
"""

from dataclasses import asdict

import torch

from hashembed.core.writing import PathLike
from hashembed.engine.tensor_file import load_tensors, save_tensors, understanding
from hashembed.hashing.spec import HashSpec
from hashembed.nn.engine.model import DeepModel
from hashembed.text.config import TextConfig
from hashembed.text.dictionary import Dictionary

KIND = "deep model"


def save_deep(path: PathLike, model: DeepModel, dictionary: Dictionary | None = None) -> None:
    """Write a model, and the dictionary whose ranks are its ids.

    The file is written whole, or not at all. It does not contain the state of the optimizers.
    """
    spec, bag = model.spec, model.network.bag
    if dictionary is not None:
        _check_sizes(spec, dictionary)
    options = {
        "mode": bag.mode,
        "aggregation": bag.aggregation,
        "append_importance": bag.append_importance,
        "multilabel": model.multilabel,
        "optimizer": model.optimizer,
        "dropout": model.network.dropout,
        "seed": model.seed,
    }
    tensors, text = model.tensors(), None
    if dictionary is not None:
        tensors |= dictionary.tensors()
        text = dictionary.config.to_dict()
    save_tensors(path, KIND, tensors, {"spec": asdict(spec), "options": options, "text": text})


def load_deep(
    path: PathLike, device: torch.device | str = "cpu"
) -> tuple[DeepModel, Dictionary | None]:
    """The model, and its dictionary if it has one."""
    arrays, meta = load_tensors(path, KIND)
    with understanding(path):
        words = {name: arrays.pop(name) for name in list(arrays) if name.startswith("dictionary.")}
        spec = HashSpec(**meta["spec"])
        model = DeepModel.from_tensors(spec, arrays, device=device, **meta["options"])
        dictionary = None
        if meta["text"] is not None:
            dictionary = Dictionary.from_tensors(words, TextConfig.from_dict(meta["text"]))
            _check_sizes(spec, dictionary)
    return model, dictionary


def _check_sizes(spec: HashSpec, dictionary: Dictionary) -> None:
    """The ranks of n-grams are the model's ids."""
    sizes = len(dictionary), len(dictionary) + 1  # unknown n-grams dropped, or sharing an id
    if spec.indexing != "identity" or spec.num_embeddings not in sizes:
        raise ValueError(
            f"a model that reads by a dictionary of {len(dictionary):,} n-grams must have "
            f"indexing='identity' and {sizes[0]:,} or {sizes[1]:,} embeddings, found "
            f"{spec.indexing!r} and {spec.num_embeddings:,}"
        )
