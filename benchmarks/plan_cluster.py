"""What to expect of a cluster: a model of its costs, from results/distributed.csv.

    python -m benchmarks.plan_cluster      -> the tables of docs/results/cluster.md

Stages that all nodes share take work / (cores x rate of a core), or as long as their bytes need on
the links of the nodes, if that is longer. Training takes work / rate of the trainer.
"""

from pathlib import Path

from benchmarks.report import RESULTS, read

PAGE = Path(__file__).parents[1] / "docs" / "results" / "cluster.md"
TEXTS, NGRAMS, CORES = 1_000_000_000, 100, 16
LINK = 10e9 / 8  # bytes a second of a node
TRAINER_SHARE = 0.5  # of the rate of 16 separate cores that one trainer of 16 cores reaches
NODES = (8, 32, 128)


def value(rows: list[dict], stage: str, what: str, where: str) -> float:
    found = [r for r in rows if (r["stage"], r["what"], r["where"]) == (stage, what, where)]
    return float(found[-1]["value"])


def measured(rows: list[dict]) -> str:
    """Markdown: what was measured."""
    out = ["| stage | what | where | found |", "|---|---|---|---|"]
    for row in rows:
        number = float(row["value"])
        shown = f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"
        out.append(f"| {row['stage']} | {row['what']} | {row['where']} | {shown} {row['unit']} |")
    return "\n".join(out)


def plan(rows: list[dict]) -> str:
    """Markdown: minutes of each stage on N nodes."""
    texts = float(next(r for r in rows if r["stage"] == "shards")["texts"])
    ngrams = value(rows, "bytes", "n-grams", "a text")
    key_bytes = value(rows, "bytes", "keys in storage", "a text") / ngrams
    work = TEXTS * NGRAMS
    rates = {
        what: texts
        * ngrams
        / value(rows, "shards", what, "1 of 1")
        * value(rows, "overhead", what, "one process, 2 threads")
        / value(rows, "overhead", what, "two nodes of 1 core")
        for what in ("keys", "predict")
    }
    train = TRAINER_SHARE * CORES * value(rows, "train", "one pass", "one core") * 1e6
    out = [
        f"| stage | {' | '.join(f'{n} nodes' for n in NODES)} |",
        "|---" * (len(NODES) + 1) + "|",
    ]
    text_bytes = value(rows, "bytes", "text and label", "a text") / ngrams
    for what, name, size in (
        ("keys", "read texts, make and store keys", text_bytes + key_bytes),
        ("predict", "read texts, predict", text_bytes),
    ):
        computing = [work / (n * CORES * rates[what]) for n in NODES]
        sending = [work * size / (n * LINK) for n in NODES]
        most = [max(pair) for pair in zip(computing, sending, strict=True)]
        cells = [f"{seconds / 60:,.1f} min" for seconds in most]
        out.append(f"| {name} | {' | '.join(cells)} |")
    copied = work * key_bytes / LINK / 60
    out.append(
        f"| copy the keys to the trainer | {' | '.join([f'{copied:,.0f} min'] * len(NODES))} |"
    )
    one = work / train / 60
    out.append(f"| train, one pass | {' | '.join([f'{one:,.0f} min'] * len(NODES))} |")
    return "\n".join(out)


def main() -> None:
    _, rows = read(RESULTS / "distributed.csv")
    text = PAGE.read_text()
    for mark, made in (("measured", measured(rows)), ("plan", plan(rows))):
        begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{made}\n{end}{rest.partition(end)[2]}"
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
