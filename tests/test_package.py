"""The package as a whole: public names, no torch in the core, imports in one direction."""

import ast
import subprocess
import sys
from pathlib import Path

import hashembed

SOURCE = Path(hashembed.__file__).parent

# Each room may import from the rooms before it.
ROOMS = [
    [
        "validation",
        "wording",
        "unicode_tables",
        "initial",
        "coding",
        "printable",
        "writing",
        "tensor_file",
    ],
    ["hashing", "compiling", "tables", "stream_position"],
    ["hashing_numba", "intrinsics", "storage", "vectors", "explain_views"],
    ["text_words", "threads"],
    ["text_kernels", "draws"],
    ["bags", "labels", "history", "fit_report", "estimator", "ngram_kernels"],
    ["targets", "metrics", "key_store"],
    ["text", "engine"],
    ["theory", "sketch", "ngrams", "dictionary_kernels", "answers"],
    ["planner", "heavy_hitters", "explanation", "words_table", "counting"],
    ["dictionary"],
    ["kernel_data", "kernel_parts"],
    ["kernel_shards", "kernel_steps", "bag_kernels", "row_kernels"],
    ["kernels"],
    ["shallow", "training", "ensemble", "checkpoint", "sizes"],
    ["readers.report", "readers.cutting", "readers.headers"],
    ["readers.sources", "readers.encodings", "readers.suspicion"],
    ["readers.streams", "readers.fasttext"],
    ["readers.rows"],
    ["readers.columns", "readers.lines", "readers.folders", "readers.dialect"],
    ["readers.delimited", "readers.jsonl", "readers.parquet"],
    ["readers.formats"],
    ["readers.feeding"],
    ["readers.reading"],
    ["readers"],
    ["progress", "explain", "snapshot_file"],
    ["words"],
    ["nn.indexing", "nn.inputs", "nn.owners"],
    ["nn.hash_buffers", "nn.reference"],
    ["nn.cpu"],
    ["nn.cpu_ops", "nn.triton_hash"],
    ["nn.triton_rules"],
    ["nn.triton_kernels"],
    ["nn.triton_sums", "nn.triton_terms"],
    ["nn.triton_batches", "nn.triton_shallow", "nn.cuda_rows"],
    ["nn.cuda_call"],
    ["nn.cuda_places"],
    ["nn.cuda", "nn.cuda_shallow"],
    ["nn.cuda_ops"],
    ["nn.ops"],
    ["nn.row_optimizer"],
    ["nn.clipping"],
    ["nn.optim"],
    ["nn.layers"],
    ["nn.replace", "nn.network", "nn.batches", "nn.learning", "nn.saved_state"],
    ["nn.ahead"],
    ["nn.steps"],
    ["nn.feeding"],
    ["nn.deep"],
    ["nn.deep_file"],
    ["nn"],
    ["engines", "optim"],
    ["model_file"],
    ["classifier"],
    ["streaming", "comparing"],
    ["demo"],
    ["cli.options", "cli.aliases"],
    ["cli.stream", "cli.answering", "cli.outputs", "cli.writers"],
    [
        "cli.compare",
        "cli.demo",
        "cli.evaluate",
        "cli.explain",
        "cli.info",
        "cli.words",
        "cli.plan",
        "cli.predict",
        "cli.train",
    ],
    ["cli"],
    ["", "__main__"],
]


def test_public_names():
    assert hashembed.__all__ == [
        "HashEmbedding",
        "HashEmbeddingBag",
        "HashSpec",
        "TextClassifier",
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
assert hashembed.optim.RowAdam is RowAdam is hashembed.nn.optim.RowAdam
"""


def test_optimizers_are_imported_as_from_torch():
    subprocess.run([sys.executable, "-c", FROM_OPTIM], check=True)


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hashembed"):
            base = node.module.removeprefix("hashembed").removeprefix(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}".removeprefix(".")
                is_module = (SOURCE / Path(*inner.split("."))).with_suffix(".py").exists()
                names.add(inner if is_module else base)
        elif isinstance(node, ast.Import):
            names |= {
                a.name.removeprefix("hashembed").removeprefix(".")
                for a in node.names
                if a.name.split(".")[0] == "hashembed"
            }
    return names


def test_imports_go_one_way():
    place = {name: i for i, room in enumerate(ROOMS) for name in room}
    for path in SOURCE.rglob("*.py"):
        name = module_name(path)
        assert name in place, f"{name} has no room: add it to ROOMS"
        for other in imported(path) - {name}:
            assert place[other] < place[name], f"{name} imports {other}, a later room"


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # as if it were not installed
import hashembed
from hashembed import HashSpec, plan
from hashembed.hashing import word_key
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
