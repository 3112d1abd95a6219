"""One tool, one setting, in a process of its own: time, memory, size, accuracy as JSON.

usage: python -m benchmarks.run_one TOOL TRAIN TEST SETTING [--full]
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.tools import TOOLS, read_lines

SINGLES, MOST_SECONDS = 2000, 3


def main() -> None:
    name, train, test, setting = sys.argv[1:5]
    full = "--full" in sys.argv
    tool = TOOLS[name]()
    setting = json.loads(setting)
    _warm_up(tool, train, setting)  # imports, and what is compiled once
    before = time.perf_counter()
    tool.train(train, setting)
    result = {"train_seconds": time.perf_counter() - before}
    labels, texts = read_lines(test)
    start = time.perf_counter()
    predicted = tool.predict(texts)
    result["batch_per_second"] = len(texts) / (time.perf_counter() - start)
    result["accuracy"] = sum(a == b for a, b in zip(predicted, labels, strict=True)) / len(labels)
    if full:
        start, done = time.perf_counter(), 0
        for text in texts[:SINGLES]:
            tool.predict_one(text)
            done += 1
            if time.perf_counter() - start > MOST_SECONDS:
                break
        result["single_per_second"] = done / (time.perf_counter() - start)
        with tempfile.TemporaryDirectory() as folder:
            result["model_bytes"] = tool.save(Path(folder) / "model")
    result["peak_megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(result))


def _warm_up(tool, train, setting) -> None:
    """Train on the first lines, so that imports and one-time compilation are not measured."""
    with open(train, encoding="utf8") as file, tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / "sample.txt"
        sample.write_text("".join(line for line, _ in zip(file, range(2000), strict=False)))
        tool.train(sample, setting)
        tool.predict(read_lines(sample)[1])


if __name__ == "__main__":
    main()
