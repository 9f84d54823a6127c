"""What the encoder of a release without a chat template tells the model about tools, schemas and effort.

DeepSeek-V3.2 and later ship `encoding/*.py` instead of a template. The service has their formats built in; the
sentences are taken from the checkpoint itself, read as data: the file is parsed, never run.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from seekserve_backend.text.chat.formats import built_in_format
from seekserve_backend.text.chat.wording import CHAT_TEXTS_FILE

__all__ = ["ChatTexts", "read_chat_texts"]

_FOLDER: Final = "encoding"
_MAX_BYTES: Final = 1_000_000
_FIELD_BY_NAME: Final = {
    "TOOLS_SYSTEM_TEMPLATE": "tools",
    "TOOLS_TEMPLATE": "tools",
    "response_format_template": "schema",
    "REASONING_EFFORT_MAX": "effort_max",
    "REASONING_EFFORT_TEMPLATE": "effort",
}
"""Name of the variable in the encoders of V3.2, V4 and V4.1 -> field of the wording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTexts:
    file: str = f"tokenizer/{CHAT_TEXTS_FILE}"
    """POSIX path in the bundle."""
    content: str | None = None
    """None: there is nothing to write."""
    warnings: tuple[str, ...] = ()


def read_chat_texts(checkpoint: Path, family: str, chat_template: str | None) -> ChatTexts:
    """Nothing for a checkpoint with a template, or of a family that has no built-in format."""
    chat_format = built_in_format(family)
    if chat_format is None or chat_template is not None:
        return ChatTexts()
    files = sorted(path for path in (checkpoint / _FOLDER).glob("*.py") if path.stat().st_size <= _MAX_BYTES)
    for path in files:
        texts = dict(_texts_in(path))
        if "tools" not in texts:
            continue
        name = f"{_FOLDER}/{path.name}"
        try:
            chat_format.with_texts(texts)
        except ValueError as error:
            return ChatTexts(warnings=(f"[chat-texts] {name}: {error}; {_OURS}",))
        data = {"source": name, "texts": texts}
        return ChatTexts(content=json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    found = f"none of {len(files)} files in it has them" if files else "it is not there"
    return ChatTexts(
        warnings=(
            f"[chat-texts] {_FOLDER}/: the release's encoder holds the instructions for tools, and {found}; {_OURS}",
        )
    )


_OURS: Final = "tools will be explained to the model in words of seekserve's own, which it was not trained on"


def _texts_in(path: Path) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        for target in targets:
            field = _FIELD_BY_NAME.get(target.id) if isinstance(target, ast.Name) else None
            if field is not None and isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield field, value.value
