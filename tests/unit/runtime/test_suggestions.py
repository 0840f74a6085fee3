"""What the page suggests to say first."""

import json
from pathlib import Path
from typing import Any

from lango import Settings
from lango.config import AgentSettings
from lango.runtime.sessions.eval_sets import suggestions_for


def case(number: int, text: str) -> dict[str, Any]:
    said = {"role": "user", "parts": [{"text": text}]}
    return {"eval_id": f"c{number}", "conversation": [{"invocation_id": "i", "user_content": said}]}


def test_suggestions_are_those_of_the_settings_or_how_test_cases_begin(tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    texts = ["Rain in Bern?", "Rain in Bern?", "x" * 300, "And tomorrow?", "a", "b", "c"]
    cases = [case(number, text) for number, text in enumerate(texts)]
    (tmp_path / "evals" / "one.evalset.json").write_text(json.dumps({"eval_set_id": "one", "eval_cases": cases}))
    (tmp_path / "broken.evalset.json").write_text("{")
    agent = AgentSettings(module=str(tmp_path / "agent.py"))
    assert suggestions_for(Settings(agent=agent)) == ["Rain in Bern?", "And tomorrow?", "a", "b"]
    own = agent.model_copy(update={"suggestions": ["Hello"]})
    assert suggestions_for(Settings(agent=own)) == ["Hello"]
    assert suggestions_for(Settings()) == []
