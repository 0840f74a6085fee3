"""The cost of counting tokens, and the error of cheaper estimates.

Load time and memory, time of one call on short new texts, MB/s on 1 MB, and the error of
characters / 4 relative to the o200k count. The raw limit is the tokenizer itself, without Lango's wrapper.
"""

import base64
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.table import bar, print_line, quick, table

PROSE = (
    "the agent reads every message of a session in order and answers with tools that the user has approved while "
    "the store keeps what was said so that nothing is lost when a process ends or a provider fails to respond "
    "observability latency migrations durable idempotent checkpoint transaction"
)
WORDS = PROSE.split()
CJK = "这是一个测试句子我们今天去北京看朋友他们说天气很好日本語のテキストもあります한국어도있어요"
CODE = Path(json.__file__).read_text() + Path(subprocess.__file__).read_text()


def english(size: int) -> str:
    words: list[str] = []
    length = 0
    while length < size:
        words.append(random.choice(WORDS) + (str(random.randrange(1000)) if random.random() < 0.05 else ""))
        length += len(words[-1]) + 1
    return " ".join(words)[:size]


def code(size: int) -> str:
    start = random.randrange(max(1, len(CODE) - size))
    return (CODE * (size // len(CODE) + 2))[start : start + size]


def json_rows(size: int) -> str:
    rows: list[str] = []
    length = 0
    while length < size:
        row = {"id": random.getrandbits(40), "name": random.choice(WORDS), "score": random.random()}
        rows.append(json.dumps(row, separators=(",", ":")))
        length += len(rows[-1])
    return "[" + ",".join(rows)[: size - 1]


def cjk(size: int) -> str:
    return "".join(random.choices(CJK, k=size // 3))


def base64_text(size: int) -> str:
    return base64.b64encode(os.urandom(size))[:size].decode()


KINDS: dict[str, Callable[[int], str]] = {
    "English": english,
    "code": code,
    "JSON": json_rows,
    "CJK": cjk,
    "base64": base64_text,
}
PATHOLOGICAL = {"'a'": "a", "spaces": " ", "digits": "7", "newlines": "\n", "NUL": "\0", "emoji": "😀", "aA": "aA"}


def median_us(count: Callable[[str], object], texts: list[str]) -> float:
    times: list[int] = []
    for text in texts:
        started = time.perf_counter_ns()
        count(text)
        times.append(time.perf_counter_ns() - started)
    return statistics.median(times) / 1e3


def load() -> str:
    """Measure the load time and memory in a separate process."""
    script = """
import resource, time
import lango.history as history
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started = time.perf_counter()
history.warm_up()
loaded = time.perf_counter() - started
started = time.perf_counter()
history.count_tokens("The first sentence that was never seen before.")
first = time.perf_counter() - started
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(f"load {loaded * 1e3:.0f} ms, first text {first * 1e6:.0f} us, memory {(after - before) / 1024:.0f} MB")
"""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    from splintr import Tokenizer

    from lango.history import count_tokens, warm_up
    from lango.messages import Message, ToolCall

    random.seed(7)
    print_line(load())
    raw = Tokenizer.from_pretrained("o200k_base")
    raw.encode_ordinary("Warm-up: zqxjkvbw.")
    warm_up()

    rows: list[tuple[str, float, float, float, float, str]] = []
    for name, make in KINDS.items():
        batches = [[make(340) for _ in range(100 if quick() else 400)] for _ in range(4)]
        ours = median_us(count_tokens, batches[0])
        message = median_us(lambda text: count_tokens(Message("user", text)), batches[1])
        flat, ordinary = median_us(raw.encode_flat, batches[2]), median_us(raw.encode_ordinary, batches[3])
        whole = "".join(batches[0])
        rows.append((name, ours, message, flat, ordinary, f"{len(whole) / 4 / count_tokens(whole):.2f}x"))
    results = [
        Message("tool", tool_calls=(ToolCall("c", "exec", output={"stdout": english(300), "code": 0}),))
        for _ in range(400)
    ]
    table(
        "One text of 340 bytes that was never seen before, us (the last two columns: the tokenizer without us)",
        ("", "count_tokens", "of a message", "encode_flat", "encode_ordinary", "characters / 4"),
        rows,
        f"a tool result of 300 bytes: {statistics.median(time_of(count_tokens, one) for one in results):.1f} us",
        bar("us for an English message of 340 bytes", rows[0][2], at_most=20),
    )

    texts = {name: make(1_000_000) for name, make in KINDS.items()}
    texts |= {name: unit * (1_000_000 // len(unit.encode())) for name, unit in PATHOLOGICAL.items()}
    sizes: list[tuple[str, float, float, int]] = []
    for name, text in texts.items():
        started = time.perf_counter()
        tokens = count_tokens(text)
        seconds = time.perf_counter() - started
        sizes.append((name, seconds * 1e3, len(text.encode()) / seconds / 1e6, tokens))
    slowest = max(milliseconds for _, milliseconds, _, _ in sizes)
    table("1 MB", ("", "ms", "MB/s", "tokens"), sizes, bar("ms for the worst megabyte", slowest, at_most=1_000))


def time_of(count: Callable[..., object], value: object) -> float:
    started = time.perf_counter_ns()
    count(value)
    return (time.perf_counter_ns() - started) / 1e3


if __name__ == "__main__":
    main()
