"""Run work in a child process with limits on time, CPU and memory, for hostile input.

A thread cannot be killed, and compiled code that holds the interpreter's lock blocks every other thread. So work that
may take long on untrusted input runs here. The process gets no environment, and so no keys, and is killed at its time
limit.
"""

import asyncio
import sys
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Literal

_WORK = Path(__file__).with_name("limited_work.py")
MAX_CPU_S = 10
MAX_MEMORY_BYTES = 1_000_000_000
_LIMITED_SCRIPT = f"""
import sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, ({MAX_CPU_S}, {MAX_CPU_S}))
    resource.setrlimit(resource.RLIMIT_AS, ({MAX_MEMORY_BYTES}, {MAX_MEMORY_BYTES}))
except (ImportError, OSError, ValueError):
    pass  # a system without such limits has only the time limit
exec(compile(open(sys.argv[1], encoding="utf-8").read(), sys.argv[1], "exec"))
"""


class LimitExceeded(Exception):
    """The work exceeded its time or memory."""


async def run_limited(
    work: Literal["match_lines", "convert_html"], pieces: AsyncIterable[bytes], *, timeout_s: float
) -> bytes:
    """Write the pieces to the work's stdin and return its stdout. Raises `LimitExceeded`.

    Matching has only the standard library, and starts faster.
    """
    options = ("-I",) if work == "convert_html" else ("-I", "-S")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *options, "-c", _LIMITED_SCRIPT, str(_WORK), work),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        async with asyncio.timeout(timeout_s):
            found = await _feed(process, pieces)
            if await process.wait() != 0:
                raise LimitExceeded("it took too much time or memory")
            return found
    except TimeoutError as error:
        raise LimitExceeded(f"it took more than {timeout_s:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _feed(process: asyncio.subprocess.Process, pieces: AsyncIterable[bytes]) -> bytes:
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    answer = asyncio.ensure_future(stdout.read())
    try:
        async for piece in pieces:
            if answer.done():
                break
            stdin.write(piece)
            await stdin.drain()
        stdin.close()
    except (BrokenPipeError, ConnectionResetError):  # it stopped reading, or was killed
        pass
    except BaseException:
        answer.cancel()
        raise
    return await answer
