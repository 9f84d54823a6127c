"""Chat templates in the form of the releases that ship one, written from the facts on chat formats (section 4)."""

from __future__ import annotations

__all__ = ["R1", "V3", "V3_TOOLS", "V31"]

_SYSTEM = (
    "{%- set ns = namespace(system='', asked=false, results=false) -%}"
    "{%- for m in messages if m['role'] == 'system' -%}"
    "{%- set ns.system = ns.system + ('\\n\\n' if ns.system else '') + m['content'] -%}{%- endfor -%}"
    "{{- bos_token + ns.system -}}"
)
_TOOL_LIST = (
    "{%- if tools -%}{{- '\\n\\n## Tools' -}}{%- for t in tools -%}{{- '\\n' + t | tojson -}}{%- endfor -%}"
    "{%- endif -%}"
)
_CALLS = (
    "{%- for c in m['tool_calls'] -%}{{- ('<｜tool▁calls▁begin｜>' if loop.first else '\\n') + '<｜tool▁call▁begin｜>'"
    " + c['type'] + '<｜tool▁sep｜>' + c['function']['name'] + '\\n```json\\n' + c['function']['arguments']"
    " + '\\n```<｜tool▁call▁end｜>' -}}{%- endfor -%}{{- '<｜tool▁calls▁end｜>' + eos_token -}}"
)
_RESULT = (
    "{{- ('\\n' if ns.results else '<｜tool▁outputs▁begin｜>') + '<｜tool▁output▁begin｜>' + m['content'] -}}"
    "{{- '<｜tool▁output▁end｜>' -}}{%- set ns.results = true -%}"
)


def _v3(tool_list: str, content: str, opening: str) -> str:
    return (
        _SYSTEM + tool_list + "{%- for m in messages -%}"
        "{%- if ns.results and m['role'] != 'tool' -%}{{- '<｜tool▁outputs▁end｜>' -}}{%- endif -%}"
        "{%- if m['role'] == 'user' -%}{%- set ns.results = false -%}{{- '<｜User｜>' + m['content'] -}}"
        "{%- elif m['role'] == 'assistant' -%}{%- if not ns.results -%}{{- '<｜Assistant｜>' -}}{%- endif -%}"
        "{%- set ns.results = false -%}{%- set content = m['content'] if m['content'] is not none else '' -%}"
        f"{{{{- {content} -}}}}"
        "{%- if m['tool_calls'] -%}" + _CALLS + "{%- else -%}{{- eos_token -}}{%- endif -%}"
        "{%- elif m['role'] == 'tool' -%}" + _RESULT + "{%- endif -%}{%- endfor -%}"
        "{%- if ns.results -%}{{- '<｜tool▁outputs▁end｜>' -}}"
        "{%- elif add_generation_prompt -%}{{- '<｜Assistant｜>" + opening + "' -}}{%- endif -%}"
    )


V3 = _v3("", "content", "")
V3_TOOLS = _v3(_TOOL_LIST, "content", "")
R1 = _v3("", "content.split('</think>')[-1]", "<think>\\n")

V31 = (
    _SYSTEM
    + "{%- if thinking is not defined -%}{%- set thinking = false -%}{%- endif -%}"
    + _TOOL_LIST
    + "{%- for m in messages -%}"
    "{%- if m['role'] == 'user' -%}{%- set ns.asked = true -%}{{- '<｜User｜>' + m['content'] -}}"
    "{%- elif m['role'] == 'assistant' -%}{%- if ns.asked -%}{{- '<｜Assistant｜></think>' -}}{%- endif -%}"
    "{%- set ns.asked = false -%}{%- set content = m['content'] if m['content'] is not none else '' -%}"
    "{{- content.split('</think>', 1)[1] if '</think>' in content else content -}}"
    "{%- for c in m['tool_calls'] or [] -%}{{- '<｜tool▁calls▁begin｜>' if loop.first -}}"
    "{{- '<｜tool▁call▁begin｜>' + c['function']['name'] + '<｜tool▁sep｜>' + c['function']['arguments'] -}}"
    "{{- '<｜tool▁call▁end｜>' + ('<｜tool▁calls▁end｜>' if loop.last else '') -}}{%- endfor -%}{{- eos_token -}}"
    "{%- elif m['role'] == 'tool' -%}{%- set ns.asked = false -%}"
    "{{- '<｜tool▁output▁begin｜>' + m['content'] + '<｜tool▁output▁end｜>' -}}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt and ns.asked -%}"
    "{{- '<｜Assistant｜>' + ('<think>' if thinking else '</think>') -}}{%- endif -%}"
)
