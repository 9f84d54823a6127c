from __future__ import annotations

from typing import Any

import pytest

from seekserve_backend.text.token_bytes import TokenBytes, VocabKind


def tokenizer_json(vocab: Any, decoder: Any, *, added: list[dict[str, Any]] | None = None, pre: Any = None) -> Any:
    return {"model": {"vocab": vocab}, "decoder": decoder, "pre_tokenizer": pre, "added_tokens": added or []}


@pytest.mark.parametrize(
    ("piece", "data"),
    [
        ("Hello", b"Hello"),
        ("ĠHello", b" Hello"),
        ("Ċ", b"\n"),
        ("ä½ł", "你".encode()),
        ("ðŁĺĢ", "😀".encode()),
        ("ä", b"\xe4"),
        ("<｜User｜>", "<｜User｜>".encode()),  # not in the alphabet: an added token, literal
        ("two words", b"two words"),
    ],
)
def test_byte_level_pieces(piece: str, data: bytes) -> None:
    assert TokenBytes([piece], (), VocabKind.BYTE_LEVEL).get(0) == data


def test_the_byte_alphabet_covers_every_byte_once() -> None:
    from seekserve_backend.text.token_bytes import _BYTE_OF

    assert sorted(_BYTE_OF.values()) == list(range(256))


@pytest.mark.parametrize(
    ("piece", "data"),
    [
        ("\u2581Hello", b" Hello"),
        ("a\u2581\u2581b", b"a  b"),
        ("<0xE4>", b"\xe4"),
        ("<0x0a>", b"\n"),
        ("<0xE4>x", b"<0xE4>x"),
        ("你", "你".encode()),
    ],
)
def test_sentencepiece_pieces(piece: str, data: bytes) -> None:
    assert TokenBytes([piece], (), VocabKind.SENTENCEPIECE).get(0) == data


def test_special_tokens_are_skipped_unless_kept() -> None:
    vocab = TokenBytes(["a", "</s>"], {1}, VocabKind.BYTE_LEVEL)
    assert vocab.get(1) == b""
    assert vocab.get(1, skip_special=False) == b"</s>"


@pytest.mark.parametrize("token_id", [-1, 1, 2, 10**9])
def test_ids_without_a_piece_give_no_bytes(token_id: int) -> None:
    assert TokenBytes(["a", None], (), VocabKind.BYTE_LEVEL).get(token_id) == b""


@pytest.mark.parametrize(
    "sections",
    [
        {"decoder": {"type": "ByteLevel"}},
        {"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteLevel"}]}},
        {
            "decoder": None,
            "pre": {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "ByteLevel"}]},
        },
    ],
)
def test_a_byte_level_tokenizer_is_recognised(sections: dict[str, Any]) -> None:
    added = [{"id": 3, "content": "<bos>", "special": True}, {"id": 4, "content": " raw", "special": False}]
    vocab = TokenBytes.from_tokenizer_json(tokenizer_json({"Ġa": 0, "b": 1}, **sections, added=added))
    assert [vocab.get(i) for i in range(6)] == [b" a", b"b", b"", b"", b" raw", b""]
    assert vocab.special_ids == {3}


def test_a_sentencepiece_tokenizer_is_recognised() -> None:
    decoders = [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    unigram = [["<unk>", 0.0], ["\u2581a", -1.0], ["<0xFF>", -2.0]]
    vocab = TokenBytes.from_tokenizer_json(tokenizer_json(unigram, {"type": "Sequence", "decoders": decoders}))
    assert [vocab.get(i) for i in range(3)] == [b"<unk>", b" a", b"\xff"]
    assert vocab.strips_leading_space


@pytest.mark.parametrize(("scheme", "strips"), [("always", True), ("first", True), ("never", False)])
def test_metaspace_says_whether_a_space_is_put_first(scheme: str, strips: bool) -> None:
    decoder = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme}
    assert TokenBytes.from_tokenizer_json(tokenizer_json({}, decoder)).strips_leading_space is strips


@pytest.mark.parametrize("decoder", [None, {"type": "WordPiece"}])
def test_any_other_tokenizer_is_refused_by_name(decoder: Any) -> None:
    with pytest.raises(ValueError, match="WordPiece" if decoder else "are none"):
        TokenBytes.from_tokenizer_json(tokenizer_json({"a": 0}, decoder))


def test_the_tags_of_reasoning_and_calls_are_shown_even_when_they_are_special() -> None:
    data = {
        "model": {"vocab": {"a": 0}},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": [
            {"id": 1, "content": "</think>", "special": True},
            {"id": 2, "content": "<eos>", "special": True},
        ],
    }
    vocabulary = TokenBytes.from_tokenizer_json(data)
    assert [vocabulary.get(n) for n in range(3)] == [b"a", b"</think>", b""]
