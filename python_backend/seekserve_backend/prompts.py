"""Prompt to token ids: raw text, chat messages or ids, with exactly one BOS in every case.

Chat uses the checkpoint's own Jinja template in the sandbox; a checkpoint without one is an error, never a guess. A
message that holds the text of a control token is refused, so that user text can never become one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .answers import Inbound, InvalidInput
from .text.bos import with_one_bos

__all__ = ["PromptEncoder"]

_ROLES = ("system", "user", "assistant", "tool", "developer")
# Assistant turns of reasoning models carry these in their history; the templates themselves cut them out.
_ALLOWED_IN_CONTENT = ("<think>", "</think>")


class PromptEncoder:
    """Loads `tokenizer.json` and `tokenizer_config.json` of a bundle. Safe to call from several threads."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises bare Exception, and does not name the file
            raise ValueError(f"{folder / 'tokenizer.json'} is not a tokenizer: {error}") from None
        config_path = folder / "tokenizer_config.json"
        self._config: dict[str, Any] = json.loads(config_path.read_text("utf-8")) if config_path.exists() else {}
        self.bos_id = self._token_id("bos_token")
        self.vocab_size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        data = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        self.tokenizer_json: dict[str, Any] = data
        self._control = tuple(
            t["content"] for t in data.get("added_tokens", ()) if t["content"] not in _ALLOWED_IN_CONTENT
        )
        self._template = self._compile(self._template_text(folder))

    def encode(self, inbound: Inbound) -> tuple[int, ...]:
        """Token ids with one BOS. Raises InvalidInput for what the client can mend."""
        if inbound.input_ids is not None:
            return self._checked_ids(inbound.input_ids)
        if inbound.messages is not None:
            text = self.render(_parse_messages(inbound.messages))
        else:
            text = _utf8("text_input", inbound.text or b"")
            if not text:
                raise InvalidInput("text_input", "the prompt is empty; send at least one character")
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return tuple(with_one_bos(ids, self.bos_id))

    def render(self, messages: list[dict[str, Any]]) -> str:
        """The chat prompt, ending where the assistant's turn begins."""
        if self._template is None:
            raise InvalidInput("messages", "this checkpoint ships no chat template; send text_input instead")
        for i, message in enumerate(messages):
            for string in _texts(message):
                self._check_text(i, string)
        from jinja2 import TemplateError

        try:
            text: str = self._template.render(
                messages=messages,
                add_generation_prompt=True,
                bos_token=self._token_text("bos_token") or "",
                eos_token=self._token_text("eos_token") or "",
            )
        except TemplateError as error:
            raise InvalidInput("messages", f"the chat template refused the conversation: {error}") from None
        return text

    def _check_text(self, number: int, text: str) -> None:
        for token in self._control:
            if token in text:
                raise InvalidInput(
                    "messages", f"message {number} holds the control token {token!r}; send text_input for raw prompts"
                )
        if not text.isascii():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                raise InvalidInput("messages", f"message {number} holds half of a surrogate pair") from None

    def _checked_ids(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        if not ids:
            raise InvalidInput("input_ids", "the prompt is empty; send at least one token id")
        bad = next((i for i in ids if not 0 <= i < self.vocab_size), None)
        if bad is not None:
            raise InvalidInput("input_ids", f"token id {bad} is outside the vocabulary (0 to {self.vocab_size - 1})")
        return tuple(with_one_bos(ids, self.bos_id))

    def _token_text(self, key: str) -> str | None:
        value = self._config.get(key)
        if isinstance(value, Mapping):
            value = value.get("content")
        return value if isinstance(value, str) else None

    def _token_id(self, key: str) -> int | None:
        text = self._token_text(key)
        if text is None:
            return None
        token_id: int | None = self._tokenizer.token_to_id(text)
        return token_id

    def _template_text(self, folder: Path) -> str | None:
        path = folder / "chat_template.jinja"
        if path.exists():
            return path.read_text("utf-8")
        value = self._config.get("chat_template")
        if isinstance(value, list):  # the named form: [{"name": "default", "template": ...}, ...]
            value = next((t.get("template") for t in value if t.get("name") == "default"), None)
        return value if isinstance(value, str) else None

    @staticmethod
    def _compile(text: str | None) -> Any:
        if text is None:
            return None
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def raise_exception(message: str) -> None:
            from jinja2 import TemplateError

            raise TemplateError(message)

        # trim_blocks and lstrip_blocks as transformers compiles chat templates
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = raise_exception
        return environment.from_string(text)


def _texts(value: Any) -> Iterator[str]:
    """Every string in a message, keys included: any of them may end up in the prompt."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _utf8(field: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(field, f"not UTF-8 (byte {error.start} of {len(data)})") from None


def _parse_messages(data: bytes) -> list[dict[str, Any]]:
    try:
        messages = json.loads(_utf8("messages", data))
    except json.JSONDecodeError as error:
        raise InvalidInput("messages", f"not JSON (line {error.lineno} column {error.colno})") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, or as many brackets
        raise InvalidInput("messages", "not JSON that can be read (a huge number or too deep nesting)") from None
    if not isinstance(messages, list) or not messages:
        raise InvalidInput("messages", "expected a list of at least one message")
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            raise InvalidInput("messages", f"message {i} is not an object")
        if message.get("role") not in _ROLES:
            raise InvalidInput(
                "messages", f"message {i}: role {message.get('role')!r} is not one of {', '.join(_ROLES)}"
            )
        if message.get("content") is None and message["role"] == "assistant":
            message["content"] = ""
        if not isinstance(message.get("content"), str):
            raise InvalidInput("messages", f"message {i}: content must be a string")
    return messages
