"""The same seconds for both: `effort="best"` with a time limit beside fastText's autotune.

    python -m benchmarks.bench_autotune --data FOLDER [--seconds 20]     -> results/autotune.csv

fastText searches on nine tenths of the training rows, with the other tenth for validation, as its
autotune asks. What it finds is trained again on all rows; that time does not count. hashembed
searches and trains within the limit, on all rows. Test rows are scored once.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.bench_choice import SETS, prepare
from benchmarks.bench_classify import folders
from benchmarks.machine import RESULTS, table
from benchmarks.tools import THREADS, FastText, Hashembed, read_lines

COLUMNS = ("set", "classes", "texts", "tool", "seconds", "accuracy", "macro_f1", "found")


def main() -> None:
    parser = folders(__doc__)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--one", help="JSON: run one of them in this process")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(**json.loads(options.one))))
        return
    with table(RESULTS / "autotune.csv", COLUMNS) as add:
        for name in options.sets:
            files, classes, texts = prepare(Path(options.data), name, options.work / "choice")
            for tool, kind in (("hashembed", "raw"), ("fastText", "plain")):
                given = {part: str(path) for part, path in files[kind].items()}
                asked = json.dumps({"tool": tool, "files": given, "seconds": options.seconds})
                order = [sys.executable, "-m", "benchmarks.bench_autotune", "--one", asked]
                printed = subprocess.run(order, check=True, stdout=subprocess.PIPE).stdout
                found = json.loads(printed.splitlines()[-1])
                row = [name, classes, texts, tool, *(found[c] for c in COLUMNS[4:])]
                add(row)
                print(*row, flush=True)


def one(tool: str, files: dict[str, str], seconds: int) -> dict:
    start = time.perf_counter()
    if tool == "hashembed":
        made = Hashembed()
        made.train(files["train"], {"time_limit": seconds})
        took, found = time.perf_counter() - start, made.model.search_.chosen.command()
    else:
        made, found = FastText(), autotuned(files, seconds)
        took = time.perf_counter() - start
        fasttext_on_all_rows(made, files["train"], found)
    labels, texts = read_lines(files["test"])
    said = made.predict(texts)
    from sklearn.metrics import accuracy_score, f1_score

    return {
        "seconds": round(took, 1),
        "accuracy": round(accuracy_score(labels, said), 4),
        "macro_f1": round(f1_score(labels, said, average="macro", zero_division=0), 4),
        "found": json.dumps(found),
    }


def autotuned(files: dict[str, str], seconds: int) -> dict:
    import fasttext

    model = fasttext.train_supervised(
        files["most"],
        autotuneValidationFile=files["held"],
        autotuneDuration=seconds,
        thread=THREADS,
        verbose=0,
    )
    args = model.f.getArgs()
    names = ("lr", "dim", "epoch", "wordNgrams", "minCount", "minn", "maxn", "bucket")
    return {name: getattr(args, name) for name in names}


def fasttext_on_all_rows(made: FastText, path: str, found: dict) -> None:
    import fasttext

    made.model = fasttext.train_supervised(path, thread=THREADS, verbose=0, **found)


if __name__ == "__main__":
    main()
