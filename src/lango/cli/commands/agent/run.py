"""Run `lango run`: send one prompt, print the answer, report the outcome as the exit code."""

import json
import mimetypes
import os
import select
import shlex
import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer
from msgspec import Struct, field
from msgspec.structs import asdict

from lango.cli.options import AgentOptions, Continue, Model, Resume, complete_hints, with_shared_options
from lango.cli.process_setup import fast_imports, quiet_logging, run_async, stdout_for_answers
from lango.cli.session_target import LOCAL_USER, SessionTarget, choose_session
from lango.cli.terminal_text import describe_resumption, describe_schema, printable
from lango.cli.wait_answers import describe_wait, wait_json
from lango.errors import LangoError, TurnCancelled, UsageError
from lango.events import Accepted, Resumed, TextDelta, TextWithdrawn, TurnDone, TurnEvent, Usage, WaitOpened, to_json
from lango.events.text import FinalText, StreamedText, TextOrder
from lango.messages import Attachment
from lango.waits import (
    ApprovalWait,
    Approve,
    ClientResultWait,
    CredentialWait,
    InputWait,
    LongRunningWait,
    QuestionWait,
    Wait,
)

if TYPE_CHECKING:
    from lango.config import Settings
    from lango.runtime import RunningTurn
    from lango.runtime.runtime import Runtime

Prompt = Annotated[str | None, typer.Argument(help="The prompt. Piped input is appended to it, or is the prompt.")]
Format = Annotated[
    Literal["text", "json", "stream-json"],
    typer.Option("--output-format", help="The answer as text, one JSON object, or one event per line."),
]
ApprovedTools = Annotated[
    str,
    typer.Option(
        "--approve", metavar="none|all|NAME,...", help="Tools that may run without an approval that they need."
    ),
]

Attach = Annotated[
    list[Path] | None,
    typer.Option("--attach", metavar="FILE", help="Attach a file or image; may be repeated."),
]

Detach = Annotated[
    bool, typer.Option("--detach", help="Store the prompt as a queued turn, which a server of the agent runs.")
]

EXIT_WAITS = 3
"""The exit code of a turn that waits for an answer."""
_EXIT_INTERRUPTED = 130
_STDIN_NOTICE_S = 3.0
_EXIT_CLOSED_PIPE = 141  # the shell's exit code for SIGPIPE


@with_shared_options
def run(
    chosen: AgentOptions,
    prompt: Prompt = None,
    resume: Resume = None,
    continue_newest: Continue = False,
    model: Model = None,
    output_format: Format = "text",
    approve: ApprovedTools = "none",
    attach: Attach = None,
    detach: Detach = False,
) -> None:
    """Send one prompt and print the answer; with --detach, leave it to a server and print where its turn is.

    Exits with 0, 1 (failed), 2 (wrong usage), 3 (it waits for an answer) or 130 (stopped).
    """
    text = "\n\n".join(part for part in (prompt, _read_piped_input(prompt)) if part and part.strip())
    if not text:
        raise UsageError('there is no prompt: lango run "your question", or pipe it in')
    quiet_logging()
    names = approved_tools(approve)
    files = [_attachment(file) for file in attach or ()]
    if detach:
        if names or output_format == "stream-json":
            raise UsageError("--detach: the turn runs in another process, without --approve and stream-json")
        _leave_prompt(chosen, model, _Prompt(text, files, ()), resume, continue_newest, output_format)
        return
    with stdout_for_answers() as output:
        settings = chosen.settings(model)
        chosen.name_agent(settings)
        printer = _Printer(output_format, output)
        code = run_async(_run_prompt(settings, _Prompt(text, files, names), resume, continue_newest, printer))
    if code == _EXIT_CLOSED_PIPE:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python complains when it flushes at exit
    raise typer.Exit(code)


def approved_tools(given: str) -> list[str]:
    """Return the names that `--approve` has; `all` is one of them."""
    return [name for part in given.split(",") if (name := part.strip()) not in ("", "none")]


def _attachment(path: Path) -> Attachment:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--attach {printable(str(path))}: {error.strerror}") from error
    return Attachment(path.name, mimetypes.guess_type(path.name)[0] or _guess_mime_type(data), data)


def _guess_mime_type(data: bytes) -> str:
    """Return the type of a file whose name has no known suffix: text if it decodes."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"


def _read_piped_input(prompt: str | None) -> str:
    """Read piped input. With a prompt, only from a pipe or a file: a scheduler's job has neither."""
    if sys.stdin.isatty():
        return ""
    if prompt is not None and not _is_pipe_or_file(sys.stdin.fileno()):
        return ""
    _announce_waiting_for_stdin()
    try:
        return sys.stdin.read().rstrip("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"the piped input is not text ({error.reason})") from error


def _is_pipe_or_file(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _announce_waiting_for_stdin() -> None:
    """Print a notice while an open pipe has no input, which would otherwise look like a hang."""
    if os.name == "posix" and not select.select([sys.stdin], [], [], _STDIN_NOTICE_S)[0]:
        print("lango: waiting for piped input; use `< /dev/null` if there is none", file=sys.stderr)


class _Prompt(Struct, frozen=True):
    """The text and files of a prompt, and the tools that may run without approval."""

    text: str
    files: Sequence[Attachment]
    approved: Sequence[str]


class _Printer(Struct):
    """Prints a turn in one of the formats, and collects its report."""

    output_format: str
    output: TextIO
    session_id: str = ""
    speaker: str = ""
    """The agent that spoke last, or is expected to speak first."""
    events: list[TurnEvent] = []
    """Those with text, and those that withdraw it."""
    has_printed_text: bool = False
    final_text: FinalText = field(default_factory=FinalText)
    order: TextOrder = field(default_factory=TextOrder)
    done: TurnDone | None = None
    usage: Usage | None = None
    turn: int | None = None

    def print_event(self, event: TurnEvent) -> None:
        """Print an event as far as the format shows it at once."""
        if self.output_format == "stream-json":
            self._print(json.dumps(to_json(event) | {"session": self.session_id}, ensure_ascii=False) + "\n")
        if self.output_format == "text":
            for ready in self.order.add(event):
                self._print_text(ready)
        match event:
            case Accepted():
                self.turn = event.turn
            case TextDelta() | TextWithdrawn():
                self.events.append(event)
            case Resumed():
                print(f"lango: the turn was resumed: {describe_resumption(event.reason)}", file=sys.stderr)
            case WaitOpened(wait=QuestionWait(message=message)):  # the turn continues with the answer
                hint = complete_hints("answer with `lango inbox answer ID VALUE` in another terminal")
                print(f"lango: a tool asks: {printable(message)}; {hint}", file=sys.stderr)
            case TurnDone():
                self.done = event
                self.usage = event.usage if self.usage is None else self.usage + event.usage
            case _:
                pass

    def _print_text(self, event: TurnEvent) -> None:
        """Print the text of an event. Printed text stays, so text after a withdrawal is held until it is final."""
        if text := self.final_text.add(event):
            self._print(self._with_speaker(event, printable(text)) if self.output.isatty() else text)
            self.has_printed_text = True

    def _with_speaker(self, event: TurnEvent, text: str) -> str:
        """Return a text for a terminal, with the name of the agent where another one begins to speak."""
        if not isinstance(event, TextDelta) or event.author in ("", self.speaker):
            return text
        self.speaker = event.author
        gap = "\n\n" if self.has_printed_text else ""
        return f"{gap}{printable(event.author)}:\n{text.lstrip(chr(10))}"

    def print_end(self, error: LangoError | None) -> None:
        """Print the end of the output, for JSON the report."""
        if self.has_printed_text:
            self._print("\n")
        if self.output_format != "json":
            return
        status = self.done.status if self.done else "failed"
        if isinstance(error, TurnCancelled):
            status = "cancelled"
        report: dict[str, Any] = {
            "text": StreamedText(self.events).text,
            "texts": [{"agent": agent, "text": text} for agent, text in StreamedText(self.events).by_author],
            "session_id": self.session_id,
            "turn": self.turn,
            "status": status,
            "usage": asdict(self.usage) if self.usage else {},
            "cost_usd": self.usage and self.usage.cost_usd,
        }
        if self.done and self.done.waits:
            report["waits"] = [wait_json(wait) for wait in self.done.waits]
        if self.done and self.done.output is not None:
            report["output"] = self.done.output
        if error is not None:
            report["error"] = {"type": type(error).__name__, "message": str(error)}
        self._print(json.dumps(report, ensure_ascii=False) + "\n")

    def _print(self, text: str) -> None:
        self.output.write(text)
        self.output.flush()


async def _run_prompt(
    settings: "Settings", prompt: _Prompt, resume: str | None, continue_newest: bool, printer: _Printer
) -> int:
    with fast_imports():
        from lango.runtime.opening import open_runtime

    async with open_runtime(settings, every_session=False) as runtime:
        await check_tool_names(runtime, prompt.approved)
        target = await choose_session(runtime, resume, continue_newest)
        if resume and target.new:
            print(f"lango: there is no session {printable(resume)!r}: starting a new one", file=sys.stderr)
        printer.session_id, printer.speaker = target.session_id, runtime.root_name
        _mention_demonstration(runtime.model_name)
        try:
            return await _run_turns(runtime, target, prompt, printer)
        except BrokenPipeError:
            return _EXIT_CLOSED_PIPE


def _leave_prompt(
    chosen: AgentOptions,
    model: str | None,
    prompt: _Prompt,
    resume: str | None,
    continue_newest: bool,
    output_format: str,
) -> None:
    """Store a prompt as a queued turn, print its session and number, and say whether a process will run it."""

    async def leave(runtime: "Runtime") -> tuple[str, int, bool]:
        id_ = (await choose_session(runtime, resume, continue_newest)).session_id
        turn = await runtime.turns.leave(id_, prompt.text, user_id=LOCAL_USER, attachments=prompt.files)
        return id_, turn, await runtime.has_other_replicas()

    id_, turn, is_served = chosen.run_on_agent(leave, model)
    if output_format == "json":
        print(json.dumps({"session_id": id_, "turn": turn, "status": "queued", "served": is_served}))
    else:
        print(f"{id_} {turn}")
    shown = f"`lango turns follow {shlex.quote(id_)} --turn {turn}` shows it"
    serve = "" if is_served else "; no process runs this agent now: start `lango serve`"
    print(complete_hints(f"lango: turn {turn} is queued: {shown}{serve}"), file=sys.stderr)


def _mention_demonstration(model: str) -> None:
    """Print a notice that a demonstration model answers, if a person can read it."""
    from lango.providers.local.known_models import is_demonstration

    if sys.stderr.isatty() and is_demonstration(model):
        hint = complete_hints("`lango chat` shows how to get a better one")
        print(f"lango: a demonstration model answers; {hint}", file=sys.stderr)


async def check_tool_names(runtime: "Runtime", approved: Sequence[str]) -> None:
    """Raise for unknown tools; if the turn may add tools that are not known yet, only print a notice."""
    wanted = {*approved} - {"all"}
    known = await runtime.tool_names() if wanted else None
    if known and wanted - known.names and not known.complete:
        known = await runtime.tool_names(ask_toolsets=True)
    if not known or not (unknown := sorted(wanted - known.names)):
        return
    tool_names = ", ".join(sorted(known.names)) or "none"
    message = f"--approve: there is no tool {', '.join(unknown)}"
    if known.complete:
        raise UsageError(f"{message}; the agent's tools: {tool_names}")
    print(
        f"lango: {printable(message)} yet, the turn may add it; known now: {printable(tool_names)}",
        file=sys.stderr,
    )


async def _run_turns(runtime: "Runtime", target: SessionTarget, prompt: _Prompt, printer: _Printer) -> int:
    """Run a turn, and continue it while it waits for tools that were approved on the command line."""
    id_ = target.session_id
    error = await _follow(await runtime.submit(id_, prompt.text, user_id=LOCAL_USER, attachments=prompt.files), printer)
    while error is None and (wait := _first_approved(printer.done, prompt.approved)):
        error = await _follow(await runtime.answer(id_, wait.id, Approve(), user_id=LOCAL_USER), printer)
    printer.print_end(error)
    if error is not None:
        print(f"lango: {printable(str(error))}", file=sys.stderr)
        return _EXIT_INTERRUPTED if isinstance(error, TurnCancelled) else 1
    waiting = list(_describe_waiting(printer, id_))
    for line in waiting:
        print(f"lango: {line}", file=sys.stderr)
    return EXIT_WAITS if waiting else 0


def _describe_waiting(printer: _Printer, id_: str) -> Iterator[str]:
    """Say what a turn waits for, and how to answer; nothing if the turn is done."""
    session = shlex.quote(id_)
    chat = f"`lango chat -r {session}`"
    how = {
        "approval": f"answer with {chat}, or allow it with --approve",
        "input": f'answer with `lango run -r {session} "..."`',
        "credential": f"answer with /answer in {chat}",
        "client_result": "the client that runs the tool sends the result, over HTTP",
        "timer": f"it continues by itself while `lango serve` runs, or now with /answer in {chat}",
        "event": f"it continues by itself while `lango serve` runs, or with /answer in {chat}",
        "long_running_result": f"give the result with /answer in {chat}, or over HTTP",
    }
    waits = printer.done.waits if printer.done else ()
    for wait in waits:
        yield _describe(wait)
    for kind in dict.fromkeys(wait.kind for wait in waits):
        yield complete_hints(how[kind])


def _describe(wait: Wait) -> str:
    what = printable(describe_wait(wait))
    match wait:
        case ApprovalWait():
            arguments = json.dumps(dict(wait.arguments), ensure_ascii=False)
            return f"{printable(wait.tool)} waits for an approval: {printable(arguments)}"
        case CredentialWait(auth_url=address) if address:
            return f"{what}: {printable(address)}"
        case InputWait(schema=schema) if fits := describe_schema(schema):
            return f"{what} ({fits})"
        case ClientResultWait() | LongRunningWait():
            return f"{printable(wait.tool)} waits for its result ({printable(wait.id)})"
        case _:
            return what


def _first_approved(done: TurnDone | None, approved: Sequence[str]) -> ApprovalWait | None:
    approvals = [wait for wait in (done.waits if done else ()) if isinstance(wait, ApprovalWait)]
    return next((wait for wait in approvals if wait.tool in approved or "all" in approved), None)


async def _follow(turn: "RunningTurn", printer: _Printer) -> LangoError | None:
    """Print a turn to its end; Ctrl-C stops it. Return its error."""
    import asyncio

    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # no signals on this platform
        loop.add_signal_handler(signal.SIGINT, lambda: turn.stop(TurnCancelled("stopped")))
    try:
        async for event in turn.follow():
            printer.print_event(event)
    except BrokenPipeError:
        turn.stop(TurnCancelled("the reader of the output is gone"))
        await turn.wait()
        raise
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)
    return turn.error
