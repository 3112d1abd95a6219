"""The result pages are what the committed runs give, and quote nothing by hand."""

import re
from pathlib import Path

import pytest
from experiments.__main__ import TABLES
from experiments.pages import report
from experiments.pages.named import numbers
from experiments.pages.numbers import NONE, Lead, Number, PerSet, lead, span
from experiments.plans import paper
from experiments.plans.ablations import ABLATIONS
from experiments.running.store import RUNS, records

ROOT = Path(__file__).parents[2]
EXPERIMENTS = [*TABLES, *ABLATIONS, "collisions", "best"]

# Numbers of configurations, of the paper and of names: no results of runs.
CONSTANTS = {
    "0.1": "initial components; the smallest difference that counts; a share of n-grams",
    "0.0005": "initial importance weights",
    "0.3": "where importance weights begin",
    "0.6": "the default rate",
    "0.45": "its exponent",
    "0.001": "Adam's rate",
    "0.003": "a rate that was tried",
    "0.01": "Adagrad's rate",
    "0.03": "a rate that was tried",
    "0.002": "the length of weights at rest",
    "0.9": "fastText 0.9.2",
    "62.5": "the paper",
    "62.6": "the paper",
    "71.3": "the paper",
    "71.9": "the paper",
    "0.1%": "a share of n-grams",
    "1%": "a share of n-grams",
    "2%": "a share of n-grams",
    "5%": "validation rows",
    "30%": "wrong labels",
}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return report.pages(RUNS)


@pytest.fixture(scope="module")
def known() -> dict:
    return numbers(RUNS)


def templates() -> list[Path]:
    return sorted(report.TEMPLATES.glob("*.md"))


def test_pages_are_up_to_date(pages):
    for name, text in pages.items():
        assert (ROOT / name).read_text("utf8") == text, f"{name}: python -m experiments report"
    written = {
        f"experiments/results/{path.name}" for path in (ROOT / "experiments/results").iterdir()
    }
    assert written == set(pages) - {report.SUMMARY}


def test_the_summary_fits_on_two_screens(pages):
    assert len(pages[report.SUMMARY].splitlines()) <= 100


def test_no_run_that_a_page_quotes_is_missing(known):
    for template in templates():
        quoted = report.Quoting().vformat(template.read_text("utf8"), (), known)
        assert NONE not in quoted, template.name


@pytest.mark.parametrize("template", templates(), ids=lambda path: path.stem)
def test_templates_quote_results_as_placeholders(template):
    text = re.sub(
        r"\{[^}]*\}|^    .*|<!--.*?-->|`[^`]*`|\]\([^)]*\)", "", template.read_text("utf8")
    )
    found = set(re.findall(r"(?<![\w.])\d+\.\d+%?|\d+%", text))
    assert found <= set(CONSTANTS), f"{template.name} quotes {sorted(found - set(CONSTANTS))}"


def test_every_experiment_has_its_table_on_a_page(pages):
    marks = {
        name
        for template in templates()
        for name in re.findall(r"^<!-- (.+) -->$", template.read_text("utf8"), re.M)
    }
    assert set(report.SECTIONS) <= marks
    for name in report.PLOTS:
        assert (ROOT / "experiments/figures" / f"{name}.png").exists()
        assert any(f"](../figures/{name}.png)" in text for text in pages.values())


def test_the_how_to_names_every_experiment():
    text = (ROOT / "experiments/README.md").read_text("utf8")
    named = {
        words.split()[0] for words in re.findall(r"`([a-z][a-z0-9]+(?: --part [^`]+)?)`", text)
    }
    assert set(EXPERIMENTS) <= named
    parts = " ".join(re.findall(r"--part ([^`]+)`", text)).split()
    assert {*paper.FOLLOW_UPS, "dictionary", "ensemble"} <= set(parts)
    assert {*parts} <= {*paper.PARTS, *paper.FOLLOW_UPS}


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize(
    "page",
    ["RESULTS.md", "experiments/README.md", "benchmarks/README.md"]
    + [f"experiments/results/{path.name}" for path in templates() if path.name != report.SUMMARY],
)
def test_links_lead_somewhere(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf8")):
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), f"{page} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)", there.read_text("utf8"), re.M)
            assert anchor in map(slug, headings), f"{page} links to {target}"


def test_the_committed_runs_are_all_there():
    """There were 4,351 when they were first collected."""
    counted = sum(1 for name in [*EXPERIMENTS, "best_trials"] for _ in records(RUNS, name))
    assert counted >= 4351


# --- how numbers are written --------------------------------------------------------------------


def test_leads_count_and_span():
    ours = PerSet({"a": 90.0, "b": 80.04, "c": 70.0, "d": 60.0})
    theirs = PerSet({"a": 88.0, "b": 80.0, "c": 71.26, "e": 1.0})
    found = lead(ours, theirs)
    assert (found.sets, found.ahead, found.even, found.behind) == (3, 1, 1, 1)
    assert (found.span, found.lead, found.lag) == ("-1.3 to 2.0", "2.0", "1.3")
    assert (found.ahead_on, found.even_on, found.behind_on) == ("a (2.0)", "b", "c (1.3)")
    assert found.close_on == "b"
    assert f"{found['a']:+} {found['c']:abs} {found['b']:+} {found['a']:.2f}" == "+2.0 1.3 0.0 2.00"


def test_numbers_without_runs_are_dashes(tmp_path):
    empty = Lead({})
    assert f"{empty['imdb']} {empty['imdb']:+} {empty.span} {empty.ahead_on}" == "– – – none"
    assert span([0.96, 1.04]) == "1.0"
    assert str(Number(-0.01)) == "0.0"
    made = report.pages(tmp_path)
    assert "No runs yet." in made["experiments/results/table2.md"]
    with pytest.raises(KeyError):
        report.Quoting().vformat("{no_such_number}", (), {"adam": empty})
