"""Values are converted to types that several threads use for the first time at once."""

import subprocess
import sys

_MANY_THREADS_AND_NEW_TYPES = """
import sys
from threading import Barrier, Thread
from msgspec import defstruct
from lango.json_values import convert

THREADS = 8
converted = []
sys.setswitchinterval(1e-9)
for number in range(100):
    parts = [(f"part{one}", defstruct(f"Part{number}_{one}", [("count", int)])) for one in range(10)]
    kind = defstruct(f"Kind{number}", parts)
    value = {name: {"count": 1} for name, _ in parts}
    together = Barrier(THREADS)

    def run() -> None:
        together.wait()
        converted.append(convert(value, kind))

    threads = [Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(len(converted))
"""


def test_threads_that_convert_to_a_new_type_at_once_do_not_crash_the_process() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _MANY_THREADS_AND_NEW_TYPES], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "800"), ran.stderr
