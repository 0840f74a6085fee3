"""Names that belong to ADK: a call of one asks a person for an approval, a credential or an input.

ADK makes such calls itself, and trusts what they say. A model that made one could show a person one call and have
another one run. So every call of a model is checked before ADK or the store sees it: one with a reserved name gets
another name, which no tool has, and the model reads that there is no such tool.
"""

from google.adk.models.llm_response import LlmResponse

from lango.tools import RESERVED_PREFIX

REFUSED_PREFIX = "refused_"


def is_reserved(name: str | None) -> bool:
    """Whether a name is ADK's own."""
    return (name or "").startswith(RESERVED_PREFIX)


def allowed_name(name: str) -> str:
    """Return the name under which a model's call is made: its own, unless that is reserved."""
    return f"{REFUSED_PREFIX}{name}" if is_reserved(name) else name


def rename_reserved_calls(response: LlmResponse) -> None:
    """Give every call of a response that has a reserved name another one."""
    for part in (response.content and response.content.parts) or []:
        if part.function_call is not None and is_reserved(part.function_call.name):
            part.function_call.name = allowed_name(part.function_call.name or "")
