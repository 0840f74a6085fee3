"""Define Qwen's chat template with tool calls as fenced JSON.

With the template of its file, the model answers with a fenced `json` block that no parser takes for a call. This
template declares that form, so that the engine reads the block as a call and applies the schema of its arguments. The
declarations are in the first turn: the prefix of the prompt stays the same, and is reused.
"""

QWEN_TEMPLATE = """\
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
