from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from seekserve_backend.text.detokenizer import Detokenizer, Piece
from seekserve_backend.text.token_bytes import TokenBytes, VocabKind

# 0: special; then single bytes of "ä", "你" and an emoji, and whole words.
BYTES = [f"<0x{b:02X}>" for b in "ä你😀".encode()]
PIECES = ["<eos>", *BYTES, "\u2581Hello", "\u2581wor", "ld", "!", "END", "EN", "\n"]
VOCAB = TokenBytes(PIECES, {0}, VocabKind.SENTENCEPIECE)
IDS = {piece: n for n, piece in enumerate(PIECES)}


def one_shot(ids: list[int], stops: list[str], *, skip_special: bool = True) -> str:
    text = b"".join(VOCAB.get(i, skip_special=skip_special) for i in ids).decode("utf-8", "replace")
    ends = [at for s in stops if s and (at := text.find(s)) >= 0]
    return text[: min(ends)] if ends else text


def test_characters_wait_for_their_last_byte() -> None:
    detokenizer = Detokenizer(VOCAB)
    texts = [detokenizer.feed([IDS[piece]]).text for piece in BYTES]
    assert texts == ["", "ä", "", "", "你", "", "", "", "😀"]
    assert detokenizer.flush() == ""


def test_a_stop_ends_the_text_and_the_count() -> None:
    detokenizer = Detokenizer(VOCAB, ["worldE"])
    assert detokenizer.feed([IDS["\u2581Hello"]]) == Piece(text=" Hello", stopped=False)
    assert detokenizer.feed([IDS["\u2581wor"], IDS["ld"]]) == Piece(text=" ", stopped=False)
    assert detokenizer.feed([IDS["EN"], IDS["!"], IDS["!"]]) == Piece(text="", stopped=True)
    assert detokenizer.feed([IDS["!"]]) == Piece(text="", stopped=True)
    assert (detokenizer.flush(), detokenizer.stop, detokenizer.token_count) == ("", "worldE", 4)


def test_held_text_comes_at_the_flush() -> None:
    detokenizer = Detokenizer(VOCAB, ["END"])
    assert detokenizer.feed([IDS["EN"], IDS[BYTES[0]]]).text == ""
    assert detokenizer.flush() == "EN\ufffd"
    assert not detokenizer.stopped


def test_a_stop_that_waited_for_a_longer_one_counts_at_the_flush() -> None:
    detokenizer = Detokenizer(VOCAB, ["EN", "END!"])
    assert detokenizer.feed([IDS["!"], IDS["END"]]) == Piece(text="!", stopped=False)
    assert detokenizer.flush() == ""
    assert detokenizer.stop == "EN"


def test_special_tokens_are_counted_and_shown_only_when_asked() -> None:
    silent, loud = Detokenizer(VOCAB), Detokenizer(VOCAB, skip_special=False)
    assert silent.feed([0, IDS["!"]]).text == "!"
    assert loud.feed([0, IDS["!"]]).text == "<eos>!"
    assert silent.token_count == loud.token_count == 2


def test_a_space_that_the_tokeniser_put_first_is_taken_off_once() -> None:
    vocab = TokenBytes(PIECES, {0}, VocabKind.SENTENCEPIECE, strips_leading_space=True)
    detokenizer = Detokenizer(vocab)
    assert detokenizer.feed([0, IDS["\u2581Hello"]]).text == "Hello"
    assert detokenizer.feed([IDS["\u2581wor"]]).text == " wor"


@settings(deadline=None, max_examples=150)
@given(
    ids=st.lists(st.integers(0, len(PIECES)), max_size=25),
    cuts=st.lists(st.integers(0, 25), max_size=10),
    stops=st.lists(st.sampled_from(["END", "EN", "\n", "ä", "ld!", "你", "N", "\ufffd"]), max_size=3),
    skip_special=st.booleans(),
)
def test_any_chunking_equals_decoding_at_once(
    ids: list[int], cuts: list[int], stops: list[str], skip_special: bool
) -> None:
    detokenizer = Detokenizer(VOCAB, stops, skip_special=skip_special)
    edges = [0, *sorted(min(c, len(ids)) for c in cuts), len(ids)]
    text = ""
    for start, end in pairwise(edges):
        text += detokenizer.feed(ids[start:end]).text
    text += detokenizer.flush()
    assert text == one_shot(ids, stops, skip_special=skip_special)
    assert detokenizer.stopped == (text != one_shot(ids, [], skip_special=skip_special))
