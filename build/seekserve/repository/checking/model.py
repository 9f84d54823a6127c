"""One model folder as read: its configuration as Triton's own message, and where in the text each thing stands.

Protobuf forgets line numbers once a text is parsed, so they are looked up in the text again, comments left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..render import CONFIG_FILE
from .finding import RepositoryFinding, error

__all__ = ["ModelFolder", "read_model_folder"]

_PARSE_PLACE = re.compile(r"^(\d+):(\d+) : (.*)$", re.DOTALL)
_COMMENT = re.compile(r'^((?:[^"#]|"(?:\\.|[^"\\])*")*)#.*$')


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    path: Path
    text: str
    config: Any
    """tritonclient's ModelConfig message."""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config_file(self) -> str:
        return f"{self.name}/{CONFIG_FILE}"

    @property
    def parameters(self) -> dict[str, str]:
        return {key: value.string_value for key, value in self.config.parameters.items()}

    @property
    def versions(self) -> list[Path]:
        return sorted(child for child in self.path.iterdir() if child.is_dir() and child.name.isdecimal())

    @property
    def is_decoupled(self) -> bool:
        return bool(self.config.model_transaction_policy.decoupled)

    def tensor_names(self, side: str) -> set[str]:
        return {tensor.name for tensor in getattr(self.config, side)}

    def line(self, *words: str) -> int | None:
        """Of the first place where all the words follow each other (white space and punctuation between), else None."""
        pattern = r"[\s:{\[]*".join(re.escape(word) for word in words)
        match = re.search(rf"(?<![\w.]){pattern}", self._bare)
        return None if match is None else self._bare.count("\n", 0, match.start()) + 1

    def parameter_line(self, key: str) -> int | None:
        return self.line("key", f'"{key}"') or self.line("key", f"'{key}'")

    def value_line(self, field: str, value: str) -> int | None:
        return self.line(field, f'"{value}"') or self.line(field, f"'{value}'") or self.line(field)

    @property
    def _bare(self) -> str:
        return "\n".join(_COMMENT.sub(r"\1", line) for line in self.text.split("\n"))


def read_model_folder(path: Path) -> tuple[ModelFolder | None, list[RepositoryFinding]]:
    """The model, or why it cannot be read."""
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    file = f"{path.name}/{CONFIG_FILE}"
    try:
        text = (path / CONFIG_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        return None, [error("config-unreadable", file, None, f"cannot be read: {reason}")]
    try:
        config = text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError as reason:
        match = _PARSE_PLACE.match(str(reason))
        line, message = (int(match[1]), match[3]) if match else (None, str(reason))
        left = " (a placeholder was not filled in)" if line and "${" in text.split("\n")[line - 1] else ""
        return None, [error("config-syntax", file, line, f"is no Triton model configuration: {message}{left}")]
    return ModelFolder(path=path, text=text, config=config), []
