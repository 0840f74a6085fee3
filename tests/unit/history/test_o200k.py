"""Short texts are counted from a table exactly as the tokenizer counts them, without loading the tokenizer."""

import subprocess
import sys
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from splintr import AnyTokenizer, Tokenizer

from lango.history import o200k
from lango.history.tokens import FROM_TABLE, SHORT_TEXT
from tests import vocabulary

# what the pattern distinguishes: cases, marks, contractions, digits, line ends, slashes, all kinds of spaces
TRICKY = (
    "aAbZ sStTlLdDrReEvVmM''\"!/\\{}0123456789\t\r\n\x0b\x0c\x1c\x1f\0\1\2\3\x7f\x85\xa0\u2028\u3000"
    "éÉßǅʰªº٣½中文あ한\u0301\u20dd😀\u017f\u212a"
)


@cache
def tokenizer() -> AnyTokenizer:
    return Tokenizer.from_pretrained("o200k_base")


def test_the_table_holds_the_tokenizers_own_vocabulary() -> None:
    assert vocabulary.table() == o200k.FILE.read_bytes(), "write it anew: python -m tests.vocabulary"


@given(
    st.one_of(
        st.text(alphabet=TRICKY, max_size=40),
        st.text(alphabet=st.characters(codec="utf-8"), max_size=40),
        st.from_regex(r"([A-Za-z]{1,12}[ ,.'_\-/:\"]{0,3}[0-9]{0,5}\s?){1,12}", fullmatch=True),
    )
)
@example("It's what they'LL do: don'T, we've 12345 \r\n\n  x  ")
@example("")
def test_h1_a_text_counts_as_the_tokenizer_counts_it(text: str) -> None:
    assert o200k.count(text) in (None, len(tokenizer().encode_ordinary(text)))


@pytest.mark.parametrize(
    "text",
    [
        "Hello, world! It's a test: don't panic.",
        '{"name":"zqxjkvbw","score":0.12345,"tags":["a","b"]}',
        "def count(text: str) -> int:\n    return len(text)  # 42\n\n",
        "Straße, Ñandú, œuvre; naïve façade — “quoted” … 3½ €",
        "这是一个测试句子。我们今天去北京看朋友,他们说天气很好。",
        "Привет, как дела? مرحبا بالعالم 안녕하세요",
        "👩‍👩‍👧‍👦 and 🇩🇪 and e\u0301",
        "zqxjkvbw" * 16,
    ],
)
def test_h1_ordinary_texts_of_any_language_are_counted_from_the_table(text: str) -> None:
    assert o200k.count(text) == len(tokenizer().encode_ordinary(text))


@pytest.mark.parametrize("text", ["half \ud800", "'\u017f", "\u0378", "zqxjkvbw" * 17])
def test_ambiguous_or_long_texts_are_left_to_the_tokenizer(text: str) -> None:
    assert o200k.count(text) is None


def loaded_by(code: str) -> bool:
    """Whether a fresh process has the tokenizer in memory after some code."""
    script = f"import sys\nfrom lango.history import count_tokens\n{code}\nprint('splintr' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    return ran.stdout.strip() == "True"


def test_short_texts_do_not_load_the_tokenizer() -> None:
    assert not loaded_by("count_tokens('hi'); count_tokens('word ' * 100); count_tokens('日本語のテキスト')")


def test_a_long_text_and_many_short_ones_load_the_tokenizer() -> None:
    assert loaded_by(f"count_tokens('x' * {SHORT_TEXT + 1})")
    many = f"for number in range({FROM_TABLE // 100 + 1}): count_tokens(f'{{number:0100}}')\n"
    wait = (
        "import threading; [thread.join() for thread in threading.enumerate() if thread is not threading.main_thread()]"
    )
    assert loaded_by(many + wait)
