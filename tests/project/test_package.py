"""The package as a whole: public names, no torch in the core, imports in one direction."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import hashembed

SOURCE = Path(hashembed.__file__).parent

# Each room may import from the rooms before it.
ROOMS = [
    "core",
    "hashing",
    "text",
    "readers",
    "engine",
    "nn",
    "vectors",
    "classify",
    "distributed",
    "web",
    "cli",
]


def test_public_names():
    assert hashembed.__all__ == [
        "HashEmbedding",
        "HashEmbeddingBag",
        "HashSpec",
        "TextClassifier",
        "TextVectorizer",
        "WordVectors",
        "keys",
        "optim",
        "plan",
        "replace_embeddings",
    ]
    for name in hashembed.__all__:
        assert getattr(hashembed, name) is not None
        assert name in dir(hashembed)


FROM_OPTIM = """
from hashembed.optim import RowAdagrad, RowAdam, RowAdamW, RowSGD, clip_grad_norm_
import hashembed
assert hashembed.optim.RowAdam is RowAdam is hashembed.nn.optim.optimizers.RowAdam
"""


def test_optimizers_are_imported_as_from_torch():
    subprocess.run([sys.executable, "-c", FROM_OPTIM], check=True)


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> set[str]:
    """The modules of this package that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hashembed"):
            base = node.module.removeprefix("hashembed").removeprefix(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".removeprefix(".")
                place = SOURCE / Path(*inner.split("."))
                is_module = place.with_suffix(".py").exists() or place.is_dir()
                names.add(inner if is_module else base)
        elif isinstance(node, ast.Import):
            names |= {
                a.name.removeprefix("hashembed").removeprefix(".")
                for a in node.names
                if a.name.split(".")[0] == "hashembed"
            }
    return names


IMPORTS = {module_name(path): imported(path) for path in SOURCE.rglob("*.py")}


def test_every_module_has_a_room():
    at_the_root = {"", "__main__", "optim"}
    assert {name.split(".")[0] for name in IMPORTS} == at_the_root | set(ROOMS)


def test_rooms_import_from_earlier_rooms_only():
    place = {room: i for i, room in enumerate(ROOMS)}
    for name, others in IMPORTS.items():
        room = name.split(".")[0]
        for other in {other.split(".")[0] for other in others} if room in place else ():
            assert other in place, f"{name} imports the root of the package"
            assert place[other] <= place[room], f"{name} imports {other}, a later room"


def test_no_two_modules_import_each_other():
    graph = {
        name: {other for other in others if other in IMPORTS} - {name}
        for name, others in IMPORTS.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, and names the cycle


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_says_what_it_is(room):
    text = ast.get_docstring(ast.parse((SOURCE / room / "__init__.py").read_text()))
    if room == "core":
        assert "nothing here imports from another room" in text
    else:
        for word in ("In: ", "Out: ", "May import: "):
            assert word in text


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # as if it were not installed
import hashembed
from hashembed import HashSpec, plan
from hashembed.hashing.spec import word_key
rows, buckets = HashSpec(1000, 100)([word_key("horse"), word_key("cow")])
assert rows.shape == (2,) and buckets.shape == (2, 2)
assert plan(1_000_000, 20)
try:
    hashembed.HashEmbedding
except ImportError as error:
    assert 'pip install "hashembed[torch]"' in str(error), error
else:
    raise SystemExit("no error without torch")
"""


def run(code: str) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_the_core_works_without_torch():
    run(WITHOUT_TORCH)


def test_importing_the_package_is_light():
    run(
        "import sys, hashembed; "
        "heavy = {'torch', 'numba', 'pyarrow', 'numpy', 'matplotlib', 'rich'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
