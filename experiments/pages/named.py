"""The numbers that pages quote, by the names that their templates use.

Most are leads: how many points one method is ahead of another, set by set. Their titles head the
columns of tables of points.
"""

import csv
import statistics
from pathlib import Path
from typing import Any

from experiments.best.search import TRIALS
from experiments.best.sized import MEGABYTES
from experiments.models.shallow import VALIDATION
from experiments.pages.numbers import Lead, Number, PerSet, Reached, lead
from experiments.plans import paper
from experiments.plans.ablations import ABLATIONS
from experiments.running.store import records
from experiments.studies.classes import BUCKETS, KINDS
from experiments.studies.regularising import NOISE
from experiments.tables.cells import gather

MILLION = 1_000_000
SMALL_SET = 10_000  # rows
EXCEPTION = "news_category"  # the one set where frequency picks better
ONLINE = Path(__file__).parents[2] / "benchmarks" / "results" / "online.csv"


def numbers(folder: Path) -> dict[str, Any]:
    """Name -> what templates can say of it."""
    reached = Reached(folder)
    found: dict[str, Any] = {"reached": reached}
    for part in (
        sets,
        table2,
        right_half,
        one_size,
        rivals,
        importance,
        pruning,
        buckets,
        hash_functions,
        rows,
        vocabulary,
        training,
        regularising,
        time,
        variants,
        sentence,
        collisions,
        best,
        online,
    ):
        found |= part(reached)
    return found


def sets(reached: Reached) -> dict[str, Any]:
    """Rows and classes, from table 1."""
    rows, classes = (
        Reached(reached.folder, metric)("table1", "sizes")
        for metric in (lambda m: m["train_rows"], lambda m: m["classes"])
    )
    small = {name: VALIDATION * rows[name] for name in rows if rows[name] < SMALL_SET}
    return {
        "classes": classes,
        "rows_a_class": PerSet({name: rows[name] / classes[name] for name in rows}),
        "validation_rows": PerSet(small),
    }


def table2(reached: Reached) -> dict[str, Any]:
    """Hash against standard embeddings without a dictionary, by three protocols."""
    ours, standard, small = paper.TABLE2
    protocols = {
        "default": "{}, default protocol",
        "adagrad": "{}, paper protocol",
        "adam": "{}, Adam, paper protocol",
    }
    titles = {"default": "default", "adagrad": "paper, Adagrad", "adam": "paper, Adam"}
    found: dict[str, Any] = {}
    for name, protocol in protocols.items():
        mine, theirs, quiet = (
            reached("table2", protocol.format(method)) for method in (ours, standard, small)
        )
        found[name] = lead(mine, theirs, f"{titles[name]}: over standard")
        found[f"{name}_small"] = lead(mine, quiet, f"{titles[name]}: over small start")
        found[f"{name}_start"] = lead(quiet, theirs, f"{titles[name]}: small start over standard")
    rates = {
        name: [label for label in ABLATIONS["rates"] if label.startswith(name)]
        for name in (ours, small)
    }
    mine, theirs = (reached.best("rates", labels) for labels in rates.values())
    found["best_rate"] = lead(mine, theirs, "best rates: over small start")
    found["best_of_rates"] = mine
    found["hash_rates"] = best_scales(reached, rates[ours], "hash: best rate / default")
    found["small_rates"] = best_scales(reached, rates[small], "small start: best rate / default")
    found["adam_seeds"] = seeds(reached, "table2", "hash 40M, Adam, paper protocol")
    crowding = reached["crowding"]
    found["crowding"] = PerSet(
        {
            name: crowding[name]["langid_commonvoice"] - crowding["hash 40M"]["langid_commonvoice"]
            for name in ABLATIONS["crowding"]
        }
    )
    found["adam_gain"] = lead(
        reached("table2", "hash 40M, Adam, paper protocol"),
        reached("table2", "hash 40M, default protocol"),
    )
    for name, change in (("constant", "constant rate"), ("case", "case kept")):
        found[f"{name}_gain"] = lead(
            reached("protocol", f"{ours}, {change}"), reached("protocol", f"{ours}, default")
        )
    found["langid_behind_small"] = Number(-found["default_small"]["langid_commonvoice"])
    found["constant_lead"] = lead(
        reached("protocol", f"{ours}, constant rate"),
        reached("protocol", f"{standard}, constant rate"),
    )
    return found


def best_scales(reached: Reached, labels: list[str], title: str) -> PerSet:
    """The rate that is best on each set, as a multiple of the default one."""
    means = {label: reached("rates", label) for label in labels}
    sets = next(iter(means.values()))
    return PerSet(
        {
            dataset: float(max(means, key=lambda x: means[x][dataset]).rpartition(" x ")[2])
            for dataset in sets
        },
        title,
        "g",
    )


def seeds(reached: Reached, experiment: str, name: str) -> dict[str, str]:
    """The accuracies of all seeds, set by set."""
    return {
        dataset: ", ".join(
            f"{value:.1f}" for value in sorted(reached.metric(r["metrics"]) for r in methods[name])
        )
        for dataset, methods in gather(reached.folder, experiment).items()
    }


def right_half(reached: Reached) -> dict[str, Any]:
    """Deep models with a dictionary: the sizes that validation chose, and the ensemble."""
    cells = gather(reached.folder, "table2")
    shallow = reached("table2", "hash 40M, Adam, paper protocol")
    chosen: dict[str, PerSet] = {}
    parameters: dict[str, PerSet] = {}
    for family, sizes in paper.DICTIONARY.items():
        names = {dataset: paper.chosen(dataset, sizes, reached.folder) for dataset in cells}
        runs = {dataset: cells[dataset][name] for dataset, name in names.items() if name}
        chosen[family] = PerSet(
            {
                dataset: statistics.mean(reached.metric(run["metrics"]) for run in of)
                for dataset, of in runs.items()
            }
        )
        parameters[family] = PerSet(
            {dataset: of[0]["metrics"]["parameters"] / 1e6 for dataset, of in runs.items()}
        )
    ensemble = reached("table2", *paper.ENSEMBLE)
    first = Reached(reached.folder, keep=lambda run: run["seed"] == paper.SEEDS[0])
    top = first.best("table2", paper.DICTIONARY["hash"])
    return {
        "deep": lead(chosen["hash"], chosen["standard"], "hash over standard"),
        "deep_small": lead(
            chosen["standard, small start"], chosen["standard"], "small start over standard"
        ),
        "deep_shallow": lead(chosen["hash"], shallow, "deep hash over shallow hash"),
        "ensemble": lead(ensemble, chosen["hash"], "ensemble over chosen hash"),
        "ensemble_shallow": lead(ensemble, shallow, "ensemble over shallow hash"),
        "ensemble_member": lead(
            first("table2", *paper.ENSEMBLE), first("table2", "deep hash, B = 50,000")
        ),
        "deep_500": lead(
            first("table2", "deep hash, B = 500"), top, "hash, B = 500 over the best B"
        ),
        "deep_10000": lead(
            first("table2", "deep hash, B = 10,000"), top, "hash, B = 10,000 over the best B"
        ),
        "deep_parameters": parameters["hash"],
        "deep_standard_parameters": parameters["standard"],
    }


def one_size(reached: Reached) -> dict[str, Any]:
    """Deep models of one size: snippets or whole documents, with and without normalisation."""
    ours, theirs = paper.ONE_SIZE
    forms = {
        "snippets": "",
        "whole": ", whole documents",
        "plain": ", no normalisation",
        "plain_whole": ", no normalisation, whole documents",
    }
    mine = {form: reached("table2", ours + change) for form, change in forms.items()}
    other = {form: reached("table2", theirs + change) for form, change in forms.items()}
    shallow = reached("table2", "hash 40M, Adam, paper protocol")
    shallow_whole = reached("table2", "shallow hash 40M, Adam, whole documents")
    sets = mine["plain"]
    best_form = PerSet({name: max(mine[form][name] for form in forms) for name in sets})
    millions = Reached(reached.folder, lambda m: m["parameters"] / 1e6)
    return {
        "one_size_parameters": millions("table2", ours),
        "one_size_standard_parameters": millions("table2", theirs),
        "whole_gain": lead(mine["whole"], mine["snippets"], "hash: whole documents over snippets"),
        "whole_gain_standard": lead(
            other["whole"], other["snippets"], "standard: whole documents over snippets"
        ),
        "snippets_lead": lead(mine["snippets"], other["snippets"], "snippets: hash over standard"),
        "whole_lead": lead(mine["whole"], other["whole"], "whole documents: hash over standard"),
        "whole_shallow": lead(
            mine["whole"], shallow, "whole documents: deep hash over shallow hash on snippets"
        ),
        "whole_both": lead(mine["whole"], shallow_whole),
        "shallow_whole": shallow_whole,
        "plain_whole": mine["plain_whole"],
        "plain_whole_shallow": lead(mine["plain_whole"], shallow_whole),
        "plain_lead": lead(mine["plain"], other["plain"], "no normalisation, snippets"),
        "plain_whole_lead": lead(
            mine["plain_whole"], other["plain_whole"], "no normalisation, whole documents"
        ),
        "best_form": lead(best_form, shallow, "best of four forms over shallow hash"),
        "norm_snippets": lead(mine["snippets"], mine["plain"], "normalisation on snippets"),
        "norm_whole": lead(mine["whole"], mine["plain_whole"], "normalisation on whole documents"),
        "whole_seeds": seeds(reached, "table2", f"{ours}{forms['whole']}"),
        "mean_gain": lead(reached("table2", f"{ours}, mean of vectors"), mine["snippets"]),
    }


RIVALS = {
    "bow": "BoW",
    "ngrams": "n-grams",
    "tfidf": "n-grams TFIDF",
    "fasttext": "fastText",
    "fasttext25": "fastText, 25 passes",
    "nbsvm": "NBSVM",
}


def rivals(reached: Reached) -> dict[str, Any]:
    """Table 3: the hash embedding of table 2 against earlier bags of words."""
    ours = reached("table2", "hash 40M, default protocol")
    found: dict[str, Any] = {
        f"over_{name}": lead(ours, reached("table3", rival), f"over {rival}")
        for name, rival in RIVALS.items()
    }
    more, few = (reached("table3", RIVALS[name]) for name in ("fasttext25", "fasttext"))
    tfidf = reached("table3", RIVALS["tfidf"])
    found["passes25"] = lead(more, few, "fastText: 25 passes over 5")
    found["tfidf_best_rate"] = lead(table2(reached)["best_of_rates"], tfidf)
    return found


def importance(reached: Reached) -> dict[str, Any]:
    """Importance weights against none; where they begin."""
    ours = reached("importance", "hash")
    others = {
        "over_trick": "hashing trick, k = 1",
        "over_trick_small": "hashing trick, k = 1, small start",
        "over_trick_equal": "hashing trick, k = 1, B = 200,000, small start",
    }
    found: dict[str, Any] = {
        name: lead(ours, reached("importance", other), f"hash over {other}")
        for name, other in others.items()
    }
    usual = reached("start", "P from N(0, 0.0005)")
    for start in ("0.1", "1"):
        other = f"P from N({start}, 0.0005)"
        found[f"start_{start.replace('.', '_')}"] = lead(
            usual, reached("start", other), f"N(0, 0.0005) over N({start}, 0.0005)"
        )
    return found


def pruning(reached: Reached) -> dict[str, Any]:
    """What a share of the n-grams keeps, chosen by importance or by frequency."""

    def kept(share: float, by: str) -> Reached:
        def metric(metrics: dict) -> float:
            return 100 * next(row[by] for row in metrics["kept"] if row["share"] == share)

        return Reached(reached.folder, metric)

    found: dict[str, Any] = {}
    one = ("table4", "important n-grams")
    whole = reached(*one)
    for share, name in ((0.1, "tenth"), (0.02, "fiftieth"), (0.001, "thousandth")):
        by_weight, by_count = (kept(share, by)(*one) for by in ("weight", "count"))
        found[f"{name}_kept"] = by_weight
        found[f"{name}_frequent"] = by_count
        percent = f"{100 * share:g}%"
        found[f"{name}_loss"] = lead(whole, by_weight, f"lost with {percent} by importance", "")
        found[f"{name}_lead"] = lead(by_weight, by_count, f"{percent}: importance over frequency")
    others = {name: loss for name, loss in found["tenth_loss"].items() if name != EXCEPTION}
    found["pruning_worst"] = Number(max(others.values(), default=float("nan")))
    found["pruning_sets"] = len(others)
    at_rest = Reached(reached.folder, lambda m: 100 * m["at_rest"])(*one)
    found["at_rest"] = PerSet(at_rest, "% at rest")
    for share, name in ((0.1, "pruned_tenth"), (0.01, "pruned_hundredth")):
        found[name] = kept(share, "weight")["pruning"]
        found[f"{name}_frequent"] = kept(share, "count")["pruning"]
        found[f"{name}_both"] = lead(
            reached("pruning", "as table 4"), kept(share, "both")("pruning", "as table 4")
        )
    found["least"] = {
        run["dataset"]: [text for text, _, _ in run["metrics"]["least"]]
        for run in records(reached.folder, "table4")
    }
    found["pruned_all"] = reached["pruning"]
    found["important_count"] = Reached(reached.folder, lambda m: m["count_of_important"])["pruning"]
    return found


def buckets(reached: Reached) -> dict[str, Any]:
    """B against accuracy, and how that depends on the number of classes."""
    most = reached("buckets", f"B = {MILLION:,}")
    found: dict[str, Any] = {
        f"B{B}": lead(most, reached("buckets", f"B = {B:,}"), f"lost with B = {B:,}", "")
        for B in (500, 10_000)
    }
    for name, other in (("standard", "standard 200M"), ("small", "standard 200M, small start")):
        found[f"few_{name}"] = lead(
            reached("hashes", "k = 2"),
            reached("table2", f"{other}, default protocol"),
            f"hash 4M over {other}",
        )
    for kind in KINDS:
        top = reached("classes", f"{kind}, B = {BUCKETS[-1]:,}")
        for B in BUCKETS[:-1]:
            name = kind.replace("the ", "c").replace(" ", "_")
            found[f"{name}_B{B}"] = lead(top, reached("classes", f"{kind}, B = {B:,}"))
    return found


def hash_functions(reached: Reached) -> dict[str, Any]:
    """From one hash function to two, from two to four, with many and with few buckets."""
    found: dict[str, Any] = {}
    for name, suffix in (("many", ""), ("few", ", B = 2,000")):
        k = {n: reached("hashes", f"k = {n}{suffix}") for n in (1, 2, 3, 4)}
        text = suffix or ", B = 100,000"
        found[f"k2_{name}"] = lead(k[2], k[1], f"k = 2 over k = 1{text}")
        found[f"k4_{name}"] = lead(k[4], k[2], f"k = 4 over k = 2{text}")
        found[f"k34_{name}"] = lead(PerSet({s: max(k[3][s], k[4][s]) for s in k[2]}), k[2])
    return found


def rows(reached: Reached) -> dict[str, Any]:
    """Importance rows that are independent of the buckets, shared with them, or a dictionary's."""
    found: dict[str, Any] = {}
    for name, suffix in (("many", ""), ("few", ", K = 100,000")):
        free = reached("rows", f"independent{suffix}")
        text = suffix or ", K = 1,000,000"
        shared = reached("rows", f"shared, D-hat = D1{suffix}")
        ranked = reached("rows", f"dictionary{text}")
        found[f"independent_{name}"] = lead(free, shared, f"independent over shared{text}")
        found[f"ranked_{name}"] = lead(ranked, free, f"dictionary over independent{text}")
    return found


def vocabulary(reached: Reached) -> dict[str, Any]:
    """A dictionary of 1- to 9-grams under the shallow model; the length of n-grams by itself."""
    ours = reached("dictionary", "hash, 1,000,000 n-grams, B = 50,000")
    small = [name for name in ABLATIONS["dictionary"] if name.endswith("small start")]
    found: dict[str, Any] = {
        "words_lead": lead(
            ours, reached.best("dictionary", small), "hash 3M over the best standard, small start"
        ),
        "no_dictionary": lead(
            reached("buckets", "B = 50,000"), ours, "no dictionary over a dictionary"
        ),
    }
    for name, method in (("longer", "hash 40M"), ("longer_small", "standard 200M, small start")):
        grams = {
            n: reached("ngrams", f"{method}, {text}")
            for n, text in (
                (1, "words"),
                (2, "1- and 2-grams"),
                (3, "1- to 3-grams"),
                (5, "1- to 5-grams"),
                (9, "1- to 9-grams"),
            )
        }
        who = "" if name == "longer" else "small start: "
        found[f"{name}_2"] = lead(grams[2], grams[1], f"{who}bigrams over words")
        for n in (3, 5, 9):
            found[f"{name}_{n}"] = lead(grams[n], grams[2], f"{who}1- to {n}-grams over bigrams")
    found["longer_less"] = lead(found["longer_9"], found["longer_small_9"])
    return found


def training(reached: Reached) -> dict[str, Any]:
    """Snippets against whole documents."""
    found: dict[str, Any] = {}
    for name, title, suffix in (
        ("adagrad", "paper's protocol, Adagrad", ", paper's protocol"),
        ("adam", "paper's protocol, Adam", ", paper's protocol, Adam"),
    ):
        found[f"snippets_{name}"] = lead(
            reached("snippets", f"snippets{suffix}"),
            reached("snippets", f"whole documents{suffix}"),
            f"snippets over whole documents, {title}",
        )
    found["snippets_default"] = lead(
        reached("snippets", "snippets of 4 to 100"),
        reached("snippets", "whole documents"),
        "snippets over whole documents, two passes",
    )
    return found


def regularising(reached: Reached) -> dict[str, Any]:
    """At the passes that validation chose, with right labels and with 30% of wrong ones."""
    found: dict[str, Any] = {}
    for noise, name in zip(NOISE, ("clean", "noisy"), strict=True):
        labels = f"{noise:.0%} wrong labels"
        ours = reached("regularising", f"hash, B = 100,000, {labels}")
        for other, key in (("standard", "standard"), ("standard, small start", "small")):
            theirs = reached("regularising", f"{other}, {labels}")
            found[f"{name}_{key}"] = lead(ours, theirs, f"{labels}: hash over {other}")
        for B in (500, 10_000):
            fewer = reached("regularising", f"hash, B = {B:,}, {labels}")
            found[f"{name}_{B}"] = lead(fewer, ours, f"{labels}: B = {B:,} over 100,000")
    last = Reached(reached.folder, lambda m: 100 * m["curve"][-1]["train_accuracy"])
    found["by_heart"] = last("regularising", "hash, B = 500, 30% wrong labels")
    return found


def time(reached: Reached) -> dict[str, Any]:
    """Ratios of the median seconds of training, on a quiet machine."""
    cells = gather(reached.folder, "time")

    def seconds(name: str) -> dict[str, float]:
        quiet = {
            dataset: [r["metrics"]["train_seconds"] for r in methods[name] if r["quiet"]]
            for dataset, methods in cells.items()
        }
        return {dataset: statistics.median(times) for dataset, times in quiet.items() if times}

    def ratio(ours: str, theirs: str, title: str) -> PerSet:
        mine, other = seconds(ours), seconds(theirs)
        return PerSet(
            {name: mine[name] / other[name] for name in mine if name in other}, title, ".2f"
        )

    one, two = "standard, 1M vectors", "standard, two of 1M vectors"
    large = "standard, 10M vectors"
    return {
        "time_second": ratio(two, one, "two vectors / one"),
        "time_weights": ratio("hash, k = 1", one, "hash, k = 1 / one vector"),
        "time_table": ratio(large, one, "10M vectors / 1M"),
        "time_hash": ratio("hash, k = 2", large, "hash, k = 2 / standard"),
        "time_hash1": ratio("hash, k = 1", large, "hash, k = 1 / standard"),
    }


def variants(reached: Reached) -> dict[str, Any]:
    """Appended importance weights, and concatenation instead of a sum."""
    found: dict[str, Any] = {
        f"appended_{name}": lead(
            reached("appended", f"appended{suffix}"),
            reached("appended", f"without{suffix}"),
            f"appended over without{suffix}",
        )
        for name, suffix in (
            ("usual", ""),
            ("few", ", B = 1,000"),
            ("narrow", ", B = 1,000, d = 2"),
        )
    }
    for name, ours, theirs in (
        ("dim", "concatenation, d = 20", "sum, d = 20"),
        ("dim_few", "concatenation, d = 20, B = 1,000", "sum, d = 20, B = 1,000"),
        ("parameters", "concatenation, d = 10, B = 200,000", "sum, d = 20"),
    ):
        found[f"concat_{name}"] = lead(
            reached("concat", ours), reached("concat", theirs), f"{ours} over {theirs}"
        )
    return found


def sentence(reached: Reached) -> dict[str, Any]:
    """Hash embeddings under sentence models, against dictionaries and the hashing trick."""
    found: dict[str, Any] = {}
    size = Reached(reached.folder, lambda m: 100 * m["embedding_parameters"])
    for model in ("convolution", "recurrent"):
        small = reached("sentence", f"{model}, hash, K = 8,000, B = 1,000")
        large = reached("sentence", f"{model}, hash, K = 16,000, B = 3,000")
        for name, ours, other in (
            ("equal", small, "dictionary, 1,300 words"),
            ("trick", small, "hashing trick, B = 1,300"),
            ("whole", large, "dictionary, all words"),
        ):
            which = "hash, 182k" if ours is large else "hash, 66k"
            title = f"{model}: {which} over {other}"
            found[f"{model}_{name}"] = lead(ours, reached("sentence", f"{model}, {other}"), title)
    large = size("sentence", "convolution, hash, K = 16,000, B = 3,000")
    whole = size("sentence", "convolution, dictionary, all words")
    found["sentence_share"] = PerSet({s: 100 * large[s] / whole[s] for s in large})
    found["deviation"] = PerSet(
        {
            dataset: 100 * statistics.mean(chance(run) for runs in methods.values() for run in runs)
            for dataset, methods in gather(reached.folder, "sentence").items()
        }
    )
    gains = {
        f"{model}, {s}": v
        for model in ("convolution", "recurrent")
        for s, v in found[f"{model}_equal"].items()
    }
    found["sentence_equal"] = Lead(gains)
    found["sentence_whole"] = Lead(
        {
            f"{model}, {s}": v
            for model in ("convolution", "recurrent")
            for s, v in found[f"{model}_whole"].items()
        }
    )
    return found


def chance(run: dict) -> float:
    """The standard deviation of an accuracy that comes from the number of test rows alone."""
    share = run["metrics"]["test_accuracy"]
    return (share * (1 - share) / run["rows"][1]) ** 0.5


def collisions(reached: Reached) -> dict[str, Any]:
    """How far the counted shares are from those that the theorem expects, in percentage points."""
    apart, large, shared = [], [], PerSet({})
    for run in records(reached.folder, "collisions"):
        for share in run["metrics"]["shares"]:
            distance = 100 * abs(share["same_row"] - share["same_row_expected"])
            if share["indexing"] == "independent":
                apart.append(distance)
                if run["metrics"]["vocabulary"] > MILLION:
                    large.append(distance)
            elif share["K"] == 10 * MILLION:
                shared[run["dataset"]] = 100 * share["same_vector"]
    return {
        "apart": Number(max(apart, default=float("nan"))),
        "apart_large": Number(max(large, default=float("nan"))),
        "large_vocabularies": sum(
            run["metrics"]["vocabulary"] > MILLION for run in records(reached.folder, "collisions")
        ),
        "shared_lost": shared,
    }


def online(reached: Reached) -> dict[str, Any]:
    """Progressive accuracy over a whole stream, from the benchmark of online learning."""
    found = {}
    with open(ONLINE, newline="", encoding="utf8") as file:
        for row in csv.DictReader(file):
            if row["stream"] == "as it comes":  # the last row of a tool has all texts
                found[row["tool"]] = 100 * float(row["accuracy"])
    return {"online": PerSet(found)}


def best(reached: Reached) -> dict[str, Any]:
    """What the walk gains at each size, what fewer bits gain, and fastText."""
    found: dict[str, Any] = {}
    for size in MEGABYTES:
        start, walked, bits, peer = (
            reached("best", f"{size} MB, {who}")
            for who in ("start", "best", "best, fewer bits", "fastText")
        )
        found[f"walk_{size}"] = lead(walked, start, f"{size} MB: best over start")
        found[f"bits_{size}"] = lead(bits, walked, f"{size} MB: fewer bits over best")
        found[f"peer_{size}"] = lead(start, peer, f"{size} MB: start over fastText")
        found[f"walk_peer_{size}"] = lead(walked, peer)
    whole = reached("best", "as it is")
    file_size = Reached(reached.folder, lambda m: m["file_bytes"] / 1e6)
    found["default_megabytes"] = file_size("best", "as it is")
    for bits in (8, 4):
        found[f"as_it_is_{bits}"] = lead(
            whole, reached("best", f"as it is, {bits} bits"), f"lost in {bits} bits", ""
        )
    found["one_megabyte"] = lead(
        reached("best", "1 MB, best, fewer bits"), whole, "1 MB, fewer bits, over TextClassifier()"
    )
    scored = Reached(reached.folder, lambda m: 100 * m["validation_accuracy"])
    for size in (1, 10):
        hidden = {
            name: run["configuration"]
            for methods in gather(reached.folder, TRIALS).values()
            for name, runs in methods.items()
            for run in runs[:1]
            if run["configuration"]["hidden_layers"] and run["configuration"]["megabytes"] == size
        }
        losses = [
            lead(scored(TRIALS, name.replace(", hidden 100", "")), scored(TRIALS, name))
            for name in hidden
        ]
        found[f"hidden_{size}"] = losses[0] if losses else Lead({})
    return found
