"""The tables of docs/results/language-model.md and the picture, from the files in results.

usage: python -m benchmarks.language_model.report
"""

import re
from fractions import Fraction
from pathlib import Path
from statistics import mean, stdev

from benchmarks.machine import RESULTS, read

PAGE = Path(__file__).parents[2] / "docs" / "results" / "language-model.md"
KINDS = ("hash", "quotient-remainder", "low rank", "hashing trick")
WEIGHTS = {"ones": "{}", "signs": "+{0} or -{0}", "normal": "normal, {}", "paper": "the paper's"}
Rows = list[dict[str, str]]


def of_study(name: str, file: str = "lm.csv") -> Rows:
    return [row for row in read(RESULTS / file) if row["study"] == name]


def by_table(rows: Rows, column: str) -> dict[tuple[str, float], list[float]]:
    """(table, share) -> the numbers of its seeds."""
    found: dict[tuple[str, float], list[float]] = {}
    for row in rows:
        found.setdefault((row["table"], float(row["share"])), []).append(float(row[column]))
    return found


def spread(values: list[float]) -> str:
    more = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{more}"


def markdown(heads: list[str], lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines))


def sizes() -> str:
    """Test perplexity by share of the parameters; means of the seeds and standard deviations."""
    found = by_table(of_study("sizes"), "test_perplexity")
    parameters = by_table(of_study("sizes"), "table_parameters")
    shares = sorted({share for _, share in found} - {1.0}, reverse=True)
    lines = [["1", f"{parameters['full', 1.0][0]:,.0f}", f"full: {spread(found['full', 1.0])}"]]
    lines[0] += [""] * (len(KINDS) - 1)
    for share in shares:
        cells = [str(Fraction(share)), f"{parameters['hash', share][0]:,.0f}"]
        lines.append(
            cells + [spread(found[k, share]) if (k, share) in found else "" for k in KINDS]
        )
    return markdown(["share", "parameters of the table", *KINDS], lines)


def starts() -> str:
    """Validation perplexity of hash tables at 1/8 by initial values, the best first."""
    tuned = [
        row for row in of_study("tuning") if row["hashes"] == "2" and float(row["rate"]) == 0.002
    ]
    rows = [*of_study("starts", "lm_starts.csv"), *tuned]
    lines = {}
    for row in rows:
        if row["table"] != "hash" or float(row["scale"]) != 1 or float(row["share"]) != 1 / 8:
            continue
        weights = WEIGHTS[row["weights"]].format(f"{float(row['weight_size']):g}")
        std = "0.00007" if row["weights"] == "paper" else f"{float(row['std']):g}"
        measured = float(row["validation_perplexity"])
        lines[weights, std] = (measured, [weights, std, row["start_loss"], f"{measured:.0f}"])
    heads = ["importance weights", "std of the vectors", "loss before training", "perplexity"]
    return markdown(heads, [line for _, line in sorted(lines.values())])


def scales() -> str:
    """The same for full tables, also with an input that is multiplied by sqrt(d)."""
    rows = [*of_study("starts", "lm_starts.csv"), *of_study("tuning")]
    lines = {}
    for row in rows:
        if row["table"] == "full":
            scale = "yes" if float(row["scale"]) > 1 else "no"
            measured = float(row["validation_perplexity"])
            std = f"{float(row['std']):g}"
            lines[std, scale] = (measured, [std, scale, row["start_loss"], f"{measured:.0f}"])
    heads = ["std of the vectors", "input times sqrt(d)", "loss before training", "perplexity"]
    return markdown(heads, [line for _, line in sorted(lines.values())])


def ngrams() -> str:
    """Seed 0 of each table, without and with n-grams."""
    plain = [row for row in of_study("sizes") if row["seed"] == "0"]
    rows = [row for row in of_study("ngrams") if row["seed"] == "0"]
    lines = []
    for kind, share in (("hash", 1 / 8), ("hash", 1 / 4), ("hash", 1 / 2), ("full", 1.0)):
        mine = [r for r in (*plain, *rows) if r["table"] == kind and float(r["share"]) == share]
        for row in sorted(mine, key=lambda row: int(row["longest"])):
            name = "full" if kind == "full" else f"hash, {Fraction(share)}"
            inputs = "words" if row["longest"] == "1" else f"1- to {row['longest']}-grams"
            total = int(row["table_parameters"]) + int(row["ngram_parameters"])
            scores = [f"{float(row[f'{s}_perplexity']):.1f}" for s in ("validation", "test")]
            lines.append([name, inputs, f"{total:,}", *scores])
    return markdown(["table", "input", "parameters of tables", "validation", "test"], lines)


def small(study: str) -> Rows:
    return of_study(study, "lm_small.csv")


def sharing() -> str:
    """The small copy: which words share rows."""
    found = by_table(small("sharing"), "validation_perplexity")
    lines = [
        [kind, spread(found[kind, 1 / 8]), spread(found[other, 1 / 8])]
        for kind, other in (
            ("hash", "hash, first by rank"),
            ("hashing trick", "hashing trick, by rank"),
            ("quotient-remainder, shuffled", "quotient-remainder"),
        )
    ]
    lines = [[kind.removesuffix(", shuffled"), *cells] for kind, *cells in lines]
    return markdown(["table", "any words share", "words of different frequency share"], lines)


def untied() -> str:
    """The small copy: initial values where the output has its own table."""
    found: dict[str, list[float]] = {}
    for row in small("untied"):
        std = "0.00007, the paper's" if row["weights"] == "paper" else f"{float(row['std']):g}"
        found.setdefault(std, []).append(float(row["validation_perplexity"]))
    lines = [
        [std, spread(values)] for std, values in sorted(found.items(), key=lambda x: mean(x[1]))
    ]
    return markdown(["std of the vectors", "perplexity"], lines)


TABLES = {f.__name__: f for f in (sizes, starts, scales, ngrams, sharing, untied)}


def filled(page: str) -> str:
    """The page with its tables as the result files have them now."""
    for name, make in TABLES.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if begin not in page:
            raise ValueError(f"{PAGE.name} has no place for the table {name!r}: {begin} {end}")
        page = re.sub(f"{begin}.*?{end}", f"{begin}\n{make()}\n{end}", page, flags=re.S)
    return page


def main() -> None:
    from benchmarks.language_model.plot import draw_all

    PAGE.write_text(filled(PAGE.read_text(encoding="utf8")), encoding="utf8")
    draw_all()


if __name__ == "__main__":
    main()
