"""`lango playground`: turns run on with changes, one message over several models, and runs side by side."""

from pathlib import Path

from tests.support.processes import run_lango
from tests.support.servers.scripted_server import scripted_server

CONFIG = '[agent]\nname = "desk"\ninstruction = "Be kind."\n[tools]\nenabled = []\n'


def test_turns_run_on_and_runs_are_compared(tmp_path: Path) -> None:
    (tmp_path / "lango.toml").write_text(CONFIG)
    with scripted_server("a red car", "a blue car", "one", "two") as model:

        def lango(*arguments: str, code: int = 0) -> str:
            done = run_lango(*arguments, cwd=tmp_path, env={**model.environment, "COLUMNS": "160"})
            assert done.returncode == code, done
            assert "Traceback" not in done.stderr
            return done.stdout if code == 0 else done.stderr

        lango("run", "-r", "s", "what do you see?")
        changed = lango("playground", "run", "s", "--turn", "1", "--system", "Be rude.", "--state", '{"mood": 1}')
        assert "a red car" in changed
        assert "a [+blue+] car" in changed
        assert "mood: 1" in changed
        assert "answer *" in changed, "a row that differs"
        assert "message *" not in changed
        assert model.requests[1]["messages"][0]["content"].startswith("Be rude.")
        both = lango("playground", "columns", "hi", "--system", "A", "--system", "B")
        assert [text in both for text in ("one", "[+two+]")] == [True, True]
        assert [request["messages"][0]["content"][:1] for request in model.requests[2:]] == ["A", "B"]
        assert len(lango("sessions", "list", "--json").splitlines()) == 4, "each run has a session"
        again = lango("playground", "compare", "s:1", "s")
        assert "*" not in again
        assert "name two runs" in lango("playground", "compare", "s", code=2)
        assert "--result takes" in lango("playground", "run", "s", "--turn", "1", "--result", "c1=3", code=2)
        assert "no turn 9" in lango("playground", "run", "s", "--turn", "9", code=2)


def test_one_message_is_answered_by_several_models_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "lango.toml").write_text(CONFIG)
    with scripted_server("a red car", "it is old", "it is new") as model:

        def lango(*arguments: str, code: int = 0) -> str:
            done = run_lango(*arguments, cwd=tmp_path, env={**model.environment, "COLUMNS": "160"})
            assert done.returncode == code, done
            assert "Traceback" not in done.stderr
            return done.stdout if code == 0 else done.stderr

        lango("run", "-r", "s", "what do you see?")
        models = ("--model", "script/small", "--model", "script/large")
        shown = lango("playground", "columns", "how old is it?", *models, "--resume", "s")
        assert [text in shown for text in ("it is old", "it is [+new+]", "answer *")] == [True] * 3
        assert [request["model"] for request in model.requests] == ["model", "small", "large"]
        assert model.requests[1]["messages"] == model.requests[2]["messages"]
        assert [one["content"] for one in model.requests[1]["messages"][1:]] == [
            "what do you see?",
            "a red car",
            "how old is it?",
        ]
        before = lango("sessions", "list", "--json")
        assert len(before.splitlines()) == 3, "each model has a fork"
        assert "nowhere" in lango("playground", "columns", "hi", "--model", "nowhere/x", code=2)
        assert lango("sessions", "list", "--json") == before, "what is refused leaves no session"
