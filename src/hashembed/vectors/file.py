"""Writes word vectors to a file, and reads them back.

A file for use has tables in a few bits for each number. A file for training has everything that
training changes, in full precision.
"""

import os
from typing import Any

import numpy as np

from hashembed.core.checks import whole_number
from hashembed.core.tensor_layout import read_tensor
from hashembed.engine.shallow.arrays import padded_rows
from hashembed.engine.tensor_file import (
    PACKED_VERSION,
    Arrays,
    ModelFileError,
    all_finite,
    bytes_of_file,
    load_tensors,
    opened_tensors,
    save_tensors,
    understanding,
)
from hashembed.hashing.spec import HashSpec
from hashembed.text.config import TextConfig
from hashembed.text.dictionary import Dictionary, saved_strings
from hashembed.vectors.arrays import Tables
from hashembed.vectors.coding import BITS, encode_rows
from hashembed.vectors.file_rows import FileRows, OpenFile
from hashembed.vectors.model import VectorModel
from hashembed.vectors.row_table import CodedRows, CodedWeights, SignWeights
from hashembed.vectors.settings import VectorSettings
from hashembed.vectors.small_dictionary import (
    from_small_tensors,
    small_tensors,
    tail_bytes_of,
)
from hashembed.vectors.word_table import exact_dictionary

KIND = "WordVectors"
TABLES = ("E", "E.scales", "P", "P.scales")
VERSION = PACKED_VERSION  # earlier versions must refuse this kind of file


def save_vectors(
    model: VectorModel, path: str | os.PathLike[str], bits: int, for_training: bool
) -> None:
    """Write vectors; `WordVectors.save` says what the options mean."""
    save_tensors(path, KIND, *content_of(model, bits, for_training), VERSION)


def bytes_saved(model: VectorModel, bits: int) -> int:
    """The size of the file that `save_vectors` would write."""
    return bytes_of_file(KIND, *content_of(model, bits, False), VERSION)


def bits_of(model: VectorModel) -> int:
    """The bits of a number that a model has already, or 8."""
    return model.E.bits if isinstance(model.E, CodedRows) else 8


def content_of(model: VectorModel, bits: int, for_training: bool) -> tuple[Arrays, dict[str, Any]]:
    """The tensors of a file, and its metadata."""
    if bits not in BITS:
        raise ValueError(f"bits must be 8, 4, 3 or 2, found {bits!r}")
    settings, spec, d = model.settings, model.spec, model.settings.embedding_dim
    small = isinstance(model.P, SignWeights)
    tensors: Arrays = {}
    if small and not for_training:
        tensors |= small_tensors(model.dictionary)
    else:
        tensors |= model.dictionary.tensors()
    if for_training:
        if model.state is None:
            raise ValueError(
                "these vectors came from a file without a training state, so it cannot be saved"
            )
        tensors |= model.state._asdict()
        tensors["E"] = np.ascontiguousarray(model.state.E[:, :d])
        tensors["C"] = np.ascontiguousarray(model.state.C[:, :d])
    else:
        tensors["E"], tensors["E.scales"] = _coded(model, bits)
        tensors |= _coded_weights(model)
    meta: dict[str, Any] = {
        "settings": settings.to_dict(),
        "text": settings.words.to_dict(),
        "indexing": spec.indexing,
        "num_embeddings": spec.num_embeddings,
        "num_buckets": spec.num_buckets,
        "losses": model.losses,
        "bits": None if for_training else bits,
    }
    if small:
        words, tails = len(model.dictionary), tail_bytes_of(model.dictionary)
        meta["small"] = {"words": words, "tail_bytes": tails}
    return tensors, meta


def _coded(model: VectorModel, bits: int) -> tuple[Any, Any]:
    """Codes and scales of E. Existing codes of the same bits are kept as they are."""
    if isinstance(model.E, CodedRows) and model.E.bits == bits:
        return np.asarray(model.E.codes), np.asarray(model.E.scales)
    return encode_rows(model.E.whole[:, : model.settings.embedding_dim], bits)


def _coded_weights(model: VectorModel) -> Arrays:
    """The tensors of P."""
    if isinstance(model.P, SignWeights):
        return {"P.used": model.P.used}
    if isinstance(model.P, CodedWeights):
        return {"P": np.asarray(model.P.codes), "P.scales": np.asarray(model.P.scales)}
    codes, scales = encode_rows(model.P, 8)
    return {"P": codes, "P.scales": scales}


def load_vectors(
    path: str | os.PathLike[str], threads: int | None, mmap: bool = False
) -> VectorModel:
    """Read vectors that `save_vectors` wrote; with `mmap`, tables stay in the file."""
    tensors, meta = _left_in_file(path) if mmap else load_tensors(path, KIND)
    with understanding(path):
        model = assemble(tensors, meta)
    model.threads = threads
    return model


def _left_in_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Any]:
    """Tensors and metadata. E and P stay in the file, if they are coded."""
    with opened_tensors(path, KIND) as (file, layout, meta):
        opened = OpenFile(file, path)
        coded = isinstance(meta, dict) and meta.get("bits") is not None
        stay = TABLES if coded else ()
        tensors: dict[str, Any] = {
            name: FileRows(opened, layout, name)
            if name in stay
            else read_tensor(file, layout, name)
            for name in layout.places
        }
    for name, tensor in tensors.items():
        if isinstance(tensor, np.ndarray) and tensor.dtype.kind == "f" and not all_finite(tensor):
            raise ModelFileError(f"{path} holds NaN or infinity in its tensor {name!r:.50}")
    return tensors, meta


def assemble(tensors: dict[str, Any], meta: Any) -> VectorModel:
    """The model of tensors and metadata, as `content_of` gave them."""
    settings = VectorSettings.from_dict(meta["settings"])
    if TextConfig.from_dict(meta["text"]) != settings.words:
        raise ModelFileError("has settings of text that contradict each other")
    K, B = (whole_number(name, meta[name], 1, 2**31) for name in ("num_embeddings", "num_buckets"))
    spec = HashSpec(K, B, settings.num_hashes, indexing=meta["indexing"], seed=settings.seed)
    small = meta.get("small")
    if small is not None:
        sizes = (
            whole_number("words", small["words"], 1, 2**31),
            whole_number("tail_bytes", small["tail_bytes"], 1, 4),
        )
        dictionary = from_small_tensors(tensors, settings.words, *sizes)
    elif spec.indexing == "identity":
        dictionary = exact_dictionary(*saved_strings(tensors), settings.words)
    else:
        dictionary = Dictionary.from_tensors(tensors, settings.words)
    d, k, bits = settings.embedding_dim, settings.num_hashes, meta["bits"]
    if bits is not None and bits not in BITS:
        raise ModelFileError(f"has tables of {bits!r:.20} bits, expected one of {BITS}")
    if spec.indexing == "identity" and len(dictionary) > B:
        raise ModelFileError(f"has {len(dictionary):,} words, but {B:,} vectors")
    _check_shapes(tensors, _shapes((K, B, d, k), len(dictionary), bits, small is not None))
    if bits is None:
        E, C = padded_rows(B, d), padded_rows(len(dictionary), d)
        E[:, :d], C[:, :d] = tensors["E"], tensors["C"]
        rest = {name: tensors[name] for name in ("E_square", "P", "P_square", "C_square")}
        model = VectorModel.trained(settings, dictionary, spec, Tables(E=E, C=C, **rest))
    else:
        P_rows: Any = None
        if small is not None:
            P_rows = SignWeights(tensors["P.used"], (K, k))
        else:
            P_rows = CodedWeights(tensors["P"], tensors["P.scales"])
        E_rows = CodedRows(tensors["E"], tensors["E.scales"], bits, d)
        model = VectorModel(settings, dictionary, spec, E_rows, P_rows)
    model.losses = [float(loss) for loss in meta["losses"]]
    return model


def _shapes(
    sizes: tuple[int, int, int, int], words: int, bits: int | None, small: bool
) -> dict[str, Any]:
    """Name -> shape and type of each table; `sizes` are K, B, d and k."""
    K, B, d, k = sizes
    single, half, byte = np.float32, np.float16, np.uint8
    if bits is not None:
        shapes = {"E": ((B, -(-d * bits // 8)), byte), "E.scales": ((B,), half)}
        if small:
            return {**shapes, "P.used": ((-(-K // 8),), byte)}
        return {**shapes, "P": ((K, k), byte), "P.scales": ((K,), half)}
    return {
        "E": ((B, d), single),
        "E_square": ((B,), single),
        "P": ((K, k), single),
        "P_square": ((K,), single),
        "C": ((words, d), single),
        "C_square": ((words,), single),
    }


def _check_shapes(tensors: dict[str, Any], shapes: dict[str, Any]) -> None:
    for name, (shape, dtype) in shapes.items():
        if name not in tensors:
            raise ModelFileError(f"has no tensor {name!r}")
        found = tensors[name]
        if found.shape != shape or found.dtype != dtype:
            raise ModelFileError(
                f"has a tensor {name!r} of shape {found.shape} and type {found.dtype}, expected "
                f"{shape} of {np.dtype(dtype)}"
            )
