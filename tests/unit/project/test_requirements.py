"""`docs/requirements.md` explains the codes at the beginning of test names: all of them, and no others."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
LINE = re.compile(r"^\| ([A-Z]\d+|attack_\d+) \|", re.MULTILINE)
FUNCTION = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)
CODE = re.compile(r"test_(?:([shmatof])(\d+)|(?:attack_)?(\d{1,2}))(?:_to_[a-z](\d+))?(?=_)")


def codes_in(name: str) -> Iterator[str]:
    """Yield the codes that a test name begins with: `test_f1_to_f3_...` has three."""
    if found := CODE.match(name):
        letter, number, attack, last = found.groups()
        for each in range(int(number or attack), int(last or number or attack) + 1):
            yield f"{letter.upper()}{each}" if letter else f"attack_{each}"


def test_codes_are_read_from_names() -> None:
    assert list(codes_in("test_s3_a_call_keeps_its_id")) == ["S3"]
    assert list(codes_in("test_f1_to_f3_after_a_kill")) == ["F1", "F2", "F3"]
    assert list(codes_in("test_attack_10_a_link_is_refused")) == list(codes_in("test_10_a_link")) == ["attack_10"]
    assert not [*codes_in("test_a_title"), *codes_in("test_o200k_counts"), *codes_in("test_150_megabytes")]


def test_every_code_has_a_line_and_every_line_a_test() -> None:
    listed = LINE.findall((ROOT / "docs" / "requirements.md").read_text("utf-8"))
    assert len(listed) == len(set(listed))
    used = {
        code: f"{module.relative_to(ROOT)}::{name}"
        for module in (ROOT / "tests").rglob("test_*.py")
        for name in FUNCTION.findall(module.read_text("utf-8"))
        for code in codes_in(name)
    }
    assert {code: test for code, test in used.items() if code not in listed} == {}, "not in docs/requirements.md"
    assert set(listed) - set(used) == set(), "no test is named after it"
