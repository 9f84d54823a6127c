"""Token ids to bytes, for byte-level BPE (DeepSeek, GPT-2) and SentencePiece-like vocabularies with byte fallback.

Bytes, not text: a character may be spread over several tokens, and only the UTF-8 stage knows when it is complete.
Ids without a piece (holes, padding of the vocabulary) give no bytes.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from .reasoning import THINK_END, THINK_START
from .tool_calls.dsml import DSML
from .tool_calls.tokens import CALL_BEGIN, CALL_END, CALLS_BEGIN, CALLS_END, SEPARATOR

__all__ = ["TokenBytes", "VocabKind"]

# Whatever a tokenizer calls special: without these, reasoning and calls could not be told from the answer.
_READ_BY_CLIENTS = frozenset({THINK_START, THINK_END, DSML, CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END, SEPARATOR})
_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SP_SPACE = "\u2581"


class VocabKind(enum.Enum):
    BYTE_LEVEL = "byte_level"
    """Each character of a piece stands for one byte."""
    SENTENCEPIECE = "sentencepiece"
    """Pieces are text with U+2581 for the space; `<0xE4>` is one byte."""


class TokenBytes:
    def __init__(
        self,
        pieces: Sequence[str | None],
        special_ids: Collection[int],
        kind: VocabKind,
        *,
        strips_leading_space: bool = False,
    ) -> None:
        """`pieces` by id. `strips_leading_space`: the tokeniser puts a space before every text, to be taken off."""
        to_bytes = _byte_level_bytes if kind is VocabKind.BYTE_LEVEL else _sentencepiece_bytes
        self.special_ids = frozenset(special_ids)
        self.strips_leading_space = strips_leading_space
        self._bytes = [b"" if piece is None else to_bytes(piece) for piece in pieces]

    def __len__(self) -> int:
        return len(self._bytes)

    def get(self, token_id: int, *, skip_special: bool = True) -> bytes:
        if not 0 <= token_id < len(self._bytes) or (skip_special and token_id in self.special_ids):
            return b""
        return self._bytes[token_id]

    @classmethod
    def from_tokenizer_json(cls, data: Mapping[str, Any]) -> TokenBytes:
        """`data`: the decoded tokenizer.json. Raises ValueError when its decoder is neither of the two kinds."""
        decoders = list(_components(data.get("decoder"), "decoders"))
        kind = _kind(decoders, list(_components(data.get("pre_tokenizer"), "pretokenizers")))
        vocab = _vocab(data)
        added = data.get("added_tokens") or []
        vocab.update({entry["id"]: entry["content"] for entry in added})
        pieces = [vocab.get(token_id) for token_id in range(max(vocab, default=-1) + 1)]
        special = [entry["id"] for entry in added if entry.get("special") and entry["content"] not in _READ_BY_CLIENTS]
        return cls(pieces, special, kind, strips_leading_space=any(map(_strips, decoders)))


def _byte_alphabet() -> dict[str, int]:
    """The GPT-2 alphabet: printable Latin-1 stands for itself, the other 68 bytes for the characters from U+0100 on."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in own]
    return {chr(b): b for b in own} | {chr(0x100 + n): b for n, b in enumerate(others)}


_BYTE_OF = _byte_alphabet()


def _byte_level_bytes(piece: str) -> bytes:
    try:
        return bytes([_BYTE_OF[char] for char in piece])
    except KeyError:
        # Added tokens are written as plain text, e.g. DeepSeek's full-width bars.
        return piece.encode()


def _sentencepiece_bytes(piece: str) -> bytes:
    one_byte = _FALLBACK.fullmatch(piece)
    return bytes([int(one_byte[1], 16)]) if one_byte else piece.replace(_SP_SPACE, " ").encode()


def _components(section: Any, inner: str) -> Iterator[Mapping[str, Any]]:
    if isinstance(section, Mapping):
        yield section
        for part in section.get(inner) or ():
            yield from _components(part, inner)


def _kind(decoders: list[Mapping[str, Any]], pre_tokenizers: list[Mapping[str, Any]]) -> VocabKind:
    types = [part.get("type") for part in (*decoders, *pre_tokenizers)]
    if "ByteLevel" in types:
        return VocabKind.BYTE_LEVEL
    if "ByteFallback" in types or "Metaspace" in types:
        return VocabKind.SENTENCEPIECE
    shown = ", ".join(str(t) for t in types) or "none"
    raise ValueError(
        f"tokenizer.json: decoder and pre_tokenizer types are {shown}; "
        "supported are ByteLevel, ByteFallback and Metaspace"
    )


def _strips(decoder: Mapping[str, Any]) -> bool:
    if decoder.get("type") == "Strip":
        return bool(decoder.get("content") == " " and decoder.get("start"))
    return decoder.get("type") == "Metaspace" and decoder.get("prepend_scheme", "always") != "never"


def _vocab(data: Mapping[str, Any]) -> dict[int, str]:
    model = data.get("model") or {}
    vocab = model.get("vocab") or {}
    if isinstance(vocab, Mapping):
        return {int(token_id): piece for piece, token_id in vocab.items()}
    return {token_id: entry[0] for token_id, entry in enumerate(vocab)}  # Unigram: [piece, score] by id
