"""Prompt to token ids: raw text, chat messages or ids, with exactly one BOS in every case.

Chat is rendered with the checkpoint's own template, or with the built-in format of a release that ships an encoder
instead; a checkpoint with neither is an error, never a guess. What people wrote never becomes a control token: it is
tokenised as ordinary text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .answers import Inbound, InvalidInput
from .chat_template import ChatTemplate
from .text.bos import with_one_bos
from .text.chat.control_text import ControlTexts, Protection
from .text.chat.conversation import Message, parse_messages
from .text.chat.errors import ChatError
from .text.chat.formats import BuiltInFormat, built_in_format
from .text.chat.options import ChatOptions, parse_options
from .text.chat.wording import CHAT_TEXTS_FILE
from .text.reasoning import THINK_END, THINK_START

__all__ = ["PromptEncoder"]


class PromptEncoder:
    """Loads `tokenizer.json` and `tokenizer_config.json` of a bundle. Safe to call from several threads."""

    def __init__(self, folder: Path, *, family: str | None = None, model: str = "") -> None:
        """`family`: as the bundle says, for the releases without a template. `model`: its name, for messages."""
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
        control = list(_control_texts(data))
        self._adds_spaces = any(map(_adds_spaces, (data.get("normalizer"), data.get("pre_tokenizer"))))
        self._control = ControlTexts(control)
        # In earlier answers the templates look for the tags themselves.
        self._control_in_answers = ControlTexts(t for t in control if t not in (THINK_START, THINK_END))
        self._model = model
        self._format = self._chat_format(folder, family)
        self._no_chat = None if self._format is not None else "it ships no chat template; send text_input instead"
        if isinstance(self._format, BuiltInFormat):
            self._no_chat = self._format.missing_tokens(control)

    def encode(self, inbound: Inbound) -> tuple[int, ...]:
        """Token ids with one BOS. Raises InvalidInput for what the client can mend."""
        if inbound.input_ids is not None:
            return self._checked_ids(inbound.input_ids)
        if inbound.messages is not None:
            ids = self._chat_ids(inbound.messages, inbound.chat_options)
        else:
            text = _utf8("text_input", inbound.text or b"")
            if not text:
                raise InvalidInput("text_input", "the prompt is empty; send at least one character")
            ids = self._ids(text)
        return tuple(with_one_bos(ids, self.bos_id))

    def render(self, messages: list[Message], options: ChatOptions | None = None) -> str:
        """The chat prompt as text, ending where the assistant's turn begins; for people to read."""
        protection, prompt = self._rendered(messages, options or ChatOptions())
        return protection.without_marks(prompt)

    def _chat_ids(self, messages: bytes, options: bytes | None) -> list[int]:
        try:
            conversation = parse_messages(_json("messages", messages))
            chosen = ChatOptions() if options is None else parse_options(_json("chat_options", options))
        except ChatError as error:
            raise InvalidInput(error.field, error.reason) from None
        protection, prompt = self._rendered(conversation, chosen)
        if self._adds_spaces and protection.mark in prompt:
            raise InvalidInput(
                "messages", self._named("a text holds that of a control token, which its tokenizer cannot take as text")
            )
        return [token_id for piece in protection.pieces(prompt) for token_id in self._ids(piece)]

    def _rendered(self, messages: list[Message], options: ChatOptions) -> tuple[Protection, str]:
        if self._format is None or self._no_chat is not None:
            raise InvalidInput("messages", self._named(self._no_chat or ""))
        try:
            protection = Protection(_texts([messages, list(options.tools), options.template_kwargs, options.schema]))
            if isinstance(self._format, BuiltInFormat):
                prompt = self._format.render(messages, options, lambda text: protection.protect(text, self._control))
            else:
                prompt = self._format.render(
                    messages,
                    options,
                    lambda text, role, field: protection.protect(text, self._control_for(role), field),
                )
        except ChatError as error:
            raise InvalidInput(error.field, self._named(error.reason)) from None
        return protection, prompt

    def _control_for(self, role: str) -> ControlTexts:
        return self._control_in_answers if role == "assistant" else self._control

    def _named(self, reason: str) -> str:
        return f"model {self._model!r}: {reason}" if self._model else reason

    def _ids(self, text: str) -> list[int]:
        # Unlike `encode` this lets other threads run meanwhile: a long prompt would hold up every stream there is.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids

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

    def _chat_format(self, folder: Path, family: str | None) -> ChatTemplate | BuiltInFormat | None:
        template = self._template_text(folder)
        if template is not None:
            bos, eos = self._token_text("bos_token") or "", self._token_text("eos_token") or ""
            return ChatTemplate(template, bos=bos, eos=eos)
        chat_format = built_in_format(family)
        path = folder / CHAT_TEXTS_FILE
        if chat_format is None or not path.exists():
            return chat_format
        try:
            return chat_format.with_texts(json.loads(path.read_text("utf-8"))["texts"])
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(f"{path}: not the texts of a chat format: {error}") from None

    def _template_text(self, folder: Path) -> str | None:
        path = folder / "chat_template.jinja"
        if path.exists():
            return path.read_text("utf-8")
        value = self._config.get("chat_template")
        if isinstance(value, list):  # the named form: [{"name": "default", "template": ...}, ...]
            value = next((t.get("template") for t in value if t.get("name") == "default"), None)
        return value if isinstance(value, str) else None


def _control_texts(tokenizer_json: Mapping[str, Any]) -> Iterator[str]:
    """Of the added tokens; some tokenizers also add single letters, which are just text."""
    for token in tokenizer_json.get("added_tokens") or ():
        if token.get("special") or len(token["content"]) > 1:
            yield token["content"]


def _adds_spaces(part: Any) -> bool:
    """Whether a normalizer or pre-tokenizer puts a space before each text, so that pieces would not join up again."""
    if not isinstance(part, Mapping):
        return False
    if part.get("type") in ("Metaspace", "Prepend") or part.get("add_prefix_space"):
        return True
    return any(_adds_spaces(inner) for key in ("normalizers", "pretokenizers") for inner in part.get(key) or ())


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value, keys included: any of them may end up in the prompt."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
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


def _json(field: str, data: bytes) -> Any:
    try:
        return json.loads(_utf8(field, data))
    except json.JSONDecodeError as error:
        raise InvalidInput(field, f"not JSON (line {error.lineno} column {error.colno})") from None
    except InvalidInput:
        raise
    except (ValueError, RecursionError):  # a number of thousands of digits, or as many brackets
        raise InvalidInput(field, "not JSON that can be read (a huge number or too deep nesting)") from None
