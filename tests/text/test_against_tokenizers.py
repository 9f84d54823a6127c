"""Our detokenisation against the `tokenizers` library's own decode, on random ids of both kinds of vocabulary."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seekserve_backend.text.detokenizer import Detokenizer
from seekserve_backend.text.token_bytes import _BYTE_OF, TokenBytes

tokenizers = pytest.importorskip("tokenizers", reason="comes with transformers (the `local` extra)")
pytestmark = pytest.mark.needs_local

CORPUS = 3 * [
    "What is 37 + 48? It is 85.",
    "你好，世界！今天天气很好。",
    "emoji 😀😃🎉 and é à ü",
    "a  b\n\nc\td",
    "don't stop",
]


@functools.cache
def byte_level() -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<｜begin▁of▁sentence｜>", "<eos>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", special=False), AddedToken("é", special=False)])
    tokenizer.add_special_tokens([AddedToken("<｜User｜>", special=True)])
    return tokenizer


@functools.cache
def with_fallback() -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers

    words = ["\u2581", "\u2581Hello", "\u2581wor", "ld", "a", "\u2581\u2581b", "你", "!", "é"]
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for piece in [*(f"<0x{b:02X}>" for b in range(256)), *words]:
        vocab[piece] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


@functools.cache
def shipped() -> Any:
    folder = resources.files("seekserve") / "data" / "tiny_deepseek_v3" / "tokenizer.json"
    if not folder.is_file():
        pytest.skip("the tiny checkpoint is not in this checkout")
    return tokenizers.Tokenizer.from_str(folder.read_text(encoding="utf-8"))


@functools.cache
def vocab_of(make: Any) -> TokenBytes:
    return TokenBytes.from_tokenizer_json(json.loads(make().to_str()))


def ours(vocab: TokenBytes, ids: list[int], *, skip_special: bool) -> str:
    detokenizer = Detokenizer(vocab, skip_special=skip_special)
    return "".join(detokenizer.feed([i]).text for i in ids) + detokenizer.flush()


IDS = st.lists(st.integers(0, 10**6), max_size=12)


@pytest.mark.parametrize("make", [byte_level, shipped])
def test_random_byte_level_ids_decode_as_in_the_library(make: Any) -> None:
    tokenizer, vocab = make(), vocab_of(make)
    size = tokenizer.get_vocab_size()

    @settings(deadline=None, max_examples=150, database=None)
    @given(picks=IDS, skip_special=st.booleans())
    def check(picks: list[int], skip_special: bool) -> None:
        ids = [pick % size for pick in picks]
        assert ours(vocab, ids, skip_special=skip_special) == tokenizer.decode(ids, skip_special_tokens=skip_special)

    check()


@settings(deadline=None, max_examples=150)
@given(picks=IDS, text=st.text("aé你😀 !", max_size=6), skip_special=st.booleans())
def test_fallback_ids_decode_as_in_the_library_wherever_their_bytes_are_utf8(
    picks: list[int], text: str, skip_special: bool
) -> None:
    tokenizer, vocab = with_fallback(), vocab_of(with_fallback)
    # Broken bytes differ on purpose: the library writes one U+FFFD per byte of the whole run, we write what UTF-8 says.
    whole = [i for i in range(tokenizer.get_vocab_size()) if not 0x80 <= i - 3 < 0x100]
    ids = [whole[pick % len(whole)] for pick in picks] + [3 + b for b in text.encode()]
    assert ours(vocab, ids, skip_special=skip_special) == tokenizer.decode(ids, skip_special_tokens=skip_special)


@pytest.mark.parametrize("make", [byte_level, shipped])
@pytest.mark.parametrize("text", ["What is 37 + 48?", "你好，世界 😀!", "a\n\n  b\tü", ""])
def test_text_comes_back_from_its_tokens(make: Any, text: str) -> None:
    ids = make().encode(text, add_special_tokens=False).ids
    assert ours(vocab_of(make), ids, skip_special=True) == text


def test_the_byte_alphabet_is_the_librarys() -> None:
    assert set(_BYTE_OF) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
