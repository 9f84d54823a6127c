"""Whether the service could turn text into tokens and back with this checkpoint's files: tokenizer and chat template.

Read by the same rules as the backend reads them, so that what it would refuse at launch is said before the build.
Nothing of the checkpoint is executed: the template is compiled to source text in the sandbox and thrown away.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from seekserve_backend.text.token_bytes import TokenBytes

__all__ = ["text_problems"]

_TOKENIZER, _TOKENIZER_CONFIG, _TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"


def text_problems(folder: Path, chat_template: str | None) -> list[str]:
    """A sentence with file and line for each fault. A tokenizer that is not there is the caller's business."""
    problems = list(_tokenizer_problems(folder / _TOKENIZER))
    if chat_template is not None:
        file = _TEMPLATE if (folder / _TEMPLATE).is_file() else _TOKENIZER_CONFIG
        problems += _template_problems(file, chat_template)
    return problems


def _tokenizer_problems(path: Path) -> Iterator[str]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, Mapping) or not isinstance(data.get("model"), Mapping):
            yield f"[tokenizer] {path.name}, line 1: has no `model`, so it is no tokenizer of the tokenizers library"
            return
        TokenBytes.from_tokenizer_json(data)
    except FileNotFoundError:
        return
    except json.JSONDecodeError as error:
        yield f"[tokenizer] {path.name}, line {error.lineno}: is not JSON: {error.msg} (column {error.colno})"
    except (ValueError, RecursionError) as error:
        yield f"[tokenizer] {path.name}: {str(error).removeprefix(f'{path.name}: ')}"
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        yield f"[tokenizer] {path.name}: vocabulary or added_tokens are not in the expected form ({error!r})"


def _template_problems(file: str, template: str) -> Iterator[str]:
    from jinja2 import TemplateSyntaxError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    try:
        environment.compile(template, raw=True)
    except TemplateSyntaxError as error:
        where = f"line {error.lineno}" if file == _TEMPLATE else f"chat_template, line {error.lineno}"
        yield f"[chat-template] {file}, {where}: {error.message}"
    except RecursionError:
        yield f"[chat-template] {file}: is nested too deeply"
