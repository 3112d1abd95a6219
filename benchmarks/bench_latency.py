"""Latency of the classifier: cold start of the command, single texts, streams.

python -m benchmarks.bench_latency --data FOLDER     -> results/latency.txt
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.bench_classify import folders, prepare
from benchmarks.machine import RESULTS, heading
from benchmarks.tools import TOOLS, read_lines

NAME = "ag_news_partial"


def main() -> None:
    options = folders(__doc__).parse_args()
    files = prepare(Path(options.data) / NAME, options.work / NAME)
    lines = [heading() + NAME, ""]
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/model"
        command = [sys.executable, "-m", "hashembed"]
        subprocess.run([*command, "train", files["train"], "-o", model, "-q"], check=True)
        seconds = [timed([*command, "predict", model], b"what a film\n") for _ in range(7)]
        lines.append(f"hashembed predict, process start to answer: {np.median(seconds):.2f} s")
        stream = [*command, "train", "--stream", files["train"], "-o", f"{folder}/s", "-q"]
        took = timed(stream, b"")
        count = sum(1 for _ in open(files["train"], "rb"))  # noqa: SIM115
        lines.append(
            f"hashembed train --stream, answered and learned: {count / took:,.0f} texts/s, "
            f"start and checkpoints included ({count:,} texts, {took:.1f} s)"
        )
    _, texts = read_lines(files["test"])
    for name, setting in (("hashembed", {}), ("fastText", {"lr": 0.1})):
        tool = TOOLS[name]()
        tool.train(files["train"], setting)
        for text in texts[:500]:
            tool.predict_one(text)
        micros = []
        for text in texts[:5000]:
            start = time.perf_counter()
            tool.predict_one(text)
            micros.append(1e6 * (time.perf_counter() - start))
        low, high = np.percentile(micros, [50, 99])
        lines.append(f"{name}, one text: median {low:.1f} us, 99% within {high:.1f} us")
    (RESULTS / "latency.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def timed(command, given):
    start = time.perf_counter()
    subprocess.run(command, input=given, check=True, capture_output=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
