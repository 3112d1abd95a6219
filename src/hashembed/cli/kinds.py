"""Which kind of model a file holds, and which commands take it."""

import click

VECTORS, CLASSIFIER = "WordVectors", "TextClassifier"
# Kind -> what it is called, and a command that takes it.
_ABOUT = {
    VECTORS: ("word vectors", "hashembed nearest {path} WORD finds similar words."),
    CLASSIFIER: ("a text classifier", "hashembed predict {path} FILE classifies texts."),
    "Snapshot": ("a training state", "hashembed train --checkpoint {path} resumes from it."),
}


def check_kind(path: str, wanted: str | None) -> None:
    """Refuse a file of another kind than a command takes, and name one that takes it.

    None stands for every kind. Files that are not ours are left to the loader.
    """
    from hashembed.cli.hub import as_given
    from hashembed.engine.tensor_file import kind_of

    try:
        found = kind_of(path)
    except OSError:
        return
    if wanted is None or found == wanted or found not in _ABOUT:
        return
    (held, use), name = _ABOUT[found], as_given(path)
    use = use.format(path=name)
    raise click.ClickException(f"{name} holds {held}, not {_ABOUT[wanted][0]}. {use}") from None
