"""Other names for options of `train` and `vectors`: fastText's, and those of earlier versions.

They work, but --help does not list them. fastText writes one dash, as in `-lr 0.5`. An option that
no longer exists gets a sentence (`GONE`).
"""

from collections.abc import Iterator

import click

from hashembed.cli.options import Subcommand

SAME = {  # other name -> option
    "dim": "--embedding-dim",
    "rows": "--num-embeddings",
    "buckets": "--num-buckets",
    "hashes": "--num-hashes",
    "rate": "--learning-rate",
    "lr": "--learning-rate",
    "epoch": "--passes",
    "epochs": "--passes",
    "thread": "--threads",
    "validate": "--validation",
    "output": "--output",
}
VECTORS_SAME = {
    **SAME,
    "ws": "--window",
    "minCount": "--min-count",
    "t": "--sample",
}
_NO_HIDDEN = (
    "there are no hidden layers any more: on no data set were they clearly better than none. For "
    "a network of your own in PyTorch, use HashEmbeddingBag."
)
GONE = {"hidden-layers": _NO_HIDDEN, "hidden": _NO_HIDDEN}  # option -> why, and what to use


class WithAliases(Subcommand):
    """A command that also takes the other names."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Translate the other names first."""
        return super().parse_args(ctx, translate(args))


class VectorAliases(Subcommand):
    """The same for word vectors, which have some more names."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Translate the other names first."""
        return super().parse_args(ctx, translate(args, VECTORS_SAME))


def translate(args: list[str], same: dict[str, str] = SAME) -> list[str]:
    """['-lr', '0.5', '--wordNgrams=2'] -> ['--learning-rate', '0.5', '--ngrams', '1-2']."""
    out: list[str] = []
    characters: dict[str, str] = {}
    waiting = iter(args)
    for arg in waiting:
        if arg == "--":
            return [*out, *_subwords(characters), arg, *waiting]
        name, equals, value = arg.partition("=")
        bare = name.removeprefix("-").removeprefix("-")
        if bare == name or not bare:
            out.append(arg)
        elif bare in GONE:
            raise click.UsageError(f"{name}: {GONE[bare]}")
        elif name == "--balanced":
            _refuse_other_weights(args)
            out += ["--class-weight", "balanced"]
        elif bare in same:
            out += [same[bare], value] if equals else [same[bare]]
        elif bare in ("wordNgrams", "minn", "maxn", "input"):
            value = value if equals else _next(name, waiting)
            if bare == "wordNgrams":
                out += ["--ngrams", f"1-{value}"]
            elif bare == "input":
                out.append(value)
            else:
                characters[bare] = value
        else:
            out.append(arg)
    return [*out, *_subwords(characters)]


def _refuse_other_weights(args: list[str]) -> None:
    for arg, value in zip(args, [*args[1:], ""], strict=True):
        name, equals, joined = arg.partition("=")
        given = joined if equals else value
        if name == "--class-weight" and given != "balanced":
            raise click.UsageError(
                f"--balanced contradicts --class-weight {given}: give one of them."
            )


def _next(name: str, waiting: Iterator[str]) -> str:
    value = next(waiting, None)
    if value is None:
        raise click.UsageError(f"Option '{name}' requires an argument.")
    return value


def _subwords(characters: dict[str, str]) -> list[str]:
    """Translate fastText's -minn and -maxn into --subwords; -maxn 0 means none."""
    if not characters:
        return []
    longest = characters.get("maxn", characters.get("minn", "0"))
    if longest == "0":
        return ["--subwords", "none"]
    return ["--subwords", f"{characters.get('minn', '1')}-{longest}"]
