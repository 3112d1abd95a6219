import json
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hashembed.hashing import theory
from hashembed.hashing.planner import BudgetError, Candidate, format_bytes, plan, round_down
from hashembed.hashing.spec import INDEXINGS, MAX_SIZE, HashSpec

MB = 10**6


def sizes(candidate: Candidate | None) -> tuple[int, int, int]:
    assert candidate is not None
    return candidate.num_embeddings, candidate.num_buckets, candidate.num_hashes


def test_the_papers_model_is_recommended_for_its_budget() -> None:
    result = plan(100 * MB, 20, 160 * MB)
    assert sizes(result.recommended) == (10 * MB, 1 * MB, 2)
    best = result.recommended
    assert best is not None
    assert best.parameters == 40 * MB
    assert best.bytes == 160 * MB
    assert best.ratio == 0.02
    assert best.same_buckets.probability == pytest.approx(1e-4, rel=1e-3)
    assert best.same_buckets.tokens == pytest.approx(1e4, rel=1e-3)
    assert "none of 100,000,000 tokens" in result.reason
    assert result.notes == ()


def test_without_a_budget_the_papers_rule() -> None:
    result = plan(100 * MB, 20)
    assert sizes(result.recommended) == (100 * MB, 10 * MB, 2)
    assert all(c.num_embeddings == 10 * c.num_buckets for c in result.candidates)
    assert {c.num_hashes for c in result.candidates} == {1, 2, 3, 4}


def test_the_reason_does_not_claim_a_rule_that_is_not_kept() -> None:
    assert "K >= 10 B is its rule" in plan(10**6, 300, indexing="identity").reason
    small = plan(3000, 300, indexing="identity")
    assert sizes(small.recommended) == (3000, 500, 2)
    assert "B = 500 is the fewest it tries" in small.reason


def test_half_precision_doubles_the_room() -> None:
    wide, narrow = plan(10**9, 20, 160 * MB), plan(10**9, 20, 80 * MB, dtype_bytes=2)
    assert [sizes(c) for c in wide.candidates] == [sizes(c) for c in narrow.candidates]


def test_a_dictionary_has_a_row_for_every_token() -> None:
    result = plan(1_234_567, 200, 100 * MB, indexing="identity")
    assert {c.num_embeddings for c in result.candidates} == {1_234_567}
    assert {c.indistinguishable.probability for c in result.candidates} == {0}
    best = result.recommended
    assert best is not None
    assert best.num_buckets == max(c.num_buckets for c in result.candidates if c.num_hashes == 2)


def test_shared_indexing_prefers_rows_where_that_halves_the_collisions() -> None:
    shared = plan(2 * MB, 300, 160 * MB, indexing="shared")
    same_hashes = [c for c in shared.candidates if c.num_hashes == 2]
    assert shared.recommended is min(same_hashes, key=lambda c: c.indistinguishable.probability)
    assert "a larger K" in shared.reason
    assert any("independent indexing" in note for note in shared.notes)
    independent = plan(2 * MB, 300, 160 * MB)
    assert independent.recommended is max(
        (c for c in independent.candidates if c.num_hashes == 2), key=lambda c: c.num_buckets
    )


def test_shared_indexing_keeps_its_buckets_where_rows_do_not_help() -> None:
    result = plan(100 * MB, 20, 160 * MB, indexing="shared")
    assert sizes(result.recommended) == (10 * MB, 1 * MB, 2)


def test_a_standard_table_that_fits_is_mentioned() -> None:
    result = plan(100_000, 300, 1000 * MB)
    assert result.recommended is not None
    assert len(result.notes) == 1
    assert "takes 120 MB and fits the budget: you may not need" in result.notes[0]


@pytest.mark.parametrize("budget", [None, 10 * MB])
def test_a_standard_table_that_is_smaller_is_recommended(budget: int | None) -> None:
    result = plan(1000, 4, budget)
    assert result.recommended is None
    assert "standard table (16 kB) is smaller" in result.reason
    assert all(c.ratio > 1 for c in result.candidates)


def test_a_budget_only_for_the_standard_table() -> None:
    result = plan(1000, 4, 16_000)
    assert result.candidates == ()
    assert result.recommended is None
    assert len(result.notes) == 1


def test_nearest_to_the_papers_number_of_hashes() -> None:
    assert sizes(plan(10**8, 20, 160 * MB, num_hashes=3).recommended)[2] == 3
    assert sizes(plan(10**8, 20, 160 * MB, num_hashes=(4, 1, 3, 3)).recommended)[2] == 3
    assert sizes(plan(10**8, 20, 160 * MB, num_hashes=[1]).recommended)[2] == 1


def test_a_budget_that_is_too_small_names_one_that_works() -> None:
    with pytest.raises(BudgetError) as caught:
        plan(10**8, 20, 59_999)
    message = str(caught.value)
    assert "a budget of 60 kB is too small" in message
    assert "(K = 5,000, B = 500, k = 1, d = 20) takes 60 kB" in message
    assert "a standard table 8 GB" in message
    assert sizes(plan(10**8, 20, 60_000).recommended) == (5000, 500, 1)


def test_a_dictionary_that_does_not_fit() -> None:
    with pytest.raises(BudgetError, match=r"K = 1,000,000, B = 500, k = 1, d = 10\) takes 4.02 MB"):
        plan(MB, 10, 4_019_999, indexing="identity")
    assert sizes(plan(MB, 10, 4_020_000, indexing="identity").recommended) == (MB, 500, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocabulary": 0}, "vocabulary must be a whole number from 1"),
        ({"vocabulary": 1e8}, "vocabulary must be a whole number"),
        ({"vocabulary": 2**33, "indexing": "identity"}, "vocabulary must be .* to 4,294,967,296"),
        ({"embedding_dim": 0}, "embedding_dim must be"),
        ({"budget_bytes": 0}, "budget_bytes must be"),
        ({"dtype_bytes": 0}, "dtype_bytes must be"),
        ({"num_hashes": 0}, "num_hashes must be"),
        ({"num_hashes": ()}, "num_hashes must hold at least one"),
        ({"indexing": "both"}, "indexing must be one of"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        plan(**{"vocabulary": 10**8, "embedding_dim": 20, **arguments})


@settings(deadline=None)
@given(
    vocabulary=st.integers(1, 10**6) | st.integers(1, 10**18),
    embedding_dim=st.integers(1, 1000),
    budget=st.none() | st.integers(1, 10**10) | st.integers(1, 10**18),
    dtype_bytes=st.sampled_from([2, 4, 8]),
    num_hashes=st.lists(st.integers(1, 64), min_size=1, max_size=4),
    indexing=st.sampled_from(INDEXINGS),
)
def test_every_plan_keeps_its_promises(
    vocabulary, embedding_dim, budget, dtype_bytes, num_hashes, indexing
) -> None:
    assume(indexing != "identity" or vocabulary <= MAX_SIZE)
    standard = vocabulary * embedding_dim * dtype_bytes
    try:
        result = plan(
            vocabulary,
            embedding_dim,
            budget,
            dtype_bytes=dtype_bytes,
            num_hashes=num_hashes,
            indexing=indexing,
        )
    except BudgetError:
        assert budget < standard
        return
    json.dumps(result.to_dict(), allow_nan=False)
    order = [(c.num_hashes, -c.num_buckets, -c.num_embeddings) for c in result.candidates]
    assert order == sorted(set(order))
    for c in result.candidates:
        spec = HashSpec(c.num_embeddings, c.num_buckets, c.num_hashes, indexing)
        assert c.bytes == theory.hash_bytes(spec, embedding_dim, dtype_bytes=dtype_bytes)
        assert c.bytes <= (budget or c.bytes)
        assert c.num_hashes in num_hashes
        if indexing == "identity":
            assert c.num_embeddings == vocabulary
        else:
            assert c.num_embeddings >= 10 * c.num_buckets
        for collision in (c.indistinguishable, c.same_row, c.same_buckets, c.shared_bucket):
            assert 0 <= collision.probability <= 1
            assert collision.tokens == vocabulary * collision.probability
        assert c.indistinguishable.probability <= c.same_buckets.probability + 1e-15
    if result.recommended is None:
        assert budget is None or standard <= budget
    else:
        assert result.recommended in result.candidates
        assert result.recommended.bytes < standard
    assert bool(result.notes) or budget is None or standard > budget


def test_to_dict() -> None:
    fields = plan(100 * MB, 20, 160 * MB).to_dict()
    assert json.loads(json.dumps(fields)) == fields
    assert fields["vocabulary"] == 100 * MB
    assert fields["standard_bytes"] == 8000 * MB
    assert fields["recommended"] in fields["candidates"]
    assert set(fields["recommended"]["indistinguishable"]) == {"probability", "tokens"}
    assert plan(10, 1).to_dict()["recommended"] is None


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("indexing", INDEXINGS)
def test_plot(tmp_path: Path, suffix: str, indexing: str) -> None:
    path = tmp_path / f"plan{suffix}"
    plan(MB, 50, 50 * MB, indexing=indexing).plot(path)
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize("vocabulary", [1, 10**18])
def test_plot_of_extreme_vocabularies(tmp_path: Path, vocabulary: int) -> None:
    plan(vocabulary, 1).plot(tmp_path / "plan.svg")


def test_plot_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "hashembed\[plot\]"'):
        plan(MB, 50).plot(tmp_path / "plan.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("number", "rounded"),
    [(-5, 0), (0, 0), (7, 7), (99, 99), (101, 100), (1999, 1900), (10**15 - 1, 99 * 10**13)],
)
def test_round_down(number: int, rounded: int) -> None:
    assert round_down(number) == rounded


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (160 * MB, "160 MB"), (999_999, "1 MB")],
)
def test_format_bytes(size: int, text: str) -> None:
    assert format_bytes(size) == text
