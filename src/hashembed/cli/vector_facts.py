"""What the header of a file of word vectors tells, in words and numbers."""

from typing import Any

from hashembed.cli.hub import as_given

MODELS = {"skipgram": "skip-gram", "cbow": "CBOW"}


def vector_lines(path: str, header: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and text of each line of `hashembed info`."""
    meta, tensors = header["meta"], header["tensors"]
    settings, bits = meta["settings"], meta["bits"]
    small, d = meta.get("small"), settings["embedding_dim"]
    words = small["words"] if small else tensors["dictionary.ranks"]["shape"][0]
    least = settings["min_count"]
    sample = "" if settings["sample"] is None else f"sample {settings['sample']:g}, "
    losses = [("pass " + str(i), f"loss {loss:.4f}") for i, loss in enumerate(meta["losses"], 1)]
    return [
        ("vectors", f"{words:,} words, d = {d}; {_unknown_words(settings, meta['indexing'])}"),
        ("text", _describe_text(settings)),
        ("tables", _describe_tables(meta, settings["num_hashes"], d)),
        (
            "trained by",
            f"{MODELS.get(settings['model'], settings['model'])}, window {settings['window']}, "
            f"words that occur at least {least:,} {'time' if least == 1 else 'times'}, {sample}"
            f"{settings['passes']} passes, seed {settings['seed']}",
        ),
        (
            "saved",
            "for training, in full precision" if bits is None else f"in {bits} bits",
        ),
        *losses,
        ("next", f"hashembed nearest {as_given(path)} WORD"),
    ]


def _unknown_words(settings: dict[str, Any], indexing: str) -> str:
    if settings["subwords"] is None or indexing == "identity":
        return "no other word has a vector"
    return "other words by their character n-grams"


def _describe_text(settings: dict[str, Any]) -> str:
    subwords = settings["subwords"]
    characters = (
        "no character n-grams" if subwords is None else "characters {}-{}".format(*subwords)
    )
    case = "case ignored" if settings["lowercase"] else "case kept"
    kept = ", punctuation kept" if settings["punctuation"] == "keep" else ""
    return f"words, {characters}, {case}{kept}"


def _describe_tables(meta: dict[str, Any], k: int, d: int) -> str:
    K, B = meta["num_embeddings"], meta["num_buckets"]
    if meta["indexing"] == "identity":
        return f"one vector for each word: {B * d:,} parameters"
    sizes = f"K = {K:,}, B = {B:,}, k = {k}, d = {d}"
    if meta.get("small"):
        return f"{sizes}, compressed: weights are signs; {B * d:,} parameters"
    return f"{sizes}: {K * k + B * d:,} parameters"
