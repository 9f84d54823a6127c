"""What the tokenizer and generation files say that matters for serving: chat template, end-of-sequence ids, length.

Reads JSON and text; executes nothing and loads no tokenizer. A large tokenizer.json is not parsed as a whole: only its
list of added tokens is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .config import ModelConfig, read_json, token_ids
from .findings import Collector

__all__ = ["TOKENIZER_CONFIG", "TokenizerFacts", "read_tokenizer"]

GENERATION: Final = "generation_config.json"
TOKENIZER_CONFIG: Final = "tokenizer_config.json"
TOKENIZER: Final = "tokenizer.json"
TEMPLATE: Final = "chat_template.jinja"
MAX_TOKENIZER_BYTES: Final = 64_000_000
MAX_TEMPLATE_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFacts:
    chat_template: str | None
    eos_by_file: Mapping[str, tuple[int, ...]]
    """Every place that names end-of-sequence ids."""
    model_max_tokens: int | None

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """All of them: a generation must stop at each."""
        return tuple(sorted({i for ids in self.eos_by_file.values() for i in ids}))


def read_tokenizer(folder: Path, config: ModelConfig | None, findings: Collector) -> TokenizerFacts:
    generation = _optional(folder / GENERATION, findings)
    settings = _optional(folder / TOKENIZER_CONFIG, findings)
    if not (folder / TOKENIZER).is_file():
        findings.warning(
            "tokenizer-missing", TOKENIZER, "is not there; the service cannot turn text into tokens without it"
        )
    eos = {
        "config.json": config.eos_token_ids if config else (),
        GENERATION: token_ids(generation.get("eos_token_id")),
        TOKENIZER_CONFIG: _tokenizer_eos(folder, settings),
    }
    facts = TokenizerFacts(
        chat_template=_template(folder, settings),
        eos_by_file={file: ids for file, ids in eos.items() if ids},
        model_max_tokens=settings["model_max_length"] if type(settings.get("model_max_length")) is int else None,
    )
    _check(facts, config, findings)
    return facts


def _check(facts: TokenizerFacts, config: ModelConfig | None, findings: Collector) -> None:
    places = list(facts.eos_by_file.items())
    if not places:
        findings.warning(
            "eos-missing", GENERATION, "no file names an end-of-sequence id; generations end at the length limit"
        )
    elif len({frozenset(ids) for _, ids in places}) > 1:
        listed = ", ".join(f"{file} {list(ids)}" for file, ids in places)
        findings.warning("eos-differs", places[0][0], f"end-of-sequence ids differ: {listed}; all of them will stop")
    if config is None:
        return
    beyond = [i for i in facts.eos_ids if not 0 <= i < config.vocab_size]
    if beyond:
        findings.error(
            "eos-range", places[0][0], f"end-of-sequence ids {beyond} where the vocabulary has {config.vocab_size:,}"
        )
    tokens, limit = facts.model_max_tokens, config.max_position_tokens
    if tokens and limit and tokens < limit:
        findings.note(
            "tokenizer-length",
            TOKENIZER_CONFIG,
            f"model_max_length {tokens:,} is below max_position_embeddings {limit:,}; it does not limit the engine",
        )


def _optional(path: Path, findings: Collector) -> dict[str, Any]:
    if not path.is_file():
        return {}
    return read_json(path, findings) or {}


def _template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    file = folder / TEMPLATE
    if file.is_file() and file.stat().st_size <= MAX_TEMPLATE_BYTES:
        return file.read_text(encoding="utf-8", errors="replace")
    value = settings.get("chat_template")
    if isinstance(value, list):  # named templates
        value = next((v.get("template") for v in value if isinstance(v, dict) and v.get("name") == "default"), None)
    return value if isinstance(value, str) else None


def _tokenizer_eos(folder: Path, settings: Mapping[str, Any]) -> tuple[int, ...]:
    token = settings.get("eos_token")
    if isinstance(token, dict):
        token = token.get("content")
    if not isinstance(token, str):
        return ()
    listed = settings.get("added_tokens_decoder")
    if isinstance(listed, dict):
        for number, entry in listed.items():
            if isinstance(entry, dict) and entry.get("content") == token and number.isdecimal():
                return (int(number),)
    for entry in _added_tokens(folder / TOKENIZER):
        if isinstance(entry, dict) and entry.get("content") == token:
            return token_ids(entry.get("id"))
    return ()


def _added_tokens(path: Path) -> list[Any]:
    """Quotes inside JSON strings are escaped, so the first plain `"added_tokens":` is the key itself."""
    if not path.is_file() or path.stat().st_size > MAX_TOKENIZER_BYTES:
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    at = text.find('"added_tokens"')
    start = text.find("[", at)
    if at < 0 or start < 0 or text[at + len('"added_tokens"') : start].strip() != ":":
        return []
    try:
        value, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []
