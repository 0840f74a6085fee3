"""Run a script of ours on hostile input, in a process with limits on time, CPU and memory.

A thread cannot be killed, and compiled code that holds the interpreter's lock stops every other thread: whatever may
take long for an input of an unknown author runs here. The process gets no environment, so no key, and is killed when
its time is over.
"""

import asyncio
import sys
from collections.abc import AsyncIterable
from pathlib import Path

MAX_CPU_S = 10
MAX_MEMORY_BYTES = 1_000_000_000
_LIMITED_SCRIPT = f"""
import sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, ({MAX_CPU_S}, {MAX_CPU_S}))
    resource.setrlimit(resource.RLIMIT_AS, ({MAX_MEMORY_BYTES}, {MAX_MEMORY_BYTES}))
except (ImportError, OSError, ValueError):
    pass  # a system without such limits: there, the time holds alone
exec(compile(open(sys.argv[1], encoding="utf-8").read(), sys.argv[1], "exec"))
"""


class LimitExceeded(Exception):
    """A script took more time or memory than it may."""


async def run_limited(script: Path, pieces: AsyncIterable[bytes], *, timeout_s: float, packages: bool = False) -> bytes:
    """Write the pieces to the script's stdin and return its stdout. Raise `LimitExceeded` where it takes too much.

    Without `packages` the script has the standard library only, and starts sooner.
    """
    options = ("-I",) if packages else ("-I", "-S")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *options, "-c", _LIMITED_SCRIPT, str(script)),
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
    except (BrokenPipeError, ConnectionResetError):  # it has read enough, or was killed
        pass
    except BaseException:
        answer.cancel()
        raise
    return await answer
