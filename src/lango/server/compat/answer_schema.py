"""Check the JSON schema that a request wants its answer to follow."""

from collections.abc import Mapping
from typing import Any

from lango.errors import ConfigError
from lango.server.errors import bad_request
from lango.threads import run_in_thread
from lango.tools.schema_checker import SchemaChecker


async def check_answer_schema(parameter: str, schema: Mapping[str, Any]) -> None:
    """Raise `ApiError`, which names the parameter of the request, for a schema that no answer can follow."""
    if schema.get("type") != "object":
        raise bad_request(f"{parameter}: the schema must have type object; put other values into a property")
    try:
        await run_in_thread(SchemaChecker, schema)
    except (ConfigError, RecursionError) as error:
        raise bad_request(f"{parameter}: the schema cannot be used: {error}") from error
