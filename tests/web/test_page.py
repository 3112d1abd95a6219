"""Pages in a real browser: they answer and explain as Python does, run nothing that they are given,
and ask nobody for anything."""

import csv
import io
import json
import random
import re
import time
from pathlib import Path

import numpy as np
import pytest
from tests.cases.browser import open_browser

from hashembed import TextClassifier
from hashembed.web.facts import Accuracy
from hashembed.web.page import PageText, write_page
from hashembed.web.page import page as page_of

GOLDEN = Path(__file__).parents[1] / "golden"
GOOD = "a wonderful film with a great cast and a brilliant ending"
BAD = "a terrible film with a dull plot and a boring wooden cast"
REVIEW = "A wonderful film, but the plot is dull. I loved the Great cast!"
ATTACK = "<img src=x onerror='window.attacked=1'><script>window.attacked=1</script>"
LABELS = [ATTACK, "'\"><svg onload=window.attacked=1>", "=1+1", "\u202eevil\x00\x1b[31m", "مرحبا"]


def sentences(words: str, count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(words.split(), k=8)) for _ in range(count)]


def fitted(texts, labels, **options) -> TextClassifier:
    small = {"num_embeddings": 2000, "num_buckets": 400, "embedding_dim": 8, "batch_size": 8}
    small["punctuation"] = "drop"
    fixed = {"passes": 3, "members": 2, "ngrams": (1, 1), "subwords": None, **small}
    return TextClassifier(**{**fixed, **options}).fit(texts, labels)


def reviews() -> TextClassifier:
    texts = sentences(GOOD, 60, 0) + sentences(BAD, 60, 1)
    return fitted(texts, ["good"] * 60 + ["bad"] * 60, ngrams=(1, 2), subwords=(3, 4))


def hostile() -> TextClassifier:
    return fitted([f"word{i % 5} again" for i in range(50)], [LABELS[i % 5] for i in range(50)])


def topics() -> TextClassifier:
    texts = ["goal match team", "vote law minister", "goal vote team law", "nothing at all"] * 20
    labels = [["sport"], ["politics"], ["sport", "politics"], []] * 20
    return fitted(texts, labels)


def many_classes() -> TextClassifier:
    names = [f"class {i:03}" for i in range(298)] + ["long " * 60 + "label", "עברית"]
    return fitted([f"w{i} w{i}x" for i in range(300)] * 2, names * 2, members=1)


def numbers() -> TextClassifier:
    return fitted(["one fish", "two birds", "minus seven"] * 10, [1, 2, -7] * 10)


MODELS = {f.__name__: f for f in (reviews, hostile, topics, many_classes, numbers)}


@pytest.fixture(scope="module")
def browser():
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """name -> (classifier, path of its page), made on first use."""
    folder, pages = tmp_path_factory.mktemp("pages"), {}

    def make(name):
        if name not in pages:
            model, path = folder / f"{name}.safetensors", folder / f"{name}.html"
            MODELS[name]().save(model)
            text = PageText(
                title=ATTACK if name == "hostile" else None,
                description=ATTACK if name == "hostile" else None,
                examples=[REVIEW, ATTACK, "Not bad at all."],
            )
            write_page(path, model, text)
            pages[name] = TextClassifier.load(model), path
        return pages[name]

    return make


@pytest.fixture
def visit(browser, made):
    """Open a page; at the end of the test nothing may have gone wrong in it."""
    contexts = []

    def opened(name, **options):
        classifier, path = made(name)
        context = browser.new_context(accept_downloads=True, offline=True, **options)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.trouble, page.requests = [], []
        page.on("console", lambda message: page.trouble.append(message.text))
        page.on("pageerror", lambda error: page.trouble.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.add_init_script(
            "window.violations = []; document.addEventListener('securitypolicyviolation',"
            " event => violations.push(event.violatedDirective + ' ' + event.blockedURI))"
        )
        page.goto(path.as_uri())
        page.evaluate("hashembed.ready")
        contexts.append((context, page, path))
        return page, classifier

    yield opened
    for context, page, path in contexts:
        assert page.trouble == []
        assert page.evaluate("violations") == []
        assert page.evaluate("window.attacked") is None
        assert [url for url in page.requests if not url.startswith("blob:")] == [path.as_uri()]
        context.close()


def write(page, text):
    page.fill("#text", text)
    page.wait_for_selector("#answer[aria-busy=false]")


def near(found, wanted, tolerance=1e-6):
    assert np.asarray(found) == pytest.approx(np.asarray(wanted), abs=tolerance)


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_python(name, visit):
    page, classifier = visit(name)
    assert page.evaluate("hashembed.labels") == [str(c) for c in classifier.classes_.tolist()]
    for text in (REVIEW, "goal law", "word3 again", "w7 w7x", "two birds", "", "?!", "𝕏 e\u0301"):
        found = page.evaluate("text => hashembed.predict(text)", text)
        wanted = classifier.predict_top([text], None)[0]
        assert {x["label"] for x in found} == {str(label) for label, _ in wanted}
        chances = classifier.predict_proba([text])[0]
        by_name = {str(c): p for c, p in zip(classifier.classes_, chances, strict=True)}
        near([x["probability"] for x in found], [by_name[x["label"]] for x in found])
        near([x["probability"] for x in found], sorted(chances, reverse=True))


def test_the_answer_appears_as_you_type(visit):
    page, classifier = visit("reviews")
    write(page, "")
    assert page.inner_text("#verdict") == "No words yet"
    assert page.inner_text("#classes-note").startswith("Without words, these are the shares")
    assert page.is_hidden("#why")
    page.locator("#text").press_sequentially("great wonderful")
    page.wait_for_selector("#why", state="visible")
    page.wait_for_selector("#answer[aria-busy=false]")  # the last letter has been answered, too
    chance = classifier.predict_proba(["great wonderful"])[0].max()
    shown = page.locator(".class[aria-pressed=true]").inner_text().split()
    assert shown == ["good", f"{chance:.1%}"]
    assert page.locator("#verdict").inner_text().split() == shown
    assert page.locator(".class").count() == 2


# --- reasons ------------------------------------------------------------------------------------


def evidence_of_words(explanation):
    values = explanation.relative(explanation.word_contributions)[:, explanation.class_index()]
    return [
        (explanation.text[start:end], value)
        for (start, end), value in zip(explanation.words, values.tolist(), strict=True)
    ]


@pytest.mark.parametrize("label", ["good", "bad"])
def test_words_have_the_numbers_of_explain(label, visit):
    page, classifier = visit("reviews")
    write(page, REVIEW)
    button = page.locator(".class", has_text=label)
    if button.get_attribute("aria-pressed") == "false":
        button.click()
    assert page.inner_text("#why-class") == label
    wanted = evidence_of_words(classifier.explain(REVIEW, label))
    words = page.locator("#words .w")
    assert words.all_inner_texts() == [word for word, _ in wanted]
    largest = max(abs(value) for _, value in wanted)
    seen = 0
    for i, (_, value) in enumerate(wanted):
        words.nth(i).hover()
        assert float(page.inner_text("#tip b")) == pytest.approx(value, abs=6e-4)
        parts = [x.split()[0] for x in page.locator("#tip li").all_inner_texts()]
        if "and" not in parts:  # all are listed
            assert sum(map(float, parts)) == pytest.approx(value, abs=6e-4 * (len(parts) + 1))
            seen += len(parts) > 1
        kinds = words.nth(i).get_attribute("class").split()
        if abs(value) / largest > 0.081:
            assert ("for" if value > 0 else "against") in kinds
    assert seen > 0
    assert page.inner_text("#words") == REVIEW


def test_the_strongest_ngrams_are_those_of_explain(visit):
    page, classifier = visit("reviews")
    write(page, REVIEW)
    explanation = classifier.explain(REVIEW)
    page.click("#more-grams")
    shown = {}
    for row in page.locator("#grams tbody tr").all():
        name, times, value = row.locator("th, td").all_inner_texts()[:3]
        shown[name] = (int(times), float(value))
    from hashembed.classify.explain.render import shown as spelled

    for term in explanation.top(n=12):
        times, value = shown[spelled(term.text, term.subword)]
        assert times == len(term.places)
        assert value == pytest.approx(term.evidence, abs=6e-4)
    summary = explanation.summary()
    numbers = [float(x) for x in re.findall(r"[+-]\d+\.\d+", page.inner_text("#sum"))]
    near(numbers, [summary["bias"], summary["sum"] - summary["bias"], summary["sum"]], 6e-4)


def test_explain_from_a_script(visit):
    page, classifier = visit("reviews")
    found = page.evaluate("text => hashembed.explain(text, 'bad')", REVIEW)
    wanted = classifier.explain(REVIEW, "bad")
    assert found["label"] == "bad"
    near(found["probability"], wanted.probabilities[wanted.class_index()])
    near([word["evidence"] for word in found["words"]], [v for _, v in evidence_of_words(wanted)])


def test_the_keyboard_reaches_everything(visit):
    page, _ = visit("reviews")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the text"
    page.keyboard.press("Enter")
    page.keyboard.type("xyz ")
    assert "xyz " in page.input_value("#text")
    write(page, REVIEW)
    page.focus("#words")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#words", "aria-activedescendant") == "word-0"
    page.keyboard.press("End")
    assert page.locator("#words .active").inner_text() == "cast"
    assert page.is_visible("#tip")
    said = page.get_attribute("#words .active", "aria-label")
    assert re.fullmatch(r"cast, (plus|minus) \d\.\d{3}", said)
    page.keyboard.press("Escape")
    assert page.is_hidden("#tip")
    other = page.locator(".class[aria-pressed=false]")
    name = other.inner_text().split()[0]
    other.focus()
    page.keyboard.press("Enter")
    assert page.inner_text("#why-class") == name
    assert page.evaluate("document.activeElement.classList.contains('class')")
    names = page.evaluate(
        "[...document.querySelectorAll('button, input:not([type=file]), textarea, select')].filter("
        "e => !(e.textContent.trim() || e.labels?.length || e.ariaLabel)).map(e => e.id)"
    )
    assert names == []  # everything has a name to be read out


# --- nothing that is given is run ---------------------------------------------------------------


def test_labels_and_texts_are_shown_as_text(visit):
    page, _ = visit("hostile")
    assert page.title() == ATTACK
    assert page.inner_text("h1") == ATTACK
    assert page.inner_text(".lead") == ATTACK
    write(page, f"word0 again {ATTACK}")
    labels = " ".join(page.locator(".class").all_inner_texts())
    assert ATTACK in labels
    assert "�evil␀␛[31m" in labels
    assert ATTACK in page.inner_text("#words")
    page.locator(".chip").nth(1).click()
    assert page.input_value("#text") == ATTACK
    page.locator("#words .w").first.hover()
    page.fill("#lines", f"{ATTACK}\nword1")
    page.click("#run")
    page.wait_for_selector("#results")
    assert ATTACK in page.inner_text("#results")
    assert page.locator("main img, main svg, main script").count() == 0
    assert (
        page.evaluate(
            "new Promise(done => { try { document.body.innerHTML = '<b>'; done('written'); }"
            " catch (error) { done(error.name); } })"
        )
        == "TypeError"
    )  # trusted types: even a mistake in the page could not make markup of a string
    page.trouble.clear()
    page.evaluate("violations.length = 0")


def test_the_policy_stops_what_is_not_in_the_page(visit):
    page, _ = visit("reviews")
    tried = page.evaluate(
        """async () => {
          const image = new Image();
          const loaded = new Promise((done, fail) => [image.onload, image.onerror] = [done, fail]);
          image.src = 'https://example.com/x.png';
          const calls = [
            () => fetch('https://example.com'), () => fetch('data:,x'), () => loaded,
          ];
          const script = document.createElement('script');
          script.append('window.attacked = 1');
          document.head.append(script);
          const button = document.createElement('button');
          button.setAttribute('style', 'color: red');
          document.head.append(button);
          return Promise.all(calls.map(call => call().then(() => 'done', () => 'stopped')));
        }"""
    )
    assert tried == ["stopped"] * 3
    stopped = {v.split()[0] for v in page.evaluate("violations")}
    assert stopped >= {"connect-src", "img-src", "style-src-attr"}
    assert stopped & {"script-src-elem", "require-trusted-types-for"}
    page.trouble.clear()
    page.requests[1:] = []
    page.evaluate("violations.length = 0")


# --- other models -------------------------------------------------------------------------------


def test_a_text_may_have_several_labels(visit):
    page, classifier = visit("topics")
    for text in ("goal vote team law", "nothing at all"):
        write(page, text)
        given = set(classifier.predict([text])[0])
        ticked = page.locator(".class", has=page.locator(".tick")).all()
        assert {x.locator("bdi").inner_text() for x in ticked} == given
        assert page.locator(".limit").count() == 2
        told = page.inner_text("#verdict")
        assert all(label in told for label in given) if given else told == "None of the labels"
    assert f"above {classifier.threshold_:.1%} are given" in page.inner_text("#classes-note")


def test_three_hundred_classes_can_be_searched(visit):
    page, _ = visit("many_classes")
    write(page, "w7 w7x")
    assert page.locator(".class").count() == 6
    assert page.locator(".class").first.inner_text().startswith("class 007")
    page.fill("#find", "עבר")
    assert page.locator(".class bdi").all_inner_texts() == ["עברית"]
    page.locator(".class").click()
    page.fill("#find", "")
    assert page.locator(".class").count() == 7  # the chosen class stays in sight
    assert page.inner_text("#why-class") == "עברית"
    page.fill("#find", "long long")
    assert page.locator(".class").bounding_box()["height"] < 160
    page.fill("#find", "no such class")
    assert page.inner_text("#classes-note") == "No class matches."
    page.click("#all-counts")
    assert page.locator("#counts tr").count() == 300


def test_an_older_ensemble_averages_probabilities(browser, tmp_path):
    model, path = GOLDEN / "members_older.safetensors", tmp_path / "old.html"
    write_page(path, model, PageText(examples=["a good film"]))
    page = browser.new_page()
    page.goto(path.as_uri())
    page.evaluate("hashembed.ready")
    classifier = TextClassifier.load(model)
    label = page.inner_text("#why-class")
    assert label == str(classifier.predict(["a good film"])[0])
    wanted = evidence_of_words(classifier.explain("a good film"))
    shown = page.locator("#words .w").evaluate_all("words => words.map(w => w.ariaLabel)")
    numbers = [
        float(text.replace("minus ", "-").replace("plus ", "").split()[-1]) for text in shown
    ]
    near(numbers, [value for _, value in wanted], 6e-4)
    assert "averages probabilities" in page.inner_text("#sum")
    page.close()


def test_hebrew_runs_from_right_to_left(visit):
    page, _ = visit("reviews")
    write(page, "שלום great עולם")
    boxes = [word.bounding_box() for word in page.locator("#words .w").all()]
    assert boxes[0]["x"] > boxes[1]["x"] > boxes[2]["x"]
    page.focus("#words")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#words .active").inner_text() == "great"


# --- many texts ---------------------------------------------------------------------------------

ROWS = [
    ["id", "text", "note"],
    ["1", 'a "great" film, wonderful', "x"],
    ["2", "dull\r\nand boring", ATTACK],
    ["3", "", "=1+1"],
    ["4", "שלום great", ""],
]


def saved(page):
    with page.expect_download() as download:
        page.click("#save")
    data = Path(download.value.path()).read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")
    return list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))


def test_a_table_is_answered_and_saved(visit):
    page, classifier = visit("reviews")
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=";").writerows(ROWS)
    data = b"\xef\xbb\xbf" + text.getvalue().encode()
    page.set_input_files("#file", {"name": "a.csv", "mimeType": "text/csv", "buffer": data})
    page.wait_for_selector("#choices", state="visible")
    assert page.locator("#column option").all_inner_texts() == ["id", "text", "note"]
    assert page.evaluate("document.getElementById('column').selectedOptions[0].text") == "text"
    page.click("#run")
    page.wait_for_selector("#save", state="visible")
    found = saved(page)
    texts = [row[1] for row in ROWS[1:]]
    assert found[0] == [*ROWS[0], "answer", "probability"]
    kept = [[cell.replace("=1+1", "'=1+1") for cell in row] for row in ROWS[1:]]
    assert [row[:3] for row in found[1:]] == kept
    assert [row[3] for row in found[1:]] == classifier.predict(texts).tolist()
    near([float(row[4]) for row in found[1:]], classifier.predict_proba(texts).max(axis=1), 2e-6)
    page.locator("#results .text").nth(1).click()
    assert page.input_value("#text") == "dull\nand boring"


def test_no_saved_cell_is_a_formula(visit):
    """Texts, kept columns, names of columns and labels; numbers stay numbers."""
    page, _ = visit("hostile")
    formulas = [
        "=1+1",
        "+a1",
        "-x",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "--1",
        "+1+cmd|' /C calc'!A0",
        "＝1",
    ]
    plain = [
        "-5",
        "+3",
        "-1.5e-3",
        "-1,000.5",
        "-7%",
        "+.5",
        "1=1",
        "a-b",
        "'=1",
        "",
        "word2 again",
    ]
    rows = [[cell, f"word{i % 5} again"] for i, cell in enumerate(formulas + plain)]
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["=note", "text"], *rows])
    data = {"name": "a.csv", "mimeType": "text/csv", "buffer": text.getvalue().encode()}
    page.set_input_files("#file", data)
    page.wait_for_selector("#choices", state="visible")
    page.select_option("#column", "0")
    page.click("#run")
    page.wait_for_selector("#save", state="visible")
    found = saved(page)
    assert [row[0] for row in found] == ["'=note", *("'" + cell for cell in formulas), *plain]
    page.select_option("#column", "1")
    page.click("#run")
    page.wait_for_selector("#save", state="visible")
    assert {row[2] for row in saved(page)[1:]} == {"'=1+1", *LABELS} - {"=1+1"}


@pytest.mark.parametrize("data", [b"PK\x03\x04\x14\0\0\0 a workbook", b"%PDF-1.7 words", b"a\0b\0"])
def test_files_that_are_not_text_are_refused(visit, data):
    page, _ = visit("reviews")
    page.set_input_files("#file", {"name": "a.xlsx", "mimeType": "", "buffer": data})
    page.wait_for_selector("#many-note.problem")
    assert "a.xlsx is not a text file. Save it as CSV" in page.inner_text("#many-note")
    assert page.is_disabled("#run")
    wide = {"name": "a.txt", "mimeType": "text/plain", "buffer": "a good film".encode("utf-16")}
    page.set_input_files("#file", wide)
    page.wait_for_selector("#choices", state="visible")
    assert page.inner_text("#run") == "Classify 1 text"


def test_a_short_list_of_ngrams_is_not_stretched(visit):
    """Beside a long one its rows would stand far apart."""
    page, _ = visit("topics", viewport={"width": 1200, "height": 900})
    page.fill("#text", "goal match team law")
    page.wait_for_selector("#grams tbody tr >> nth=3")
    rows = "table => [...table.querySelectorAll('tbody tr')].map(row => row.offsetHeight)"
    found = [table.evaluate(rows) for table in page.locator("#grams table").all()]
    assert len(found[0]) != len(found[1])
    assert max(found[0] + found[1]) < 1.5 * min(found[0] + found[1])


def test_lines_can_be_pasted(visit):
    page, classifier = visit("topics")
    lines = ["goal vote team law", "", "nothing at all", "goal"]
    page.fill("#lines", "\n".join(lines))
    assert page.inner_text("#run") == "Classify 3 texts"
    page.click("#run")
    page.wait_for_selector("#save", state="visible")
    texts = [line for line in lines if line]
    wanted = [set(labels) for labels in classifier.predict(texts)]
    found = saved(page)[1:]
    assert [row[0] for row in found] == texts
    assert [set(filter(None, row[1].split(","))) for row in found] == wanted
    page.fill("#lines", "vote")  # answers to other texts would be wrong beside it
    assert page.is_hidden("#outcome")
    assert page.is_hidden("#save")
    page.click("#run")
    page.wait_for_selector("#save", state="visible")
    assert [row[0] for row in saved(page)[1:]] == ["vote"]


@pytest.mark.parametrize("width", [390, 1200])
def test_many_labels_of_one_text_stay_readable(browser, tmp_path, width):
    """A model for several labels may give a text nearly all of them."""
    names = [f"label {i}" for i in range(50)]
    clf = fitted(["all of them", "nothing"] * 9, [names, []] * 9, passes=20)
    write_page(tmp_path / "page.html", clf)
    context = browser.new_context(viewport={"width": width, "height": 800}, accept_downloads=True)
    page = context.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    page.evaluate("hashembed.ready")
    page.fill("#lines", "all of them\nnothing")
    page.click("#run")
    page.wait_for_selector("#save", state="visible")
    rows = page.locator("#results tbody tr")
    assert rows.nth(0).locator("td").nth(2).inner_text().endswith(" and 46 more")
    assert rows.nth(0).locator("td").nth(3).inner_text().count("%") == 4
    assert rows.nth(0).bounding_box()["height"] < 160
    assert rows.nth(0).locator("td").nth(2).bounding_box()["width"] > 100
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert sorted(saved(page)[1][1].split(",")) == sorted(names)
    context.close()


def test_a_file_is_dropped_and_a_long_run_is_cancelled(visit):
    page, _ = visit("reviews")
    page.evaluate(
        """lines => {
          const data = new DataTransfer();
          data.items.add(new File([lines], 'reviews.txt', {type: 'text/plain'}));
          window.dispatchEvent(new DragEvent('drop', {dataTransfer: data, cancelable: true}));
        }""",
        "a wonderful film\n" * 200_000,
    )
    page.wait_for_selector("#choices", state="visible")
    assert page.inner_text("#run") == "Classify 200,000 texts"
    page.evaluate(
        """() => {
          let last = performance.now();
          window.longest = 0;
          const tick = () => {
            window.longest = Math.max(longest, performance.now() - last);
            last = performance.now();
            setTimeout(tick);
          };
          tick();
        }"""
    )
    page.click("#run")
    while page.evaluate("document.getElementById('progress').value") < 0.01:
        time.sleep(0.01)
    page.click("#cancel")
    page.wait_for_selector("#results")
    assert page.inner_text("#many-note").startswith("Cancelled after ")
    assert page.locator("#results tbody tr").count() == 50
    page.click("#next")
    assert page.inner_text("#results tbody tr td").strip() == "51"
    assert page.evaluate("longest") < 1000  # milliseconds that the page did not react
    page.click("#clear")
    assert page.is_visible("#lines")


# --- looks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reviews", "many_classes", "hostile"])
def test_a_phone_scrolls_down_only(name, visit):
    page, _ = visit(name, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    write(page, f"{REVIEW} {'x' * 300} w299x")
    page.fill("#lines", f"{REVIEW}\n{'y' * 500}")
    page.click("#run")
    page.wait_for_selector("#results")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator("#results td:nth-child(3)").first.bounding_box()["width"] > 120
    page.locator("#words .w").first.tap()
    assert page.is_visible("#tip")


CONTRAST = """() => {
  const parse = color => color.match(/[\\d.]+/g).map(Number);
  const over = ([r, g, b, alpha = 1], under) =>
    [r, g, b].map((c, i) => c * alpha + under[i] * (1 - alpha));
  const linear = c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) =>
    0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = e => e
    ? over(parse(getComputedStyle(e).backgroundColor), ground(e.parentElement))
    : [255, 255, 255];
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), e = walker.currentNode.parentElement;
    if (!text || e.closest('script, noscript, .unseen, :disabled')) continue;
    if (!e.checkVisibility()) continue;
    const under = ground(e);
    const [a, b] = [light(over(parse(getComputedStyle(e).color), under)), light(under)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push([e.className, text.slice(0, 30), ratio]);
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(scheme, visit):
    page, _ = visit("reviews", color_scheme=scheme, reduced_motion="reduce")
    write(page, REVIEW)
    page.locator("#words .w").nth(1).hover()
    assert page.evaluate(CONTRAST) == []
    paper = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(paper)
    page.click("#theme")
    assert page.evaluate(paper) != before
    assert page.evaluate(CONTRAST) == []
    assert sum(map(int, re.findall(r"\d+", before))) > 600 if scheme == "light" else True


def test_it_is_quick(visit):
    page, _ = visit("reviews")
    ready, each = page.evaluate(
        """async text => {
          const ready = performance.now();
          for (let i = 0; i < 20; i++) hashembed.predict(text);
          const began = performance.now();
          for (let i = 0; i < 20; i++) hashembed.predict(text);
          return [ready, (performance.now() - began) / 20];
        }""",
        f"{REVIEW} " * 20,
    )
    assert ready < 10_000  # milliseconds; generous, for busy machines
    assert each < 100


# --- the file -----------------------------------------------------------------------------------


def test_the_same_model_gives_the_same_bytes(made, tmp_path):
    classifier, _ = made("reviews")
    classifier.save(tmp_path / "m")
    text = PageText("Title", "Words", ["one", "</script>"], Accuracy(0.5, "4 test texts"))
    for name in "ab":
        write_page(tmp_path / name, tmp_path / "m", text)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    classifier.save(tmp_path / "large", for_training=True)
    write_page(tmp_path / "c", tmp_path / "large", text)
    assert (tmp_path / "c").read_bytes() == (tmp_path / "a").read_bytes()


def test_a_damaged_page_says_so(made, browser, tmp_path):
    _, path = made("reviews")
    damaged = tmp_path / "damaged.html"
    start, model, end = re.split(r'(?<=id="model">)([^<]+)', path.read_text())
    damaged.write_text(f"{start}{model[:-400]}{end}")
    page = browser.new_page()
    page.goto(damaged.as_uri())
    page.wait_for_selector("#problem", state="visible")
    assert page.inner_text("#problem").startswith("This page could not read its model: ")
    assert page.inner_text("#verdict") == ""
    page.close()


def test_the_page_says_what_the_model_is(made):
    _, path = made("topics")
    text = path.read_text()
    assert "Gives a text any number of 2 labels: politics and sport." in text
    assert json.loads(re.search(r'id="given">(.*?)</script>', text)[1])["examples"][1] == ATTACK
    assert "<dt>training texts</dt><dd>80</dd>" in text
    with pytest.raises(ValueError, match="found more than 100 examples"):
        PageText(examples=["x"] * 101)


@pytest.mark.parametrize(
    ("repeats", "told"), [("once", "counts once"), ("damp", "damped"), ("all", "")]
)
def test_repeats_are_a_fact(repeats, told):
    found = page_of(
        fitted(["a b", "c d"] * 9, ["x", "y"] * 9, repeats=repeats), PageText()
    ).decode()
    assert ("<dt>Repeats</dt>" in found) == (repeats != "all")
    assert told in found


def test_a_label_without_letters_can_be_seen(browser, tmp_path):
    clf = fitted(["good film", "bad film"] * 9, ["", "x"] * 9)
    write_page(tmp_path / "page.html", clf, PageText(examples=["good film"]))
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    page.evaluate("hashembed.ready")
    assert page.inner_text("#why-title") == "Why (empty)?"
    assert page.inner_text("#verdict").startswith("(empty)")
    assert page.locator(".class bdi").all_inner_texts() == ["(empty)", "x"]
    page.close()
