"""Every operation of the OpenAPI document declares its errors as the server sends them."""

from collections.abc import Iterator
from typing import Any

import pytest

from lango.config import Settings
from lango.server.app import create_app


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in create_app(Settings()).openapi()["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


OPERATIONS = dict(operations())


@pytest.mark.parametrize("name", OPERATIONS)
def test_errors_are_json_and_declared_on_every_route(name: str) -> None:
    operation = OPERATIONS[name]
    errors = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
    kinds = {kind for answer in errors.values() for kind in answer.get("content", {})}
    assert kinds == ({"application/json", "text/html"} if name == "GET /v1/oauth/callback" else {"application/json"})
    assert {"400", "403", "503"} <= errors.keys()
    assert {"408", "413", "415"} <= errors.keys() or "requestBody" not in operation


def test_limits_are_declared() -> None:
    def parameter(name: str, operation: str) -> dict[str, Any]:
        [found] = [one["schema"] for one in OPERATIONS[operation]["parameters"] if one["name"] == name]
        return found

    assert parameter("Last-Event-ID", "GET /v1/sessions/{session_id}/stream")["pattern"] == "^[0-9]{1,18}$"
    assert "pattern" in parameter("cursor", "GET /v1/sessions")
    assert "pattern" in parameter("cursor", "GET /v1/inbox")
    schemas = create_app(Settings()).openapi()["components"]["schemas"]
    assert schemas["NewTitle"]["properties"]["title"]["maxLength"] == 200
    assert len(schemas["NewMessage"]["anyOf"]) == 2, "a text or a file"
