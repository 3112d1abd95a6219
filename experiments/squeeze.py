"""Tables in fewer bits than the library's files have: what a smaller number format would be worth.

A number becomes sign * (code / top)^2 * largest, with whole codes of so many bits: fine near zero,
where most importance weights are, and coarse far out. The largest is that of the whole table.
"""

from pathlib import Path
from typing import Any

import numpy as np

from hashembed.checkpoint import load_tensors, save_tensors
from hashembed.ensemble import Ensemble
from hashembed.model_file import KIND
from hashembed.shallow import ShallowModel

TABLES = ("E", "P")


def encode(table: np.ndarray, bits: int) -> tuple[np.ndarray, float]:
    """Codes from -top to top, as int8, and the largest number."""
    top = 2 ** (bits - 1) - 1
    largest = float(np.abs(table).max(initial=0)) or 1.0
    codes = np.sign(table) * np.rint(np.sqrt(np.abs(table) / largest) * top)
    return codes.astype(np.int8), largest


def decode(codes: np.ndarray, largest: float, bits: int) -> np.ndarray:
    """The numbers that `encode` was given, about."""
    top = 2 ** (bits - 1) - 1
    x = codes.astype(np.float32) / np.float32(top)
    return np.sign(x) * x * x * np.float32(largest)


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """As bytes; codes of four bits two in one."""
    flat = codes.ravel()
    if bits == 8:
        return flat
    flat = np.append(flat, np.zeros(len(flat) % 2, np.int8)).view(np.uint8) & 15
    return flat[::2] | flat[1::2] << 4


def squeeze_classifier(classifier: Any, bits: int) -> None:
    """Round the tables of a model, or of all members of an ensemble, to so many bits."""
    model = classifier.model_
    for member in model.members if isinstance(model, Ensemble) else [model]:
        if isinstance(member, ShallowModel):
            tables = [member.tables.E, member.importance_weights]
        else:
            bag = member.network.bag
            tables = [p.detach().numpy() for p in (bag.weight, bag.importance)]
        for table in tables:
            table[:] = decode(*encode(table, bits), bits)


def write_squeezed(classifier: Any, path: Path, bits: int) -> None:
    """A file with all that the library's file has, tables as codes: its size is what it takes."""
    classifier.save(path)
    tensors, meta = load_tensors(path, KIND)
    largest = {}
    for name, table in tensors.items():
        if name.rpartition(".")[2] in TABLES:
            codes, largest[name] = encode(table.astype(np.float32), bits)
            tensors[name] = packed(codes, bits)
    save_tensors(path, KIND, tensors, {**meta, "largest": largest})
