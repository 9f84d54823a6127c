"""Prompts of a wanted length: token ids inside the vocabulary and never control tokens, or words where it is unknown.

The same seed gives the same prompts. A trace's block hashes become the same ids wherever the hash is the same, so that
a prefix cache finds what it would have found.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from seekserve.client.request import GenerateRequest
from seekserve.errors import InputError
from seekserve.simulate.records import Arrival

__all__ = ["Lengths", "Prompts", "Vocabulary", "read_vocabulary"]

_BLOCK_TOKENS = 512
_WORDS = ("the", "a", "of", "to", "in", "and", "is", "on", "at", "it", "by", "we", "or", "an", "as", "be", "so", "up")


class Lengths(Enum):
    """How the server is made to produce the wanted number of tokens."""

    MAX = "max"
    """max_tokens and min_tokens: works everywhere, and tells the scheduler the length."""
    MIN = "min"
    """min_tokens alone: the synthetic engine stops there; others may go on to the limit."""
    FREE = "free"
    """Neither: answers are as long as the model makes them."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    ids: Sequence[int]
    """Plain tokens."""
    adds_bos: bool = False
    """The server puts one token before the prompt."""


def read_vocabulary(bundle: Path) -> Vocabulary:
    """Of a bundle's folder, or a checkpoint's. Raises InputError when there is no tokenizer to be read."""
    folder = bundle / "tokenizer" if (bundle / "tokenizer").is_dir() else bundle
    try:
        data = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        vocab = data["model"]["vocab"]
        ids = vocab.values() if isinstance(vocab, dict) else range(len(vocab))
        taken = {int(entry["id"]) for entry in data.get("added_tokens") or ()}
        plain = sorted({int(n) for n in ids} - taken)
        config_file = folder / "tokenizer_config.json"
        config = json.loads(config_file.read_text("utf-8")) if config_file.is_file() else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{folder / 'tokenizer.json'} is not a tokenizer that can be read: {error}",
            hint="--bundle takes the folder of the bundle that is served, or of its checkpoint",
        ) from None
    if not plain:
        raise InputError(f"{folder / 'tokenizer.json'} has no token that is not a control token")
    return Vocabulary(plain, adds_bos=config.get("bos_token") is not None)


class Prompts:
    def __init__(self, vocabulary: Vocabulary | None, *, seed: int, lengths: Lengths = Lengths.MAX) -> None:
        self._vocabulary = vocabulary
        self._random = random.Random(f"prompts-{seed}")
        self._lengths = lengths
        self._blocks: dict[int, list[int]] = {}

    def request_for(self, arrival: Arrival, *, stream: bool, has_classes: bool = True) -> GenerateRequest:
        """`has_classes` False: the server's default class is asked for."""
        ids = text = None
        if self._vocabulary is None:
            text = " ".join(self._random.choices(_WORDS, k=arrival.prompt_tokens))
        else:
            ids = self._ids(arrival, self._vocabulary)
        wanted = arrival.output_tokens
        return GenerateRequest(
            prompt=text,
            input_ids=ids,
            max_tokens=wanted if self._lengths is Lengths.MAX else arrival.max_tokens,
            min_tokens=None if self._lengths is Lengths.FREE else wanted,
            request_class=arrival.request_class if has_classes else None,
            tenant=arrival.tenant or None,
            stream=stream,
        )

    def _ids(self, arrival: Arrival, vocabulary: Vocabulary) -> list[int]:
        length = max(1, arrival.prompt_tokens - vocabulary.adds_bos)
        ids: list[int] = []
        for block in arrival.blocks:
            if block not in self._blocks:
                self._blocks[block] = random.Random(block).choices(vocabulary.ids, k=_BLOCK_TOKENS)
            ids += self._blocks[block]
        del ids[length:]
        return ids + self._random.choices(vocabulary.ids, k=length - len(ids))
