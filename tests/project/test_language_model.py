"""The language model of the benchmark: no look ahead, equal sizes, the right loss."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from benchmarks.language_model import plot, report, small, studies
from benchmarks.language_model.data import END, UNKNOWN, Corpus, read
from benchmarks.language_model.ngrams import MISSING, ngram_ids
from benchmarks.language_model.tables import KINDS, VARIANTS, make_table, start
from benchmarks.language_model.training import (
    Job,
    Sizes,
    batches,
    build,
    count_ngrams,
    evaluate,
    loss,
    parameters,
    run,
)

V, D = 300, 16
SIZES = Sizes(dim=D, layers=2, heads=2, length=12, batch=4, dropout=0.0)
NGRAMS = {"longest": 4, "ngram_rows": 500, "ngram_buckets": 50, "ngram_weights": "ones"}


def tokens(windows=3, length=12, seed=0):
    return torch.randint(0, V, (windows, length), generator=torch.Generator().manual_seed(seed))


def test_ngrams_are_the_tokens_up_to_a_position():
    some = tokens()
    ids = ngram_ids(some, 4, V)
    for window, t, n in np.ndindex(3, 12, 3):
        size = n + 2
        digits = [int(token) + 1 for token in some[window, max(0, t - size + 1) : t + 1]]
        expected = sum(d * (V + 1) ** i for i, d in enumerate(reversed(digits)))
        assert ids[window, t, n] == (expected if len(digits) == size else MISSING)


def test_different_ngrams_have_different_ids():
    few = torch.tensor(
        [[a, b, c, d] for a in (0, 1) for b in (0, 1) for c in (0, 1) for d in (0, 1)]
    )
    ids = ngram_ids(few, 4, 2)
    grams = {(n, tuple(row[3 - n : 4].tolist())) for row in few for n in (1, 2, 3)}
    assert len(set(ids[:, -1].flatten().tolist())) == len(grams)


def test_ngrams_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="5-grams of 33,278 words do not fit"):
        ngram_ids(tokens(), 5, 33_278)


@pytest.mark.parametrize("options", [{}, NGRAMS], ids=["words", "n-grams"])
def test_nothing_after_a_position_reaches_it(options):
    torch.manual_seed(0)
    model = build(Job("test", share=0.5, std=1.0, **options), SIZES, V).eval()
    some, place = tokens(), 5
    changed = some.clone()
    changed[:, place] = (changed[:, place] + 1) % V
    before, after = model(some), model(changed)
    assert torch.equal(before[:, :place], after[:, :place])
    assert (before[:, place:] != after[:, place:]).any(-1).all()


@pytest.mark.parametrize("kind", [*KINDS[1:], *VARIANTS])
@pytest.mark.parametrize("share", [1 / 2, 1 / 4])
def test_tables_use_their_budget(kind, share):
    table = make_table(kind, 2_000, 64, share, 0.02)
    budget = share * 2_000 * 64
    assert 0.9 * budget < parameters(table) <= budget
    assert table(torch.arange(2_000)).shape == (2_000, 64)


@pytest.mark.parametrize("kind", [*KINDS, *VARIANTS])
def test_vectors_start_with_the_standard_deviation(kind):
    torch.manual_seed(0)
    table = make_table(kind, 2_000, 64, 0.5, 0.05)
    if kind == "hash":
        start(table, "ones", 1.0, 0.05)
    assert float(table(torch.arange(2_000)).detach().std()) == pytest.approx(0.05, rel=0.1)


@pytest.mark.parametrize("weights", ["ones", "signs", "normal"])
@pytest.mark.parametrize("size", [1.0, 0.1])
def test_starts_keep_the_standard_deviation(weights, size):
    torch.manual_seed(0)
    layer = start(make_table("hash", 2_000, 64, 0.5, 0.0, 3), weights, size, 0.05)
    assert float(layer(torch.arange(2_000)).detach().std()) == pytest.approx(0.05, rel=0.1)
    typical = float((layer.importance.detach() ** 2).mean() ** 0.5)
    assert typical == pytest.approx(size, rel=0.1)


def test_quotient_and_remainder_tell_all_words_apart():
    table = make_table("quotient-remainder", 2_000, 64, 1 / 8, 0.02)
    assert len(table(torch.arange(2_000)).unique(dim=0)) == 2_000
    trick = make_table("hashing trick", 2_000, 64, 1 / 8, 0.02)
    assert len(trick(torch.arange(2_000)).unique(dim=0)) == 250


def test_the_loss_is_that_of_every_token_but_the_first():
    torch.manual_seed(0)
    model = build(Job("test", share=0.5, std=1.0), SIZES, V).eval()
    ids = tokens(1, 100)[0]
    total = 0.0
    for begin in range(0, 99, 12):
        window = ids[begin : begin + 13]
        logits = (
            model(window[None, :-1])[0].detach() @ model.vectors().detach().T + model.bias.detach()
        )
        total += float(F.cross_entropy(logits, window[1:], reduction="sum"))
    assert evaluate(model, ids, SIZES) == pytest.approx(total / 99, rel=1e-5)


def test_the_targets_are_the_next_tokens():
    ids = torch.arange(200)
    seen = [(tokens, targets) for tokens, targets in batches(ids, SIZES)]
    assert len(seen) in (3, 4)
    for some, targets in seen:
        assert torch.equal(targets, some + 1)


def test_a_tied_table_gets_gradients_from_both_ends():
    torch.manual_seed(0)
    model = build(Job("test", share=0.5), SIZES, V)
    some = tokens()
    loss(model(some), model.vectors(), model.bias, some).backward()
    assert (model.table.importance.grad != 0).all()  # all words are scored
    assert model.table.weight.grad.abs().sum() > 0


def test_training_lowers_the_perplexity():
    rng = np.random.default_rng(0)
    ids = np.cumsum(rng.integers(1, 3, 6_000)) % V  # two possible next words
    corpus = Corpus([str(i) for i in range(V)], ids[:5_000], ids[5_000:], ids[5_000:])
    found = run(
        Job("test", share=0.5, epochs=8, rate=1e-2, tested=True), SIZES, corpus, "cpu", False
    )
    assert found["start_loss"] == pytest.approx(np.log(V), abs=0.1)
    assert found["validation_perplexity"] < 20
    assert found["test_perplexity"] == found["validation_perplexity"]
    assert found["table_parameters"] <= V * D / 2


def test_ngrams_are_counted():
    assert count_ngrams(np.array([1, 2, 1, 2, 3]), 4, 5) == [3, 3, 3, 2]


def test_a_corpus_is_read(tmp_path):
    (tmp_path / "train.txt").write_text(" = A = \n\n a b a <unk>\n", encoding="utf8")
    (tmp_path / "validation.txt").write_text("a z\n", encoding="utf8")
    with pytest.raises(SystemExit, match=r"test\.txt is missing"):
        read(tmp_path)
    (tmp_path / "test.txt").write_text("b\n", encoding="utf8")
    corpus = read(tmp_path)
    train = " ".join(corpus.words[i] for i in corpus.train)
    assert train == "= A = <eos> a b a <unk> <eos>"
    assert [corpus.words[i] for i in corpus.validation] == ["a", UNKNOWN, END]


# --- the studies, and the page -------------------------------------------------------------------


def finished(jobs, best=lambda job: False):
    return [{**asdict(job), "validation_perplexity": 1.0 if best(job) else 2.0} for job in jobs]


def test_the_best_settings_are_used():
    def best(job):
        return (job.weights, job.std) == ("signs", 0.02) or job.rate == 4e-3 or job.hashes == 16

    rows = finished(studies.tuning(), best)
    chosen = studies.chosen(rows, "hash")
    assert (chosen.weights, chosen.weight_size, chosen.std) == ("signs", 0.3, 0.02)
    assert (chosen.rate, chosen.hashes) == (4e-3, 16)
    assert studies.chosen(rows, "full").rate == 4e-3
    by_share = {job.share: job.hashes for job in studies.sizes(rows, 3) if job.table == "hash"}
    assert by_share == {1 / 2: 16, 1 / 4: 16, 1 / 8: 16, 1 / 16: 8, 1 / 32: 4}


def test_only_final_runs_see_the_test_split():
    rows = finished(studies.tuning() + studies.others())
    short = studies.tuning() + studies.others() + studies.starts()
    assert not any(job.tested for job in short + small.sharing() + small.untied())
    final = studies.final(rows, 3)
    assert all(job.tested and job.epochs == 3 for job in final)
    assert {job.seed for job in final} == {0, 1, 2}
    assert [job.table for job in final[:6]] == ["full"] + ["hash"] * 5


def test_a_small_copy_has_no_rare_words():
    words = [UNKNOWN, *(f"w{i}" for i in range(5_000))]
    ids = np.array([0, 3_999, 4_000, 5_000])
    corpus = small.cut(Corpus(words, ids, ids, ids))
    assert len(corpus.words) == small.WORDS
    assert corpus.train.tolist() == [0, 3_999, 0, 0]


def test_the_page_has_the_tables_of_the_result_files():
    page = report.PAGE.read_text("utf8")
    assert page == report.filled(page), "run python -m benchmarks.language_model.report"


@pytest.mark.parametrize("shade", ["light", "dark"])
def test_the_picture_is_that_of_the_result_file(shade):
    message = "run python -m benchmarks.language_model.report"
    assert plot.source() in plot.picture(shade).read_text("utf8"), message


def test_prose_quotes_the_numbers_of_the_tables():
    found = report.by_table(report.of_study("sizes"), "test_perplexity")
    full = np.mean(found["full", 1.0])
    costs = [round(np.mean(found["hash", share]) - full) for share in (1 / 2, 1 / 8)]
    page = report.PAGE.read_text("utf8")
    assert (
        f"half the size costs {costs[0]} points of perplexity, one of an eighth {costs[1]}" in page
    )
    guide = (report.PAGE.parents[1] / "guides" / "transformers.md").read_text("utf8")
    half = np.mean(found["hash", 1 / 2])
    assert f"costs {costs[0]} points of perplexity ({full:.0f} to {half:.0f})" in guide
    other = round(np.mean(found["quotient-remainder", 1 / 2]) - full)
    assert f"a quotient-remainder table {other} " in guide
