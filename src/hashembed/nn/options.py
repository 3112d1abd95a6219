"""Refuses options that only `nn.Embedding` has; warns if a layer is larger than a plain table."""

import warnings

from hashembed.hashing.spec import HashSpec

_WORTH_A_WARNING = 1_000_000  # parameters of a layer


def refuse_table_options(max_norm: object, norm_type: object, scale_grad_by_freq: object) -> None:
    """Refuse options that need a row for each id; here ids share rows."""
    given = [("max_norm", max_norm, None), ("norm_type", norm_type, 2.0)]
    given.append(("scale_grad_by_freq", scale_grad_by_freq, False))
    for name, value, default in given:
        if value != default:
            remedy = "scale the loss instead"
            if name != "scale_grad_by_freq":
                remedy = "normalise the output instead, for example with torch.renorm"
            raise TypeError(
                f"{name}={value!r} of nn.Embedding has no counterpart in a hash embedding, whose "
                f"rows are shared by many ids: leave it out, and {remedy}"
            )


def warn_if_larger_than_a_table(spec: HashSpec, embedding_dim: int) -> None:
    """Warn where the importance weights of an id cost as much as a vector of its own."""
    count = spec.num_buckets * embedding_dim + spec.num_embeddings * spec.num_hashes
    table = spec.num_embeddings * embedding_dim
    if count > max(table, _WORTH_A_WARNING):
        warnings.warn(
            f"this hash embedding has {count:,} parameters, but nn.Embedding("
            f"{spec.num_embeddings}, {embedding_dim}) has {table:,}: each id has "
            f"num_hashes = {spec.num_hashes} weights of its own. Use nn.Embedding, fewer "
            "num_embeddings (ids may share weights) or importance=False",
            UserWarning,
            stacklevel=3,
        )
