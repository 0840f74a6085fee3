"""A1 to A3: the agent of the settings or a user's own; missing settings are reported before a turn runs."""

import importlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools import FunctionTool
from google.adk.workflow import Workflow
from google.genai import types
from pydantic import Field

from lango import Settings, open_runtime
from lango.adk.agents.loader import load_agent
from lango.adk.model.provider_llm import ProviderLlm
from lango.errors import ConfigError, MissingCredentials, UnknownModel
from lango.messages import ToolCall
from lango.testing import ScriptedProvider
from lango.tools import tool
from tests.agents.parts import collect, kinds, messages, settings_for, text_of

agents: Any = importlib.import_module("google.adk.agents")
# ADK has deprecated its workflow agents; users still have them
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*deprecated in favor of Workflow:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*AgentConfig is deprecated:DeprecationWarning"),  # its own loader of YAML
]

AGENTS = Path(__file__).parents[2] / "agents"


@tool(effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="none")
def today() -> str:
    """Tell the day."""
    return "Monday"


class Own(BaseLlm):
    """A user's own model, which does not stream."""

    model: str = "own"
    answers: list[types.Part] = Field(default_factory=list[types.Part])

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(content=types.Content(role="model", parts=[self.answers.pop(0)]))


async def test_a1_the_agent_of_the_settings_has_its_model_tools_and_sub_agents(sqlite_url: str) -> None:
    settings = settings_for(
        sqlite_url,
        name="boss",
        model="openai/big",
        instruction="You lead.",
        sub_agents={
            "clerk": {"description": "Counts.", "instruction": "You count.", "model": "openai/small", "tools": ["add"]},
            "poet": {"description": "Writes.", "instruction": "You write."},
        },
    )
    provider = ScriptedProvider(
        [
            ToolCall("t1", "transfer_to_agent", {"agent_name": "clerk"}),
            ToolCall("c1", "add", {"a": 2, "b": 3}),
            "five",
            "still me",
        ]
    )
    async with open_runtime(settings, tools=[add, today], provider=provider) as runtime:
        events = await collect(runtime.stream("s", "2 + 3?"))
        assert text_of(events) == "five"
        assert kinds(events) == ["accepted", "tool_start", "tool_end", "text_delta", "text_end", "done"]
        assert await runtime.run("s", "who are you?") == "still me"
    boss, clerk, *_ = provider.requests
    assert boss.model == "big"
    assert "You lead." in boss.system
    assert "Counts." in boss.system
    assert {tool.name for tool in boss.tools} == {"add", "today", "read_result", "transfer_to_agent"}
    assert clerk.model == "small"
    assert "You count." in clerk.system
    assert "You lead." not in clerk.system
    assert {tool.name for tool in clerk.tools} == {"add", "transfer_to_agent"}
    assert provider.requests[-1].model == "small", "who was handed over to stays"


async def test_a1_a_root_agent_in_python_keeps_its_own_model(sqlite_url: str) -> None:
    own = Own(answers=[types.Part(text="mine")])
    root = LlmAgent(name="mine", model=own)
    async with open_runtime(settings_for(sqlite_url), root_agent=root) as runtime:
        assert await runtime.run("s", "hi") == "mine"
        assert [message.author for message in await messages(runtime)] == ["user", "mine"]
    assert root.model is own


async def test_a1_agent_model_replaces_the_model_of_a_users_agent(sqlite_url: str) -> None:
    root = LlmAgent(name="mine", model=Own(answers=[types.Part(text="mine")]))
    provider = ScriptedProvider(["ours"])
    settings = settings_for(sqlite_url, model="openai/other")
    async with open_runtime(settings, root_agent=root, provider=provider) as runtime:
        assert await runtime.run("s", "hi") == "ours"
    assert provider.requests[0].model == "other"


async def test_a1_a_users_agent_without_a_model_gets_the_configured_model(sqlite_url: str) -> None:
    provider = ScriptedProvider(["ours", "ours again"])
    roots: list[Any] = [
        LlmAgent(name="mine"),
        agents.SequentialAgent(name="row", sub_agents=[LlmAgent(name="in_a_row")]),
    ]
    for number, root in enumerate(roots):
        async with open_runtime(settings_for(sqlite_url), root_agent=root, provider=provider) as runtime:
            assert (await runtime.run(f"s{number}", "hi")).startswith("ours")


async def test_a1_a_provider_slash_name_in_a_users_agent_becomes_a_lango_model(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test-key-that-is-never-sent")
    root = LlmAgent(name="mine", model="openai/gpt-x", sub_agents=[LlmAgent(name="below", model="gemini-2.5-flash")])
    async with open_runtime(settings_for(sqlite_url), root_agent=root):
        assert isinstance(root.model, ProviderLlm)
        assert root.model.model == "gpt-x"
        assert vars(root.sub_agents[0])["model"] == "gemini-2.5-flash", "a plain name is ADK's"


@pytest.mark.parametrize(
    ("module", "author", "instruction"),
    [
        ("solo.py", "solo", "You are solo."),
        ("package_agent", "packaged", "You are packaged."),
        ("package_agent/agent.py", "packaged", "You are packaged."),
        ("yaml_agent", "from_yaml", "You are from YAML."),
        ("yaml_agent/root_agent.yaml", "from_yaml", "You are from YAML."),
    ],
)
async def test_a1_an_agent_from_a_module(sqlite_url: str, module: str, author: str, instruction: str) -> None:
    provider = ScriptedProvider(["from a module"])
    settings = settings_for(sqlite_url, module=str(AGENTS / module))
    async with open_runtime(settings, provider=provider) as runtime:
        assert await runtime.run("s", "hi") == "from a module"
        assert [message.author for message in await messages(runtime)] == ["user", author]
    assert instruction in provider.requests[0].system


async def test_a1_an_app_keeps_its_name_and_its_plugins(sqlite_url: str) -> None:
    settings = settings_for(sqlite_url, module=str(AGENTS / "package_agent"))
    async with open_runtime(settings, provider=ScriptedProvider(["one", "two"])) as runtime:
        assert runtime.app_name == "package_agent"
        loaded: Any = importlib.import_module("package_agent.agent")  # the loader put it there
        before = loaded.counting.calls
        await runtime.run("s", "hi")
        assert loaded.counting.calls == before + 1


async def test_a1_tools_of_the_runtime_are_added_to_a_users_agent_once(sqlite_url: str) -> None:
    def double(number: int) -> dict[str, int]:
        """Double a number."""
        return {"doubled": number * 2}

    root = LlmAgent(name="mine", model="openai/x", tools=[FunctionTool(double)])
    for _ in range(2):
        provider = ScriptedProvider([ToolCall("c", "add", {"a": 1, "b": 1}), "two"])
        async with open_runtime(settings_for(sqlite_url), root_agent=root, provider=provider, tools=[add]) as runtime:
            assert await runtime.run("s", "1 + 1?") == "two"
        assert sorted(tool.name for tool in provider.requests[0].tools) == ["add", "double", "read_result"]
    with pytest.raises(ConfigError, match="not an LlmAgent"):
        async with open_runtime(
            settings_for(sqlite_url),
            root_agent=agents.SequentialAgent(name="row"),
            provider=ScriptedProvider([]),
            tools=[add],
        ):
            pass


@pytest.mark.parametrize("kind", ["SequentialAgent", "ParallelAgent", "LoopAgent"])
async def test_a1_roots_that_are_no_llm_agents_store_the_message_once(sqlite_url: str, kind: str) -> None:
    provider = ScriptedProvider(lambda _: "said" for _ in range(8))
    both = [LlmAgent(name="first", model="openai/x"), LlmAgent(name="second", model="openai/x")]
    more = {"max_iterations": 1} if kind == "LoopAgent" else {}
    root = getattr(agents, kind)(name="both", sub_agents=both, **more)
    async with open_runtime(settings_for(sqlite_url), root_agent=root, provider=provider) as runtime:
        for turn in range(1, 3):
            assert await runtime.run("s", f"question {turn}") == "said\n\nsaid"
            authors = [(message.role, message.author) for message in await messages(runtime) if message.role != "event"]
            assert len(authors) == 3 * turn
            assert authors[-3] == ("user", "user")
            assert {author for _, author in authors[-2:]} == {"first", "second"}
        assert [message.content for message in await messages(runtime) if message.role == "user"] == [
            "question 1",
            "question 2",
        ]


async def test_a1_a_workflow_is_a_root_too(sqlite_url: str) -> None:
    first, second = LlmAgent(name="first", model="openai/x"), LlmAgent(name="second", model="openai/y")
    root = Workflow(name="flow", edges=[("START", first, second)])
    provider = ScriptedProvider(["one ", "two", "three ", "four"])
    async with open_runtime(settings_for(sqlite_url), root_agent=root, provider=provider) as runtime:
        assert await runtime.run("s", "question 1") == "one \n\ntwo"
        assert await runtime.run("s", "question 2") == "three \n\nfour"
        assert [message.content for message in await messages(runtime) if message.role == "user"] == [
            "question 1",
            "question 2",
        ]
    assert [request.model for request in provider.requests] == ["x", "y", "x", "y"]


async def test_a1_an_app_given_in_python(sqlite_url: str) -> None:
    app = App(name="given", root_agent=LlmAgent(name="mine", model="openai/x"))
    async with open_runtime(settings_for(sqlite_url), root_agent=app, provider=ScriptedProvider(["hi"])) as runtime:
        assert runtime.app_name == "given"
        assert await runtime.run("s", "hi") == "hi"


async def test_a2_missing_credentials_are_reported_before_the_runtime_opens(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OTHER_KEY"):
        monkeypatch.delenv(name, raising=False)
    for model, variable in (
        ("gemini/gemini-3.5-flash", "GOOGLE_API_KEY"),
        ("openai/gpt-5", "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-5", "ANTHROPIC_API_KEY"),
    ):
        with pytest.raises(MissingCredentials, match=variable):
            async with open_runtime(settings_for(sqlite_url, model=model)):
                pass
    named = Settings.model_validate(
        {
            "store": {"url": sqlite_url},
            "agent": {"model": "openai/gpt-5"},
            "providers": {"openai": {"api_key_env": "OTHER_KEY"}},
        }
    )
    with pytest.raises(MissingCredentials, match="OTHER_KEY"):
        async with open_runtime(named):
            pass
    sub = settings_for(sqlite_url, model="ollama/x", sub_agents={"clerk": {"model": "openai/gpt-5"}})
    with pytest.raises(MissingCredentials, match="OPENAI_API_KEY"):
        async with open_runtime(sub):
            pass


async def test_a3_unknown_providers_models_tools_and_modules_are_named(sqlite_url: str) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        async with open_runtime(settings_for(sqlite_url, model="nowhere/model")):
            pass
    with pytest.raises(UnknownModel, match="no-such-model"):
        async with open_runtime(settings_for(sqlite_url, model="local/no-such-model")):
            pass
    with pytest.raises(ConfigError, match=r"no_such\.py"):
        async with open_runtime(settings_for(sqlite_url, module="no_such.py")):
            pass
    with pytest.raises(ConfigError, match=r"clerk.*no_such_tool"):
        async with open_runtime(
            settings_for(sqlite_url, sub_agents={"clerk": {"tools": ["no_such_tool"]}}), provider=ScriptedProvider([])
        ):
            pass


async def test_a_module_that_cannot_be_imported_is_a_configuration_error(sqlite_url: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken_agent.py"
    broken.write_text("import nothing_of_that_name\n")
    with pytest.raises(ConfigError, match="nothing_of_that_name"):
        async with open_runtime(settings_for(sqlite_url, module=str(broken)), provider=ScriptedProvider([])):
            pass


async def test_an_error_of_the_body_propagates_unchanged(sqlite_url: str) -> None:
    with pytest.raises(KeyError):
        async with open_runtime(settings_for(sqlite_url), provider=ScriptedProvider([])):
            raise KeyError


@pytest.mark.parametrize("as_app", [False, True])
async def test_a1_two_runtimes_on_one_agent_do_not_share_its_model(sqlite_url: str, as_app: bool) -> None:
    below = LlmAgent(name="below", model="openai/below", description="It knows.")
    agent = LlmAgent(name="both", model="openai/x", sub_agents=[below])
    root: Any = App(name="both", root_agent=agent) if as_app else agent
    first, second = ScriptedProvider(["first", "first again"]), ScriptedProvider(["second"])
    settings = settings_for(sqlite_url, name="both")
    async with open_runtime(settings, root_agent=root, provider=first, tools=[add]) as one:
        async with open_runtime(settings, root_agent=root, provider=second, tools=[today]) as two:
            assert await one.run("s", "hello") == "first"
            assert await two.run("t", "hello") == "second"
        assert await one.run("s", "and now?") == "first again"
    offered = [{tool.name for tool in provider.requests[-1].tools} & {"add", "today"} for provider in (first, second)]
    assert offered == [{"add"}, {"today"}], "nor its tools"
    third = ScriptedProvider(["third"])
    async with open_runtime(settings, root_agent=root, provider=third) as three:
        assert await three.run("u", "hello") == "third"
        assert (await three.describe_agents()).children[0].name == "below"
    assert [tool.name for tool in third.requests[0].tools] == ["transfer_to_agent"], "what runtimes added is theirs"


async def test_a1_an_agent_that_cannot_be_copied_is_shared_with_a_warning(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    root = Workflow(name="flow", edges=[("START", LlmAgent(name="only", model="openai/x"))])
    settings = settings_for(sqlite_url)
    for provider in (ScriptedProvider(["one"]), ScriptedProvider(["two"])):
        async with open_runtime(settings, root_agent=root, provider=provider) as runtime:
            assert await runtime.run("s", "hello") in ("one", "two")
    assert "two runtimes at once" not in caplog.text
    async with (
        open_runtime(settings, root_agent=root, provider=ScriptedProvider([])),
        open_runtime(settings, root_agent=root, provider=ScriptedProvider([])),
    ):
        assert "flow is used by two runtimes at once" in caplog.text


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (
            'from google.adk.agents import LlmAgent\n\nroot_agent = LlmAgent(name="user")\n',
            r"cannot be `user`.*line 3\)$",
        ),
        ("import no_such_thing\n", r"No module named 'no_such_thing' \(odd_\d.py, line 1\)$"),
        ("root_agent = 5\n", "not a BaseAgent .* instance$"),
        ('{}["key"]\n', r"key.*line 1\)$"),
    ],
)
def test_the_problem_of_a_users_agent_is_reported_in_one_line(code: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / f"odd_{len(code) % 10}.py"
    file.write_text(code)
    with pytest.raises(ConfigError, match=problem) as raised:
        load_agent(str(file))
    assert "\n" not in str(raised.value)


async def test_an_agent_may_have_any_name_that_adk_runs(store_url: str) -> None:
    root = LlmAgent(name="größe", model=Own(answers=[types.Part(text="3")]))
    async with open_runtime(settings_for(store_url), root_agent=root) as runtime:
        assert await runtime.run("s", "how big?") == "3"
        assert [session.name.app_name for session in await runtime.sessions.list()] == ["größe"]
