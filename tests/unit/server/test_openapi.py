"""Every operation of the OpenAPI document declares its errors as the server sends them."""

from typing import Any

import pytest

from lango.config import Settings
from lango.server.app import create_app


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings()).openapi()


@pytest.fixture(scope="module")
def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_errors_are_json_and_declared_on_every_route(operations: dict[str, dict[str, Any]]) -> None:
    assert "POST /v1/sessions/{session_id}/messages" in operations
    for name, operation in operations.items():
        errors = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
        kinds = {kind for answer in errors.values() for kind in answer.get("content", {})}
        page = {"text/html"} if name == "GET /v1/oauth/callback" else set[str]()
        assert kinds == {"application/json"} | page, name
        assert {"400", "403", "503"} <= errors.keys(), name
        assert {"408", "413", "415"} <= errors.keys() or "requestBody" not in operation, name


def test_limits_are_declared(document: dict[str, Any], operations: dict[str, dict[str, Any]]) -> None:
    def parameter(name: str, operation: str) -> dict[str, Any]:
        [found] = [one["schema"] for one in operations[operation]["parameters"] if one["name"] == name]
        return found

    assert parameter("Last-Event-ID", "GET /v1/sessions/{session_id}/stream")["pattern"] == "^[0-9]{1,18}$"
    assert "pattern" in parameter("cursor", "GET /v1/sessions")
    assert "pattern" in parameter("cursor", "GET /v1/inbox")
    schemas = document["components"]["schemas"]
    assert schemas["NewTitle"]["properties"]["title"]["maxLength"] == 200
    assert len(schemas["NewMessage"]["anyOf"]) == 2, "a text or a file"
