"""From the files in benchmarks/results to a plot and to the tables of README and the pages.

usage: python -m benchmarks.report
"""

import csv
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
CHOICE = RESULTS / "choice.csv"
README = Path(__file__).parent.parent / "README.md"
TRAINING = Path(__file__).parent.parent / "docs" / "how-it-works" / "training.md"
CPU = Path(__file__).parent.parent / "docs" / "results" / "cpu.md"
IMBALANCE = Path(__file__).parent.parent / "docs" / "guides" / "imbalance.md"
COMPRESS = Path(__file__).parent.parent / "docs" / "guides" / "compress.md"
ONLINE = Path(__file__).parent.parent / "docs" / "guides" / "online.md"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
OURS, PEER = "hashembed", "fastText"


def read(path: Path = RESULTS / "classify.csv") -> tuple[list[str], list[dict]]:
    """-> the comment lines, the rows."""
    lines = path.read_text().splitlines()
    comments = [line.removeprefix("# ") for line in lines if line.startswith("#")]
    return comments, list(csv.DictReader(line for line in lines if not line.startswith("#")))


def table(rows: list[dict]) -> str:
    """Markdown: for each set of choice.csv, us beside fastText and tf-idf with an SVM."""
    by = {(row["set"], row["tool"]): row for row in rows}
    heads = ["set", "hashembed", "fastText", "tf-idf + SVM", "training", "one text", "model"]
    out = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in dict.fromkeys(row["set"] for row in rows):
        ours, peer, svm = by[name, OURS], by[name, PEER], by.get((name, "tf-idf + SVM"))
        cells = [name]
        cells += [f"{100 * float(r['accuracy']):.1f}" if r else "" for r in (ours, peer, svm)]
        cells.append("{:.2f} / {:.2f} s".format(*(float(r["train_seconds"]) for r in (ours, peer))))
        cells.append(f"{float(ours['single_per_second']) / float(peer['single_per_second']):.1f}x")
        cells.append(
            "{:.0f} / {:.0f} MB".format(*(float(r["model_bytes"]) / 1e6 for r in (ours, peer)))
        )
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out)


def peers_table(rows: list[dict]) -> str:
    """Markdown: accuracy and seconds of training of every tool on every set."""
    tools = list(dict.fromkeys(row["tool"] for row in rows))
    by = {(row["set"], row["tool"]): row for row in rows}
    out = [f"| set | {' | '.join(tools)} |", "|---" * (len(tools) + 1) + "|"]
    for name in dict.fromkeys(row["set"] for row in rows):
        cells = []
        for tool in tools:
            row = by[name, tool]
            known = f"{100 * float(row['accuracy']):.1f}%, " if row["accuracy"] else ""
            seconds = row["train_seconds"]
            seconds = seconds if seconds.startswith(">") else f"{float(seconds):.1f}"
            cells.append(f"{known}{seconds} s")
        out.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(out)


def rates_table(rows: list[dict]) -> str:
    """Markdown: accuracy by rate, the best of each line in bold, and at the default rate."""
    rates = [name for name in rows[0] if name[0].isdigit()]
    heads = ["set (n-grams a text, classes)", "passes", *rates, "at the default rate"]
    out = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        best = max(float(row[rate]) for rate in rates)
        cells = [f"{float(row[r]):.1f}" for r in rates]
        cells = [
            f"**{c}**" if float(row[r]) == best else c for c, r in zip(cells, rates, strict=True)
        ]
        name = f"{row['set']} ({row['ngrams_per_document']}, {row['classes']})"
        default = f"{float(row['default']):.1f} ({row['default_rate']})"
        out.append(f"| {name} | {row['passes']} | {' | '.join(cells)} | {default} |")
    return "\n".join(out)


def hidden_table(rows: list[dict]) -> str:
    """Markdown: without a hidden layer, and with one by passes, without / with normalisation."""
    passes = [name for name in rows[0] if name[0].isdigit() and "normalised" not in name]
    heads = ["set (texts)", "no hidden layer", *passes]
    out = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        pairs = [(float(row[name]), float(row[f"{name}, normalised"])) for name in passes]
        cells = [f"{without:.1f} / {normalised:.1f}" for without, normalised in pairs]
        name, shallow = f"{row['set']} ({int(row['texts']):,})", float(row["no hidden layer"])
        out.append(f"| {name} | {shallow:.1f} | {' | '.join(cells)} |")
    return "\n".join(out)


def patience_table(rows: list[dict]) -> str:
    """Markdown: passes and accuracy by default and with patience."""
    heads = ["set (classes)", "default", "passes", "with patience 3", "passes"]
    out = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        cells = [f"{row['set']} ({row['classes']})"]
        for which, passes in (("default", "passes"), ("patience", "passes_patience")):
            cells += [f"{float(row[which]):.1f}", f"{float(row[passes]):.0f}"]
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out)


def mean(rows: list[dict], column: str) -> float:
    """Over the seeds."""
    return sum(float(row[column]) for row in rows) / len(rows)


def punctuation_table(rows: list[dict]) -> str:
    """Markdown: accuracy without and with punctuation."""
    out = ["| set (texts) | drop | keep | difference |", "|---|---|---|---|"]
    for name in dict.fromkeys(row["set"] for row in rows):
        own = [row for row in rows if row["set"] == name]
        drop, keep = mean(own, "drop"), mean(own, "keep")
        texts = f"{name} ({int(own[0]['texts']):,})"
        out.append(f"| {texts} | {drop:.1f} | {keep:.1f} | {keep - drop:+.1f} |")
    return "\n".join(out)


def imbalance_table(rows: list[dict]) -> str:
    """Markdown: three measures by the weights of classes."""
    measures = ("accuracy or micro F1", "macro recall", "macro F1")
    weights = list(dict.fromkeys(row["weights"] for row in rows))
    heads = ["set", "classes", "largest / smallest", *measures]
    out = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in dict.fromkeys(row["set"] for row in rows):
        own = [row for row in rows if row["set"] == name]
        cells = [name, own[0]["classes"], f"{int(own[0]['largest / smallest']):,}"]
        for measure in measures:
            found = [mean([r for r in own if r["weights"] == w], measure) for w in weights]
            cells.append(" / ".join(f"{x:.1f}" for x in found))
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out)


def online_table(rows: list[dict]) -> str:
    """Markdown: progressive accuracy after so many texts, and texts a second."""
    counts = ("20480", "102400", "189037")
    heads = ["stream", "tool", *(f"{int(n):,} texts" for n in counts), "texts/s"]
    out = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for stream, tool in dict.fromkeys((row["stream"], row["tool"]) for row in rows):
        own = [row for row in rows if (row["stream"], row["tool"]) == (stream, tool)]
        at = {row["texts"]: f"{100 * float(row['accuracy']):.1f}" for row in own}
        cells = [stream, tool, *(at.get(n, "") for n in counts)]
        out.append(f"| {' | '.join(cells)} | {int(own[-1]['texts_per_second']):,} |")
    return "\n".join(out)


def plot(rows: list[dict], path: Path) -> None:
    from matplotlib.figure import Figure

    sets = list(dict.fromkeys(row["set"] for row in rows))
    tools = list(dict.fromkeys(row["tool"] for row in rows))
    figure = Figure(figsize=(13, 7), layout="constrained")
    for axes, name in zip(figure.subplots(2, -(-len(sets) // 2)).flat, sets, strict=False):
        for row in (row for row in rows if row["set"] == name and row["accuracy"]):
            x, y = float(row["train_seconds"]), 100 * float(row["accuracy"])
            axes.plot(x, y, "o", color=f"C{tools.index(row['tool'])}", label=row["tool"])
        axes.set(title=name, xscale="log", xlabel="training, seconds", ylabel="test accuracy, %")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(tools))
    figure.savefig(path, dpi=80)


def choice_table(rows: list[dict]) -> str:
    """Markdown: accuracy with defaults beside tuned peers; seconds and sizes beside fastText's."""
    peers = [t for t in dict.fromkeys(row["tool"] for row in rows) if t != OURS]
    by = {(row["set"], row["tool"]): row for row in rows}
    heads = ["set (classes, texts)", OURS, *peers, "training", "model"]
    out = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in dict.fromkeys(row["set"] for row in rows):
        ours, peer = by[name, OURS], by[name, PEER]
        first = f"{name} ({int(ours['classes']):,}, {int(ours['texts']):,})"
        own = f"{100 * float(ours['accuracy']):.1f} ± {100 * float(ours['spread']):.1f}"
        others = [by.get((name, tool)) for tool in peers]
        cells = [first, own, *(f"{100 * float(r['accuracy']):.1f}" if r else "" for r in others)]
        seconds = [float(row["train_seconds"]) for row in (ours, peer)]
        sizes = [float(row["model_bytes"]) / 1e6 for row in (ours, peer)]
        cells += ["{:.1f} / {:.1f} s".format(*seconds), "{:.0f} / {:.0f} MB".format(*sizes)]
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out)


def compress_table(rows: list[dict]) -> str:
    """Markdown: accuracy of both tools in full and at each size."""
    from benchmarks.bench_compress import SIZES, best

    heads = ["set (classes)", *(f"{size // 1000:,} kB" for size in SIZES), "full"]
    heads.append("hashembed, 1,000 kB, without texts")
    out = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in dict.fromkeys(row["set"] for row in rows):
        classes = next(row["classes"] for row in rows if row["set"] == name)
        cells = [f"{name} ({classes})"]
        for size in (*map(str, SIZES), ""):
            pair = [best(rows, name, tool, size) for tool in (OURS, PEER)]
            shown = [f"{100 * float(r['accuracy']):.1f}" if r else "" for r in pair]
            if all(pair) and shown[0] != shown[1]:
                winner = max((0, 1), key=lambda i: float(pair[i]["accuracy"]))
                shown[winner] = f"**{shown[winner]}**"
            cells.append(" / ".join(shown))
        alone = [r for r in rows if r["set"] == name and r["setting"] == "without texts"]
        cells.append(f"{100 * float(alone[0]['accuracy']):.1f}" if alone else "")
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out)


def compress_parts_table(rows: list[dict]) -> str:
    """Markdown: accuracy of each change on each set."""
    changes = list(dict.fromkeys(row["change"] for row in rows))
    out = [f"| set | full | {' | '.join(changes)} |", "|---" * (len(changes) + 2) + "|"]
    by = {(row["set"], row["change"]): row for row in rows}
    for name in dict.fromkeys(row["set"] for row in rows):
        own = [by[name, change] for change in changes]
        cells = [name, *(f"{100 * float(x):.1f}" for x in [own[0]["full"]])]
        cells += [f"{100 * float(row['accuracy']):.1f}" for row in own]
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out)


def fill(page: Path, content: str, begin: str = BEGIN) -> None:
    """Put a table where the page has a place for it."""
    before, rest = page.read_text().split(begin)
    _, after = rest.split(END, 1)
    page.write_text(f"{before}{begin}\n{content}\n{END}{after}")


def main() -> None:
    _, rows = read()
    plot(rows, RESULTS / "classify.png")
    fill(README, table(read(CHOICE)[1]))
    fill(TRAINING, rates_table(read(RESULTS / "rates.csv")[1]))
    fill(TRAINING, hidden_table(read(RESULTS / "hidden.csv")[1]), "<!-- hidden -->")
    fill(TRAINING, patience_table(read(RESULTS / "patience.csv")[1]), "<!-- patience -->")
    fill(CPU, peers_table(rows), "<!-- peers -->")
    fill(CPU, choice_table(read(CHOICE)[1]), "<!-- choice -->")
    fill(TRAINING, punctuation_table(read(RESULTS / "punctuation.csv")[1]), "<!-- punctuation -->")
    fill(IMBALANCE, imbalance_table(read(RESULTS / "imbalance.csv")[1]), "<!-- imbalance -->")
    fill(COMPRESS, compress_table(read(RESULTS / "compress.csv")[1]), "<!-- compress -->")
    parts = read(RESULTS / "compress_parts.csv")[1]
    fill(COMPRESS, compress_parts_table(parts), "<!-- compress parts -->")
    fill(ONLINE, online_table(read(RESULTS / "online.csv")[1]), "<!-- online -->")


if __name__ == "__main__":
    main()
