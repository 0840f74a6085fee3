"""The environment variables that the reference of settings names have their effect."""

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_settings import SettingsError

from lango.config import Settings
from tests.reference.configuration import tables, variable

EVERY = [(path, name, table) for path, table in tables("", Settings) if path for name in table.model_fields]
ISSUER = '{"issuer": "https://one.example", "audience": ["lango"]}'
OAUTH = '{"authorization_url": "https://one.example/a", "token_url": "https://one.example/t", "client_id": "c"}'
NEEDED = {
    "mcp.<name>.oauth": {"MCP__LAB__URL": "https://one.example/mcp", "MCP__LAB__OAUTH": OAUTH},
    "triggers.<name>": {
        "TRIGGERS__LAB__VERIFY": "hmac",
        "TRIGGERS__LAB__HEADER": "X-Signature",
        "TRIGGERS__LAB__SECRET_ENV": "SECRET",
    },
    "webhooks.<name>": {"WEBHOOKS__LAB__URL": "https://one.example/x", "WEBHOOKS__LAB__SECRET_ENV": "SECRET"},
    "server.mcp.prompts.<name>": {"SERVER__MCP__PROMPTS__LAB__TEMPLATE": "{key}"},
}
"""The variables that those of a table go with."""
OTHER_ISSUER = '{"issuer": "https://two.example", "audience": ["lango"]}'
TRIED = [
    *(
        "true",
        "false",
        "7",
        "70000",
        "some text",
        '["RS512"]',
        '["cancelled"]',
        '["text"]',
        '{"key": "value"}',
        '{"key": {}}',
        OTHER_ISSUER,
        '{"max_attachments": 3}',
        '{"instruction": true}',
        '{"organization": "Acme"}',
        '{"key": {"template": "some text"}}',
        '{"prompts": {"key": {"template": "some text"}}}',
    ),
    *("https://two.example/x", OAUTH),
    *("refuse", "chat", "deny", "none", "keys", "oidc", "json", "stop", "hmac", "german"),
]


def setting(path: str, name: str) -> Any:
    found: Any = Settings()
    for part in [*path.split("."), name]:
        found = found["lab"] if part == "<name>" else getattr(found, part)
    return found


@pytest.mark.parametrize(("path", "name", "table"), EVERY, ids=[f"{path}.{name}" for path, name, _ in EVERY])
def test_a_variable_sets_its_setting(
    path: str, name: str, table: type[BaseModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    if path == "server.oidc" or name == "oidc":  # it goes with an issuer
        monkeypatch.setenv("LANGO_SERVER__AUTH", "oidc")
        monkeypatch.setenv("LANGO_SERVER__OIDC", ISSUER)
    for needed, value in NEEDED.get(path, {}).items():
        monkeypatch.setenv(f"LANGO_{needed}", value)
    before = table.model_fields[name].default if "<name>" in path else setting(path, name)
    named = variable(path, name).replace("<NAME>", "LAB")
    for value in TRIED:
        monkeypatch.setenv(named, value)
        try:
            if setting(path, name) != before:
                return
        except (ValueError, SettingsError):
            continue  # it takes another kind of value
    pytest.fail(f"{named} has no effect")
