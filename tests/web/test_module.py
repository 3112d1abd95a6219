"""The module as a file and as a package: its tables, its interface, its types."""

import json
import re
import subprocess
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tests import golden
from tests.cases.node import node

from hashembed import TextClassifier
from hashembed.text.characters import (
    CODE_POINTS,
    MARK,
    UNICODE_VERSION,
    all_utf8_codes,
    character_table,
    punctuation_table,
)
from hashembed.web.generate_tables import MODULE, base36, with_tables

ROOT = Path(__file__).parents[2]
SOURCE = MODULE.read_text()
TYPES = (MODULE.parent / "hashembed.d.mts").read_text()
PACKAGE = json.loads((MODULE.parent / "package.json").read_text())
MOST_BYTES = 58_000


def run(code: str, *arguments: object) -> str:
    """What a program prints; `load`, `bytes` of a small model and `hash` are there."""
    start = f"""
        import {{ load, ModelFileError, hash }} from {json.dumps(MODULE.as_uri())};
        import {{ readFileSync }} from "node:fs";
        const bytes = readFileSync({json.dumps(str(golden.FOLDER / "small.safetensors"))});
    """
    command = [node(), "--input-type=module", "-e", start + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- the file -------------------------------------------------------------------------------------


def test_one_file_without_imports():
    subprocess.run([node(), "--check", MODULE], check=True)
    assert not re.search(r"^\s*import\b|\bimport\(|\brequire\(", SOURCE, re.M)
    assert not re.search(r"\\p\{|toLowerCase|toUpperCase|normalize\(", SOURCE), (
        "Unicode of the engine"
    )
    assert "</script" not in SOURCE, "a page could not contain the module"
    assert len(SOURCE.encode()) < MOST_BYTES


def test_the_tables_are_those_of_python():
    message = "the tables are stale: run python -m hashembed.web.generate_tables"
    assert with_tables(SOURCE) == SOURCE, message
    assert f'UNICODE_VERSION = "{UNICODE_VERSION}"' in SOURCE


def test_numbers_in_base_36():
    numbers = [0, 1, 35, 36, -1, -1297, 0x10FFFF]
    expected = run(
        "console.log(JSON.stringify([0,1,35,36,-1,-1297,0x10ffff].map((n) => n.toString(36))))"
    )
    assert [base36(n) for n in numbers] == json.loads(expected)


def test_every_character():
    """Kind and folding of all code points, from the words of texts with one such character."""
    code = """
        const model = await load(bytes), found = [];
        for (let c = 0; c < 0x110000; c++) {
          const words = model.words("a" + String.fromCodePoint(c) + "b");
          found.push(words.map((word) => word.text).join(" "));
        }
        console.log(JSON.stringify(found));
    """
    found = json.loads(run(code))
    table, plain, marks = character_table(True), all_utf8_codes(), punctuation_table()
    for c in np.flatnonzero(marks).tolist():
        assert found[c] == "a b", hex(c)
    simple = (table[:CODE_POINTS] == plain) & ~marks.astype(bool)
    for c in np.flatnonzero(simple).tolist():
        if not 0xD800 <= c < 0xE000:
            assert found[c] == f"a{chr(c)}b", hex(c)
    for c in np.flatnonzero(~simple & (marks == 0)).tolist():
        code = int(table[c])
        if code == MARK:
            assert found[c] == "a b", hex(c)
        elif code & 0xFF != MARK:
            folded = code.to_bytes(4, "little").rstrip(b"\0").decode()
            assert found[c] == f"a{folded}b", hex(c)
        else:
            assert found[c] == f"a{chr(c).casefold()}b", hex(c)


# --- the package ----------------------------------------------------------------------------------


def test_the_package_has_the_version_of_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert PACKAGE["version"] == project["version"]
    assert PACKAGE["license"] == project["license"]
    assert PACKAGE["type"] == "module"
    assert "dependencies" not in PACKAGE


def test_the_package_has_what_it_names():
    names = {*PACKAGE["files"], *PACKAGE["exports"]["."].values(), PACKAGE["types"]}
    inside = {name.removeprefix("./") for name in names} - {"LICENSE"}  # `make npm` copies it
    assert inside == {path.name for path in MODULE.parent.iterdir()} - {"package.json"}


def test_the_types_have_every_name():
    exported = set(re.findall(r"^export (?:async )?(?:class|const|function) (\w+)", SOURCE, re.M))
    typed = set(re.findall(r"^export (?:class|const|function) (\w+)", TYPES, re.M))
    assert exported == typed == {"ModelFileError", "hash", "load"}
    members = run(
        """
        const model = await load(bytes);
        const methods = Object.getOwnPropertyNames(Object.getPrototypeOf(model));
        const explanation = model.explain("w1 w2");
        const names = (value) => Object.keys(value).sort();
        console.log(JSON.stringify({
          Model: [...Object.keys(model), ...methods.slice(1)].sort(), // without the constructor
          ModelInfo: names(model.info), Explanation: names(explanation),
          NgramShare: names(explanation.ngrams[0]), WordShare: names(explanation.words[0]),
          Word: names(model.words("w1")[0]), Prediction: names(model.predict("w1")[0]),
          hash: names(hash),
        }));
        """
    )
    for name, found in json.loads(members).items():
        body = re.search(
            rf"^export (?:interface|const) {name}\b.*?{{\n(.*?)^}}", TYPES, re.M | re.S
        )[1]
        written = re.findall(r"^  (?:readonly )?(\w+)[?(:]", body, re.M)
        assert sorted(written) == found, name


# --- the interface --------------------------------------------------------------------------------


def test_load_takes_bytes_in_any_form():
    printed = run(
        """
        const whole = Uint8Array.from(bytes);
        const shifted = new Uint8Array(whole.length + 3);
        shifted.set(whole, 3);
        const sources = [
          bytes, whole, whole.buffer, shifted.subarray(3), new DataView(shifted.buffer, 3),
          new Blob([whole]), new Response(whole), `data:;base64,${bytes.toString("base64")}`,
          new URL(`data:;base64,${bytes.toString("base64")}`),
        ];
        for (const source of sources) console.log(String((await load(source)).logits("w1 w2")));
        """
    ).splitlines()
    assert len(printed) == 9
    assert len(set(printed)) == 1


def test_engines_that_cannot_inflate():
    """An old browser reads all files but compressed ones, and says what it lacks."""
    model = TextClassifier.load(golden.FOLDER / "small.safetensors")
    with TemporaryDirectory() as folder:
        path = Path(folder, "packed")
        model.compress(golden.texts(50), bits=4).save(path)
        printed = run(
            """
            delete globalThis.DecompressionStream;
            console.log((await load(bytes)).labels.length);
            try {
              await load(readFileSync(process.argv[1]));
            } catch (error) {
              console.log(`${error.name}: ${error.message}`);
            }
            """,
            path,
        )
    assert printed.splitlines() == [
        "5",
        "ModelFileError: the file is compressed, but this JavaScript engine has no "
        "DecompressionStream: use a newer one",
    ]


def test_errors_of_callers():
    printed = run(
        """
        const model = await load(bytes);
        const attempts = [
          () => load(undefined), () => load(7), () => load({}),
          () => load(new Response("no", { status: 404 })),
          () => model.predict(null), () => model.predict(7), () => model.words(),
          () => model.predict("a", { top: 0 }), () => model.predict("a", { top: 1.5 }),
          () => model.explain("a", "nine"), () => model.explain(["a"]),
        ];
        for (const attempt of attempts) {
          try {
            await attempt();
            console.log("none");
          } catch (error) {
            console.log(`${error.name}: ${error.message}`);
          }
        }
        """
    ).splitlines()
    source = "TypeError: load takes an ArrayBuffer, a Uint8Array, a Blob, a Response or a URL"
    assert printed == [
        *[source] * 3,
        "ModelFileError: the server did not send a model, but status 404: ",
        "TypeError: a text must be a string, found null",
        "TypeError: a text must be a string, found number",
        "TypeError: a text must be a string, found undefined",
        "RangeError: top must be a whole number above 0, found 0",
        "RangeError: top must be a whole number above 0, found 1.5",
        'RangeError: found no label "nine", the labels are "0", "1", "2", "3", "4"',
        "TypeError: a text must be a string, found object",
    ]


def test_predictions_are_sorted():
    printed = run(
        """
        const model = await load(bytes);
        const all = model.predict("w1 w2 w3");
        const chances = model.probabilities("w1 w2 w3");
        const own = all.map(({ label }) => chances[model.labels.indexOf(label)]);
        const top = model.predictAll(["w1 w2 w3", ""], { top: 2 });
        console.log(JSON.stringify({ all, top, own, count: chances.length }));
        """
    )
    found = json.loads(printed)
    chances = [each["probability"] for each in found["all"]]
    assert chances == sorted(chances, reverse=True) == found["own"]
    assert len(chances) == found["count"] == 5
    assert found["top"][0] == found["all"][:2]
    assert [len(each) for each in found["top"]] == [2, 2]


def test_texts_do_not_disturb_each_other():
    """The arrays of a long text, and those of another model, are not those of the next text."""
    printed = run(
        """
        const model = await load(bytes), other = await load(bytes.slice());
        const before = String(model.logits("w1 w2"));
        model.logits("w3 ".repeat(2_000_000));
        model.logits("y".repeat(3_000_000));
        other.logits("w7");
        model.explain("w5 w6 w7");
        console.log(before === String(model.logits("w1 w2")));
        """
    )
    assert printed == "true\n"
