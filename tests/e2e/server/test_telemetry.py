"""Each turn is one trace, from the request down to ADK's own spans, without content."""

import asyncio
import json
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.support.processes import run_command
from tests.support.servers.server_process import Server, configure, lango, send, send_until, serving, text_of
from tests.support.servers.trace_collector import Collector, ReceivedSpan, collecting
from tests.support.servers.wire_server import Exchange, wire_server

SOON = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
REQUEST = "POST /v1/sessions/{session_id}/messages"
SAID = "a-word-that-only-the-user-says"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("traced")
    url = f"sqlite:///{folder}/lango.db"
    rest = f'[telemetry]\notlp_endpoint = "{collector.url}"'
    with serving(folder, url, env=SOON, server='log_format = "json"', rest=rest) as running:
        yield running


def of(spans: Iterable[ReceivedSpan], trace_id: str) -> list[ReceivedSpan]:
    return [span for span in spans if span.trace_id == trace_id]


def ancestors(span: ReceivedSpan, spans: Iterable[ReceivedSpan]) -> list[str]:
    by_id = {one.id: one for one in spans}
    found: list[str] = []
    while span.parent_id in by_id:
        span = by_id[span.parent_id]
        found.append(span.name)
    return found


def one(spans: Iterable[ReceivedSpan], name: str) -> ReceivedSpan:
    (found,) = [span for span in spans if span.name == name]
    return found


async def test_a_turn_is_one_trace_from_the_caller_down_to_adk(server: Server, collector: Collector) -> None:
    session, trace_id, caller = uuid.uuid4().hex, uuid.uuid4().hex, uuid.uuid4().hex[:16]
    async with server.client() as client:
        await send(client, session, "note", traceparent=f"00-{trace_id}-{caller}-01")
    spans = of(
        await asyncio.to_thread(
            collector.wait_for,
            lambda spans: {"turn", REQUEST} <= {span.name for span in spans if span.trace_id == trace_id},
        ),
        trace_id,
    )
    request, turn = one(spans, REQUEST), one(spans, "turn")
    assert request.parent_id == caller
    assert request.attributes["http.response.status_code"] == 200
    assert turn.parent_id == request.id
    assert (turn.attributes["lango.session.id"], turn.attributes["lango.turn"]) == (session, 1)
    assert turn.attributes["lango.turn.status"] == "done"
    assert turn.attributes["gen_ai.usage.input_tokens"] == 20
    models = [span for span in spans if span.name == "generate_content obedient"]
    assert len(models) == 2
    for span in [*models, one(spans, "execute_tool note")]:
        assert ancestors(span, spans)[-2:] == ["turn", REQUEST]
    assert {span.resource["service.name"] for span in spans} == {"lango"}
    assert all(span.id == request.id or ancestors(span, spans)[-1] == REQUEST for span in spans)


async def test_a_resumed_turn_continues_its_trace(tmp_path: Path, sqlite_url: str, collector: Collector) -> None:
    trace_id, caller, gate = uuid.uuid4().hex, uuid.uuid4().hex[:16], tmp_path / "gate"
    rest = f'[telemetry]\notlp_endpoint = "{collector.url}"'
    with serving(tmp_path / "a", sqlite_url, env=SOON, rest=rest) as first:
        async with first.client(traceparent=f"00-{trace_id}-{caller}-01") as client:
            await send_until(client, "killed", f"hold {gate}")
        first.kill()
    gate.touch()
    with serving(tmp_path / "b", sqlite_url, env=SOON, rest=rest):
        spans = await asyncio.to_thread(
            collector.wait_for, lambda spans: "turn" in {span.name for span in spans if span.trace_id == trace_id}
        )
    turn = one(of(spans, trace_id), "turn")
    assert turn.parent_id not in ("", caller), "the request that the first process accepted"
    assert (turn.attributes["lango.turn.attempt"], turn.attributes["lango.turn.resume_reason"]) == (1, "crash")
    assert turn.attributes["lango.turn.status"] == "done"


async def test_two_turns_are_two_traces_and_logs_name_them(server: Server, collector: Collector) -> None:
    session = uuid.uuid4().hex
    async with server.client() as client:
        await send(client, session, "one")
        await send(client, session, "two")
        await client.get("/healthz")
        await client.get("/metrics")

    def turns(spans: Iterable[ReceivedSpan]) -> dict[int, str]:
        mine = [span for span in spans if span.name == "turn" and span.attributes["lango.session.id"] == session]
        return {span.attributes["lango.turn"]: span.trace_id for span in mine}

    spans = await asyncio.to_thread(collector.wait_for, lambda spans: len(turns(spans)) == 2)
    traces = turns(spans)
    assert traces[1] != traces[2]
    assert not [span for span in spans if "healthz" in span.name or "metrics" in span.name]
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    logged = {(line["turn"], line["trace_id"]) for line in lines if line.get("session") == session}
    assert logged == set(traces.items())


async def test_messages_of_a_websocket_are_traces_of_their_own(server: Server, collector: Collector) -> None:
    sessions = {uuid.uuid4().hex, uuid.uuid4().hex}
    async with connect(f"ws://127.0.0.1:{server.port}/v1/ws") as talk:
        for session in sessions:
            await talk.send(json.dumps({"type": "message", "session": session, "text": "hi"}))
            while json.loads(await talk.recv())["type"] != "done":
                pass

    def mine(spans: Iterable[ReceivedSpan]) -> list[ReceivedSpan]:
        return [span for span in spans if span.attributes.get("lango.session.id") in sessions]

    found = mine(await asyncio.to_thread(collector.wait_for, lambda spans: len(mine(spans)) == 2))
    assert len({span.trace_id for span in found}) == 2
    assert {span.parent_id for span in found} == {""}


async def test_traces_hold_no_content(server: Server, collector: Collector) -> None:
    session = uuid.uuid4().hex
    async with server.client() as client:
        assert text_of(await send(client, session, SAID)) == SAID
        await send(client, session, "note")
        failed = await send(client, session, "fail")
    assert "does not want to" in failed[-1].data["message"]

    def done(spans: Iterable[ReceivedSpan]) -> bool:
        return sum(span.attributes.get("lango.session.id") == session for span in spans) == 3

    spans = await asyncio.to_thread(collector.wait_for, done)
    last = [span for span in spans if span.attributes.get("lango.session.id") == session][-1]
    assert last.failed
    assert last.attributes["error.type"] == "ProviderRejected"
    everything = b"".join(collector.bodies)
    for word in (SAID, "noted", "does not want to"):
        assert word.encode() not in everything


async def test_traces_hold_content_if_configured(tmp_path: Path, sqlite_url: str) -> None:
    with collecting() as collector:
        rest = f'[telemetry]\notlp_endpoint = "{collector.url}/v1/traces"\ncapture_content = true'
        with serving(tmp_path, sqlite_url, env=SOON, rest=rest) as server:
            async with server.client() as client:
                await send(client, "s", SAID)
            assert server.terminate() == 0
        assert "turn" in {span.name for span in collector.spans}, "what was left is sent at the end"
        assert SAID.encode() in b"".join(collector.bodies)


async def test_each_provider_request_has_a_span_without_the_key(tmp_path: Path, sqlite_url: str) -> None:
    canary, secret = "sk-canary-0123456789", "header-canary-0123456789"

    async def fail(exchange: Exchange) -> None:
        await exchange.status(503, {"error": {"message": f"no {canary}"}}, {"retry-after": "0"})

    async def answer(exchange: Exchange) -> None:
        assert canary in exchange.head
        head = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m-1"}
        text_choice = {"index": 0, "delta": {"content": "hello"}, "finish_reason": None}
        last_choice: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "stop"}
        await exchange.events(head | {"choices": [text_choice]}, head | {"choices": [last_choice]}, "[DONE]")
        await exchange.end()

    async with wire_server(fail, answer) as provider:
        with collecting() as collector:
            agent = 'model = "mine/m-1"'
            rest = f'[providers.mine]\ntype = "openai"\nbase_url = "{provider.url}/v1"\napi_key_env = "MY_KEY"'
            env = {
                "MY_KEY": canary,
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
                "OTEL_EXPORTER_OTLP_HEADERS": f"x-collector-key={secret}",
                "OTEL_SERVICE_NAME": "another-name",
            }
            with serving(tmp_path, sqlite_url, env=SOON | env, agent=agent, rest=rest) as server:
                async with server.client() as client:
                    assert text_of(await send(client, "s", "hi")) == "hello"
                assert await asyncio.to_thread(server.terminate) == 0
                log = server.log.read_text()
            spans = collector.spans
    first, second = [span for span in spans if span.name == "chat m-1"]
    assert (first.failed, first.attributes["error.type"]) == (True, "ProviderUnavailable")
    assert (second.failed, second.attributes["gen_ai.provider.name"]) == (False, "mine")
    assert "turn" in ancestors(second, spans)
    assert {span.resource["service.name"] for span in spans} == {"another-name"}
    assert {headers["x-collector-key"] for headers in collector.headers} == {secret}
    for word in (canary, secret):
        assert word.encode() not in b"".join(collector.bodies)
        assert word not in log


@pytest.mark.parametrize("listens", [False, True], ids=["not listening", "not responding"])
async def test_an_unavailable_collector_delays_no_turn(tmp_path: Path, sqlite_url: str, listens: bool) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:
            silent.listen()
        rest = f'[telemetry]\notlp_endpoint = "http://127.0.0.1:{silent.getsockname()[1]}"'
        environment = {"OTEL_EXPORTER_OTLP_TIMEOUT": "600"}  # longer than a test: waiting for it would fail the test
        with serving(tmp_path, sqlite_url, env=SOON | environment, rest=rest) as server:
            async with server.client() as client:
                for _ in range(3):
                    assert text_of(await send(client, "s", "hello")) == "hello"
            assert await asyncio.to_thread(server.terminate) == 0
            assert "Traceback" not in server.log.read_text()


def test_an_invalid_configuration_is_one_sentence(tmp_path: Path, sqlite_url: str) -> None:
    configure(tmp_path, sqlite_url, rest='[telemetry]\notlp_endpoint = "http://127.0.0.1:9"')
    wrong = lango("serve", "--port", "0", cwd=tmp_path, env={"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert (wrong.returncode, "http/protobuf" in wrong.stderr) == (2, True)
    code = "import sys; sys.modules['opentelemetry.exporter'] = None; from lango.cli.main import main; main()"
    missing = subprocess.run(
        [sys.executable, "-c", code, "serve", "--port", "0"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (missing.returncode, 'pip install "lango-adk[otel]"' in missing.stderr) == (2, True)


OFF = """
import asyncio, sys
from lango import Settings, open_runtime
from lango.testing import ScriptedProvider

async def main():
    async with open_runtime(Settings(), provider=ScriptedProvider(["hello"])) as runtime:
        assert await runtime.run("s", "hi") == "hello"

asyncio.run(main())
assert not [name for name in sys.modules if name.startswith("opentelemetry.exporter")]
from opentelemetry import trace
assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
"""


def test_without_an_endpoint_nothing_is_imported_or_traced(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", OFF], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    help_ = (
        "import sys; from lango.cli.main import main\ntry: main()\nfinally: assert 'opentelemetry' not in sys.modules"
    )
    run = subprocess.run([sys.executable, "-c", help_, "--help"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


AGAIN = """
import asyncio, sys
from lango import Settings, open_runtime
from lango.config import TelemetrySettings
from lango.testing import ScriptedProvider

async def main():
    for number, url in enumerate(sys.argv[1:]):
        settings = Settings(telemetry=TelemetrySettings(otlp_endpoint=url))
        async with open_runtime(settings, provider=ScriptedProvider(["hello"])) as runtime:
            await runtime.run(f"s{number}", "hi")

asyncio.run(main())
"""


def test_one_process_can_trace_one_runtime_after_the_other(tmp_path: Path) -> None:
    with collecting() as first, collecting() as second:
        run = run_command("python", "-c", AGAIN, first.url, second.url, cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        traces = [[span for span in each.spans if span.name == "turn"] for each in (first, second)]
        assert [[span.attributes["lango.session.id"] for span in spans] for spans in traces] == [["s0"], ["s1"]]
