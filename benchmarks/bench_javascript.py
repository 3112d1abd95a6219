"""A model of 1 MB in JavaScript (Node) and in Python: loading it, and one review at a time.

python -m benchmarks.bench_javascript --data FOLDER     -> results/javascript.csv

FOLDER holds the folder imdb. Node runs `time_javascript.mjs`, in a new process for each model. Its
loads and first answers include what the JavaScript engine compiles.
"""

import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.bench_classify import folders, prepare
from benchmarks.machine import write
from benchmarks.tools import read_lines
from hashembed import TextClassifier

NAME = "imdb"
REVIEWS = 2000
SCRIPT = Path(__file__).parent / "time_javascript.mjs"
# Both have about 1 MB. Name -> arguments, bits.
SINGLE = {"num_embeddings": 200_000, "num_buckets": 30_000, "embedding_dim": 20, "members": 1}
SEVERAL = {"num_embeddings": 130_000, "num_buckets": 20_000, "embedding_dim": 20, "members": 3}
MODELS = {
    "words and bigrams, 8 bits": (SINGLE, 8),
    "3 members, subwords, 4 bits": ({**SEVERAL, "subwords": (3, 5)}, 4),
}


def main() -> None:
    options = folders(__doc__).parse_args()
    files = prepare(Path(options.data) / NAME, options.work / NAME)
    labels, texts = read_lines(files["train"])
    reviews = read_lines(files["test"])[1][:REVIEWS]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        listed, path = Path(folder) / "reviews.json", Path(folder) / "model.safetensors"
        listed.write_text(json.dumps(reviews))
        for name, (settings, bits) in MODELS.items():
            print(f"training: {name}", flush=True)
            TextClassifier(effort="fast", **settings).fit(texts, labels).save(path, bits=bits)
            found = {"JavaScript": in_javascript(path, listed), "Python": in_python(path, reviews)}
            same = np.mean(np.array(found["JavaScript"]["labels"]) == found["Python"]["labels"])
            for language, took in found.items():
                rows.append(row(name, language, took, path.stat().st_size, same))
                print({key: rows[-1][key] for key in list(rows[-1])[:8]}, flush=True)
    write("javascript.csv", rows)


def row(name, language, took, size, same):
    median, most = np.percentile(took["each"], [50, 99])
    return {
        "model": name,
        "language": language,
        "bytes": size,
        "load_ms": f"{took['loading']:.1f}",
        "first_ms": f"{took['first']:.2f}",
        "review_ms": f"{median:.3f}",
        "review_99_ms": f"{most:.3f}",
        "explain_ms": f"{took['explaining']:.2f}",
        "reviews": len(took["each"]),
        "same_labels": f"{same:.4f}",
        "node": took.get("version", ""),
    }


def in_javascript(path, listed):
    command = ["node", SCRIPT, path, listed]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def in_python(path, reviews):
    model, loading = timed(lambda: TextClassifier.load(path))
    _, first = timed(lambda: model.predict(reviews[:1]))
    for review in reviews[:300]:
        model.predict([review])
    answers = [timed(lambda review=review: model.predict([review])) for review in reviews]
    _, explaining = timed(lambda: model.explain(reviews[0]))
    return {
        "loading": loading,
        "first": first,
        "each": [took for _, took in answers],
        "explaining": explaining,
        "labels": [found[0] for found, _ in answers],
    }


def timed(call):
    """The result, and milliseconds."""
    start = time.perf_counter()
    value = call()
    return value, 1e3 * (time.perf_counter() - start)


if __name__ == "__main__":
    main()
