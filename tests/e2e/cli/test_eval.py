"""`lango eval` as people and CI use it: save a session, run the cases, read the report and the exit code."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.processes import run_lango
from tests.support.terminal import AGENT, configure


def lango_eval(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_lango("eval", *arguments, cwd=folder)
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    return done


def test_a_session_is_saved_run_again_and_compared(tmp_path: Path) -> None:
    configure(tmp_path)
    session = json.loads(run_lango("run", "--output-format", "json", "note pears", cwd=tmp_path).stdout)["session_id"]
    run_lango("run", "-r", session, "goodbye", cwd=tmp_path)
    before = run_lango("sessions", "list", "--json", cwd=tmp_path).stdout
    saved = lango_eval(tmp_path, "save", session, "--to", "cases.evalset.json", "--id", "pears")
    assert saved.stdout == "saved pears to cases.evalset.json, which has 1 case now\n"

    passed = lango_eval(tmp_path, "cases.evalset.json", "--html", "report.html")
    assert passed.stdout.splitlines()[-1] == "1 of 1 case passed"
    assert passed.stdout.splitlines()[1].split()[:3] == ["pears", "passed", "2"]
    assert run_lango("sessions", "list", "--json", cwd=tmp_path).stdout == before, "the user's store is left alone"
    (tmp_path / "empty.toml").touch()
    lango_eval(tmp_path, "cases.evalset.json", "--config", "empty.toml", "--path", str(AGENT))

    file = tmp_path / "cases.evalset.json"
    document: Any = json.loads(file.read_text())
    wrong = json.loads(
        json.dumps(document["eval_cases"][0]).replace("pears", "plums").replace("note plums", "note figs")
    )
    wrong["lango"] = {"answers": {"match": "regex", "pattern": "<b>"}}
    wipe: dict[str, Any] = {"eval_id": "wipe", "conversation": [{"user_content": {"parts": [{"text": "wipe it"}]}}]}
    wipe["lango"] = {"tools": "any"}
    document["eval_cases"] += [wrong, wipe]
    file.write_text(json.dumps(document))
    failed = lango_eval(tmp_path, "--output-format", "json", "cases.evalset.json", "--html", "report.html", code=1)
    report = json.loads(failed.stdout)
    assert (report["passed"], report["failed"]) == (1, 2)
    assert [case["passed"] for case in report["cases"]] == [True, False, False]
    tools, answers = report["cases"][1]["criteria"]
    assert (tools["name"], tools["score"]) == ("tool_trajectory_avg_score", 0.5)
    assert tools["messages"][0]["why"] == "expected note(text='plums'), called note(text='figs')"
    assert answers["messages"][1]["why"] == "the answer does not match '<b>'"
    assert report["cases"][2]["error"].startswith("wipe needs an approval: allow it with --approve wipe")
    page = (tmp_path / "report.html").read_text()
    assert "1 of 3 cases passed" in page
    assert "does not match &#x27;&lt;b&gt;&#x27;" in page, "what a model says is text, not markup"

    lango_eval(tmp_path, "cases.evalset.json", "--case", "wipe", "--approve", "wipe", "--store", "sqlite:///kept.db")
    kept = run_lango("sessions", "list", "--json", "--store", "sqlite:///kept.db", cwd=tmp_path).stdout
    assert json.loads(kept)["title"] == "wipe it"

    (tmp_path / "test_config.json").write_text('{"criteria": {"hallucinations_v1": 0.5}}')
    refused = lango_eval(tmp_path, "cases.evalset.json", code=2)
    assert "hallucinations_v1: this criterion is not supported" in refused.stderr
    assert "there is no case plum" in lango_eval(tmp_path, "cases.evalset.json", "--case", "plum", code=2).stderr
    (tmp_path / "test_config.json").unlink()
    assert "there is no tool wype" in lango_eval(tmp_path, "cases.evalset.json", "--approve", "wype", code=2).stderr
    assert "missing.json cannot be read" in lango_eval(tmp_path, "missing.json", code=2).stderr


def test_a_run_names_what_passed_before(tmp_path: Path) -> None:
    configure(tmp_path)
    run_lango("run", "-r", "pears", "note pears", cwd=tmp_path)
    saved = lango_eval(tmp_path, "save", "pears", "--to", "cases.evalset.json")
    assert saved.stdout == "saved note-pears to cases.evalset.json, which has 1 case now\n"
    again = lango_eval(tmp_path, "save", "pears", "--to", "cases.evalset.json")
    assert again.stdout == "saved note-pears-2 to cases.evalset.json, which has 2 cases now\n"
    lango_eval(tmp_path, "cases.evalset.json")
    file = tmp_path / "cases.evalset.json"
    document: Any = json.loads(file.read_text())
    document["eval_cases"][1]["lango"] = {"answers": {"match": "regex", "pattern": "plums"}}
    file.write_text(json.dumps(document))
    lines = lango_eval(tmp_path, "cases.evalset.json", code=1).stdout.splitlines()
    assert "failed, passed before" in lines[2]
    assert lines[-1] == "1 of 2 cases passed; 1 passed in the run before"
    assert "passed in the run before" not in lango_eval(tmp_path, "cases.evalset.json", code=1).stdout
