"""The agents at a path are found as ADK's own commands find them, and a folder without any is refused."""

from pathlib import Path

import pytest

from lango.config.agent_files import agent_location, find_agents
from lango.errors import ConfigError

AGENT = "import os\n\nroot_agent = 1\n"


def test_a_file_an_agents_folder_and_a_folder_of_agents(tmp_path: Path) -> None:
    for name, content in {
        "one/agent.py": AGENT,
        "two/root_agent.yaml": "# an agent\nname: two\n",
        "three/__init__.py": "from .parts import app\n",
        ".hidden/agent.py": AGENT,
        "__pycache__/agent.py": AGENT,
        "notes/readme.md": "",
        "solo.py": AGENT,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    found = find_agents(str(tmp_path))
    assert [Path(path).name for path in found] == ["one", "three", "two"]
    for path in [*found, str(tmp_path / "solo.py"), str(tmp_path / "two" / "root_agent.yaml")]:
        assert find_agents(path) == [path]
    assert [agent_location(path).removeprefix(f"{tmp_path}/") for path in found] == [
        "one/agent.py, line 3",
        "three/__init__.py, line 1",
        "two/root_agent.yaml, line 2",
    ]


def test_a_package_with_a_root_agent_is_one_agent_whatever_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "helper").mkdir()
    (tmp_path / "helper" / "__init__.py").touch()
    (tmp_path / "__init__.py").write_text("from .helper import thing\n")
    assert find_agents(str(tmp_path)) == [str(tmp_path / "helper")], "a folder of agents may be a package"
    (tmp_path / "__init__.py").write_text("root_agent: object = 1\n")
    assert find_agents(str(tmp_path)) == [str(tmp_path)]


@pytest.mark.parametrize("name", ["missing", "notes.md", "empty"])
def test_what_is_no_agent_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.md").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=name):
        find_agents(str(tmp_path / name))
