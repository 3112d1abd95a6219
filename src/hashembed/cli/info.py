"""`hashembed info`."""

import json
from typing import Any

import click

from hashembed.cli.options import ANY_MODEL, Subcommand, json_option
from hashembed.core.printable import printable

SHOWN = 20  # classes


@click.command(
    "info",
    cls=Subcommand,
    epilog="\b\nExamples:\n  hashembed info model.safetensors\n"
    "  hashembed info vectors.safetensors\n  hashembed info hub:owner/name\n"
    "  hashembed info --runtime",
)
@click.argument("model", type=ANY_MODEL, required=False)
@click.option(
    "--runtime", is_flag=True, help="Instead, tell which kernels run on this machine, and why."
)
@json_option
def info_command(model: str | None, runtime: bool, as_json: bool) -> None:
    """Describe a model file (reads only its header), or this installation."""
    if runtime == (model is not None):
        raise click.UsageError("give a model file or --runtime")
    if model is None:
        found = describe_runtime()
        lines = (f"{name:<12}{value}" for name, value in found.items())
        click.echo(json.dumps(found, indent=2) if as_json else "\n".join(lines))
        return
    from hashembed.engine.tensor_file import read_header, understanding

    header = read_header(model)
    with understanding(model):  # its fields may be anything
        text = json.dumps(header, indent=2) if as_json else _described(model, header)
    click.echo(text)


def describe_runtime() -> dict[str, Any]:
    """The versions in use, the kernels, the processor."""
    import platform
    from importlib.metadata import version
    from importlib.util import find_spec

    import numpy as np

    from hashembed.core.native.library import JIT, best_level, runtime
    from hashembed.core.threads import cpu_count

    kernels = runtime()
    compiled = (
        "compiled by Numba on first use" if kernels.level == JIT else "compiled ahead of time"
    )
    return {
        "hashembed": version("hashembed"),
        "python": f"{platform.python_version()}, NumPy {np.__version__}",
        "kernels": f"{kernels.level}, {compiled}: {kernels.why}",
        "processor": f"{best_level()}, {cpu_count()} cores for this process",
        "Numba": "installed" if find_spec("numba") else "not installed",
        "PyTorch": "installed" if find_spec("torch") else "not installed",
    }


def _described(path: str, header: dict[str, Any]) -> str:
    return "\n".join(f"{name:<12}{printable(value)}" for name, value in _lines(path, header))


def _lines(path: str, header: dict[str, Any]) -> list[tuple[str, str]]:
    from hashembed.classify import header_facts as facts

    meta, size = header["meta"], header["bytes"]
    lines = [
        ("file", f"{path}, {size:,} bytes ({facts.describe_bytes(size)})"),
        ("kind", f"{header['kind']}, format {header['format']}, hash version {header['hash']}"),
    ]
    if header["kind"] == "WordVectors":
        from hashembed.cli.vector_facts import vector_lines

        return lines + vector_lines(path, header)
    if header["kind"] != "TextClassifier":
        return lines
    engine = meta["engine"]
    coded = f", in {meta['coded']['bits']} bits" if meta.get("coded") else ""
    classes = meta["classes"]
    shown = ", ".join(str(c) for c in classes[:SHOWN])
    more = f" and {len(classes) - SHOWN:,} more" if len(classes) > SHOWN else ""
    lines += [
        ("text", facts.describe_text(meta["text"])),
        (
            "tables",
            f"{facts.describe_tables(meta)}: {facts.count_parameters(header):,} parameters{coded}",
        ),
        ("members", facts.describe_members(engine)),
        ("classes", f"{len(classes):,}: {shown}{more}"),
        ("labels", "one per text" if meta["label_form"] == "single" else "any number per text"),
        ("trained on", f"{meta['texts_seen']:,} texts"),
        ("saved", "for training" if meta["for_training"] else "for predictions"),
    ]
    if hidden := engine.get("hidden_layers"):
        lines.append(("hidden", f"layers of {hidden}, which this version cannot load"))
    if meta.get("search"):
        from hashembed.classify.choose.search import Search

        search = Search.from_dict(meta["search"])
        lines += [
            ("chosen", f"by {search.metric}, from {len(search.trials)} trials"),
            ("the same", search.chosen.command()),
        ]
    if calibrated := facts.describe_calibration(meta):
        lines.append(("calibrated", calibrated))
    for epoch in meta["history"]["epochs"]:
        text = f"loss {epoch['loss']:.4f}"
        if epoch["validation_accuracy"] is not None:
            text += f", validation accuracy {epoch['validation_accuracy']:.2%}"
        lines.append((f"pass {epoch['number'] + 1}", text))
    return lines
