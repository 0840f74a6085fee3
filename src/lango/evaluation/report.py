"""Report the results of an evaluation: as rows of a table, as JSON, or as a page in one file."""

import html
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from lango.development.test_cases import Call, Exchange
from lango.evaluation.case_runner import CaseResult
from lango.evaluation.checks import Metric

Regressions = Collection[tuple[Path, str]]
"""The files and ids of cases that fail now, and passed in the run before."""


def report_rows(results: Sequence[CaseResult], regressions: Regressions = ()) -> list[dict[str, Any]]:
    """Return a row for each case."""
    return [
        {
            "case": result.case.id,
            "result": "failed, passed before" if _key(result) in regressions else _verdict(result),
            "messages": len(result.case.exchanges),
            "seconds": result.duration_s,
            "tokens": result.tokens,
            "why": result.why,
        }
        for result in results
    ]


def summary(results: Sequence[CaseResult], regressions: Regressions = ()) -> str:
    """Say how many cases passed, and how many of the others passed in the run before."""
    passed = sum(result.passed for result in results)
    cases = f"{len(results)} case{'' if len(results) == 1 else 's'}"
    worse = sum(_key(result) in regressions for result in results)
    said = f"; {worse} passed in the run before" if worse else ""
    return f"all {cases} passed" if passed == len(results) > 1 else f"{passed} of {cases} passed{said}"


def report_json(results: Sequence[CaseResult], regressions: Regressions = ()) -> dict[str, Any]:
    """Return the whole report."""
    passed = sum(result.passed for result in results)
    return {
        "passed": passed,
        "failed": len(results) - passed,
        "cases": [case_json(result) | {"regression": _key(result) in regressions} for result in results],
    }


def _key(result: CaseResult) -> tuple[Path, str]:
    return result.case.file, result.case.id


def case_json(result: CaseResult) -> dict[str, Any]:
    """Return what a report says about one case."""
    return {
        "file": str(result.case.file),
        "id": result.case.id,
        "passed": result.passed,
        "error": result.error or None,
        "session": result.session_id,
        "user": result.user_id,
        "duration_s": round(result.duration_s, 3),
        "tokens": result.tokens,
        "cost_usd": result.cost_usd,
        "criteria": [_metric_json(metric) for metric in result.metrics],
        "messages": [_message_json(result, at) for at in range(len(result.case.exchanges))],
    }


def _metric_json(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "passed": metric.passed,
        "score": metric.score,
        "threshold": metric.threshold,
        "messages": [{"score": score.value, "why": score.why or None} for score in metric.scores],
    }


def _message_json(result: CaseResult, at: int) -> dict[str, Any]:
    expected = result.case.exchanges[at]
    actual = result.exchanges[at] if at < len(result.exchanges) else None
    return {
        "text": expected.text,
        "expected": _exchange_json(expected),
        "actual": _exchange_json(actual) if actual else None,
    }


def _exchange_json(exchange: Exchange) -> dict[str, Any]:
    calls = [{"name": call.name, "args": dict(call.args)} for call in exchange.calls]
    return {"tool_calls": calls, "answer": exchange.answer}


def _verdict(result: CaseResult) -> str:
    return "passed" if result.passed else "failed"


# -- the page -----------------------------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bad: #c62828; --good: #2e7d32 }
@media (prefers-color-scheme: dark) { :root { --bad: #ef9a9a; --good: #a5d6a7 } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1rem; margin: 1rem 0 .3rem }
details { border: 1px solid var(--line); border-radius: 8px; margin: .5rem 0; padding: .5rem 1rem }
summary { cursor: pointer } .passed { color: var(--good) } .failed { color: var(--bad) }
summary small { opacity: .75 }
table { border-collapse: collapse; table-layout: fixed; width: 100% }
th, td { border-top: 1px solid var(--line); overflow-wrap: anywhere; padding: .3rem .5rem; text-align: left;
  vertical-align: top; white-space: pre-wrap }
th { width: 6rem }
"""


def report_page(results: Sequence[CaseResult]) -> str:
    """Return the report as a page that needs no other file and runs no script."""
    cases = "\n".join(map(_case_section, results))
    title = f"Evaluation: {summary(results)}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>{html.escape(title)}</h1>\n{cases}\n</main></body></html>\n"
    )


def _case_section(result: CaseResult) -> str:
    verdict = _verdict(result)
    figures = f"{result.duration_s:.1f} s, {result.tokens:,} tokens"
    why = f'<p class="failed">{html.escape(result.why)}</p>' if result.why else ""
    scores = "".join(f"<li>{html.escape(_describe_metric(metric))}</li>" for metric in result.metrics)
    messages = "".join(_message_section(result, at) for at in range(len(result.case.exchanges)))
    return (
        f'<details{"" if result.passed else " open"}><summary><strong class="{verdict}">{verdict}</strong> '
        f"{html.escape(result.case.id)} <small>{html.escape(result.case.file.name)}, {figures}</small></summary>"
        f"{why}<ul>{scores}</ul>{messages}</details>"
    )


def _describe_metric(metric: Metric) -> str:
    score = "nothing was expected" if metric.score is None else f"{metric.score:.2f} of {metric.threshold:g}"
    return f"{metric.name}: {'passed' if metric.passed else 'failed'} ({score})"


def _message_section(result: CaseResult, at: int) -> str:
    expected = result.case.exchanges[at]
    actual = result.exchanges[at] if at < len(result.exchanges) else Exchange(expected.text)
    rows = [
        ("", "expected", "actual"),
        ("tools", _calls_text(expected.calls), _calls_text(actual.calls)),
        ("answer", expected.answer, actual.answer),
    ]
    cells = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(left)}</td><td>{html.escape(right)}</td></tr>"
        for name, left, right in rows
    )
    return f"<h2>{html.escape(expected.text)}</h2><table>{cells}</table>"


def _calls_text(calls: Sequence[Call]) -> str:
    return "\n".join(f"{call.name} {json.dumps(dict(call.args), ensure_ascii=False, default=str)}" for call in calls)
