"""The runs of each study. Those that matter most come first, in case time runs out.

The first studies choose settings on the validation split; the last two use what was chosen.
"""

from dataclasses import replace

from benchmarks.language_model.training import Job

SHARES = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32)
PEERS = ("quotient-remainder", "low rank", "hashing trick")
SEEDS = (0, 1, 2)
SHORT = 2  # epochs of a run that only chooses
DIM = 256
ROOT = DIM**0.5
STD = DIM**-0.5  # 0.0625: the output scores a word by a product of d terms
Rows = list[dict]

# Settings that the others are compared with.
HASH = Job("tuning", "hash", 1 / 8, 2, "signs", 0.3, STD, epochs=SHORT)
FULL = Job("tuning", "full", std=STD, epochs=SHORT)
NGRAMS = {"ngram_rows": 500_000, "ngram_buckets": 4_000}


def tuning() -> list[Job]:
    """Initial values, rates and numbers of hash functions, each varied by itself, at 1/8."""
    jobs = [HASH, FULL]
    jobs += [
        replace(HASH, weights=weights, weight_size=size, std=std)
        for weights, size, std in (
            ("signs", 1.0, STD),
            ("ones", 1.0, STD),
            ("ones", 0.3, STD),
            ("signs", 1.0, 2 * STD),
            ("ones", 1.0, 2 * STD),
            ("signs", 0.3, 0.02),
        )
    ]
    jobs += [replace(HASH, hashes=k) for k in (1, 4, 8, 16)]
    jobs += [replace(HASH, rate=rate) for rate in (1e-3, 4e-3)]
    jobs += [replace(FULL, rate=rate) for rate in (1e-3, 4e-3)]
    jobs += [replace(FULL, std=2 * STD)]
    for kind in PEERS:
        peer = replace(FULL, table=kind, share=1 / 8)
        jobs += [peer, replace(peer, std=0.02), replace(peer, rate=4e-3)]
        jobs += [replace(peer, std=2 * STD)] if kind != "hashing trick" else []
    return jobs


def others() -> list[Job]:
    """An output with a table of its own; n-grams; numbers of hash functions at 1/32."""
    untied = [
        replace(HASH, study="untied", tied=False, weights=weights, weight_size=size, std=std)
        for weights, size, std in (
            ("paper", 0.0, 0.0),
            ("ones", 1.0, 0.02),
            ("signs", 0.3, STD),
            ("signs", 1.0, 1.0),
        )
    ]
    ngrams = [
        replace(HASH, study="ngram starts", longest=4, ngram_weights=weights, **NGRAMS)
        for weights in ("paper", "signs")
    ]
    few = [replace(HASH, study="tuning", share=1 / 32, hashes=k) for k in (2, 4)]
    return ngrams + few + untied


def starts() -> list[Job]:
    """More initial values, of full tables and hash tables."""
    full = [
        replace(FULL, study="starts", std=std, scale=scale)
        for std, scale in ((0.02, 1.0), (STD, 1.0), (1.0, 1.0), (0.02, ROOT), (STD, ROOT))
    ]
    hashed = [
        replace(HASH, study="starts", weights=weights, weight_size=size, std=std, scale=scale)
        for weights, size, std, scale in (
            ("paper", 0.0, 0.0, 1.0),
            ("ones", 1.0, 0.02, 1.0),
            ("ones", 0.3, 0.02, 1.0),
            ("ones", 0.1, 0.02, 1.0),
            ("ones", 0.03, 0.02, 1.0),
            ("normal", 1.0, 0.02, 1.0),
            ("normal", 0.1, 0.02, 1.0),
            ("signs", 1.0, 0.02, 1.0),
            ("signs", 0.1, 0.02, 1.0),
            ("ones", 1.0, STD, 1.0),
            ("ones", 0.1, STD, 1.0),
            ("normal", 0.1, STD, 1.0),
            ("signs", 0.1, STD, 1.0),
            ("signs", 0.03, STD, 1.0),
            ("ones", 1.0, 1.0, 1.0),
            ("signs", 0.1, 0.02, ROOT),
            ("signs", 0.1, STD, ROOT),
        )
    ]
    return full + hashed


def chosen(rows: Rows, kind: str) -> Job:
    """The best initial values, the best rate and the best number of hash functions of a table."""
    base = HASH if kind == "hash" else replace(FULL, table=kind)
    share = 1.0 if kind == "full" else 1 / 8
    mine = [
        r for r in rows if r["study"] == "tuning" and r["table"] == kind and r["share"] == share
    ]

    def best(*varied: str) -> dict:
        """Of the runs that differ from the base in these fields only."""
        fixed = {"hashes", "weights", "weight_size", "std", "rate"} - set(varied)
        runs = [r for r in mine if all(r[name] == getattr(base, name) for name in fixed)]
        found = min(runs, key=lambda r: r["validation_perplexity"], default={})
        return {name: found[name] for name in varied if name in found}

    return replace(base, **best("weights", "weight_size", "std"), **best("rate"), **best("hashes"))


def sizes(rows: Rows, epochs: int) -> list[Job]:
    """Perplexity against parameters; three seeds, on the test split too."""
    settled = {
        kind: replace(chosen(rows, kind), study="sizes") for kind in ("full", "hash", *PEERS)
    }
    jobs = []
    for seed in SEEDS:
        jobs += [replace(settled["full"], share=1.0, seed=seed)]
        jobs += [replace(settled["hash"], share=share, seed=seed) for share in SHARES]
    for seed in SEEDS:
        jobs += [replace(settled[k], share=share, seed=seed) for share in SHARES for k in PEERS]
    # The weights of the words take at most half of the parameters.
    fitting = [min(job.hashes, int(job.share * DIM / 2)) for job in jobs]
    return [
        replace(job, hashes=k, epochs=epochs, tested=True)
        for job, k in zip(jobs, fitting, strict=True)
    ]


def ngrams(rows: Rows, epochs: int) -> list[Job]:
    """n-grams as further inputs, held by a second hash layer; three seeds."""
    found = [row for row in rows if row["study"] == "ngram starts"]
    best = min(found, key=lambda row: row["validation_perplexity"], default={})
    start = best.get("ngram_weights", "paper")
    table = replace(chosen(rows, "hash"), study="ngrams", share=1 / 8, ngram_weights=start)
    full = replace(chosen(rows, "full"), study="ngrams", share=1.0, ngram_weights=start)
    return [
        replace(job, seed=seed, longest=longest, epochs=epochs, tested=True, **NGRAMS)
        for seed in SEEDS
        for job, longest in ((table, 2), (table, 3), (table, 4), (full, 4))
    ]


def final(rows: Rows, epochs: int) -> list[Job]:
    """`sizes` and `ngrams`; the hash table and its full peer first, then one seed of the others."""

    def rank(job: Job) -> tuple[bool, int, bool]:
        own = job.study == "sizes" and job.table in ("full", "hash")
        return (not own, job.seed, job.study == "sizes")

    return sorted(sizes(rows, epochs) + ngrams(rows, epochs), key=rank)
