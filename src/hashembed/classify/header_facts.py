"""What the header of a model file tells, in words and numbers; no tensor is read."""

from math import prod
from typing import Any

VECTORS = "vectors."  # begins the names of tensors of pretrained vectors
STATE = {"E_square", "P_square", "W_square", "bias_square"}  # of the optimizer, not parameters


def count_parameters(header: dict[str, Any]) -> int:
    """The numbers that were learned, whatever bits the file has for each.

    Pretrained vectors do not count, apart from the layer on top of them.
    """
    meta = header["meta"]
    engine, spec, packed = meta["engine"], meta["engine"]["spec"], meta.get("packed") or {}
    shapes = {  # of tables, which the file may hold in a coded form
        "E": (spec["num_buckets"], engine["embedding_dim"]),
        "P": (spec["num_embeddings"], spec["num_hashes"]),
    }
    total = 0
    for name, rows in packed.items():  # other rows are zero
        total += rows * shapes[name.rpartition(".")[2]][1]
    for name, part in header["tensors"].items():
        table, _, kind = name.rpartition(".")
        if name.startswith(VECTORS) and kind not in ("W", "bias"):
            continue
        if kind not in STATE and table not in packed:
            total += prod(shapes.get(kind, part["shape"]))
    return total


def describe_text(text: dict[str, Any]) -> str:
    """How texts become n-grams: "words 1-2, characters 3-5, case ignored"."""
    subwords = ", characters {}-{}".format(*text["subwords"]) if text["subwords"] else ""
    case = "case ignored" if text["lowercase"] else "case kept"
    if text.get("punctuation") == "keep":
        case += ", punctuation kept"
    case += {"damp": ", repeats damped", "once": ", each n-gram once"}.get(
        text.get("repeats", "all"), ""
    )
    return f"words {text['ngrams'][0]}-{text['ngrams'][1]}{subwords}, {case}"


def describe_tables(meta: dict[str, Any]) -> str:
    """The sizes of the tables: "K = 1,000, B = 100, k = 2, d = 20", and what is kept of them."""
    engine, packed = meta["engine"], meta.get("packed") or {}
    spec, d, kept = engine["spec"], engine["embedding_dim"], sum(packed.values())
    if only_listed(meta):
        return f"compressed: {kept:,} of B = {spec['num_buckets']:,} rows are kept, d = {d}"
    sizes = (
        f"K = {spec['num_embeddings']:,}, B = {spec['num_buckets']:,}, "
        f"k = {spec['num_hashes']}, d = {d}"
    )
    sizes = f"{sizes}, compressed: {kept:,} rows are kept" if packed else sizes
    vectors = meta.get("vectors")
    if not vectors:
        return sizes
    pretrained = f"pretrained vectors with d = {vectors['settings']['embedding_dim']}"
    return f"{sizes}, and {pretrained}, {vectors['share']:.0%} of the logits"


def only_listed(meta: dict[str, Any]) -> bool:
    """Whether it is a model that was compressed with texts: it knows some of their n-grams only."""
    return bool(meta.get("packed")) and not meta["engine"].get("importance", True)


def describe_bytes(size: int) -> str:
    """The size of a file: "1.2 MB", "29.4 kB"."""
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def table_bits(header: dict[str, Any]) -> str:
    """The bits that the file has for each number of the tables E and P."""
    coded = header["meta"].get("coded")
    if coded:
        return str(coded["bits"])
    kinds = {
        part["dtype"]
        for name, part in header["tensors"].items()
        if name.rpartition(".")[2] in ("E", "P") and not name.startswith(VECTORS)
    }
    return " and ".join(sorted(kind.lstrip("F") for kind in kinds)) or "packed"  # "F16", "F32"


def describe_members(engine: dict[str, Any]) -> str:
    """The number of members, and what is averaged over them."""
    if engine["members"] == 1:
        return "1"
    votes = engine.get("votes", "probabilities")  # older files have no such field
    return f"an ensemble of {engine['members']}, mean of {votes}"


def describe_calibration(meta: dict[str, Any]) -> str | None:
    """The temperature, the threshold of a multi-label model, and what they were found on."""
    found = meta.get("calibration")
    if not found:
        return None
    text = f"temperature {found['temperature']:.3g}"
    if meta["label_form"] != "single":
        text += f", threshold {found['threshold']:g}"
    return f"{text}, on {found['rows']:,} texts left out of training"
