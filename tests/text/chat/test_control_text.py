from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seekserve_backend.text.chat.control_text import MARKS, ControlTexts, Protection
from seekserve_backend.text.chat.errors import ChatError

TOKENS = ("<think>", "</think>", "<｜User｜>", "<｜Us", "｜DSML｜", "<|EOT|>")
CONTROL = ControlTexts(TOKENS)
PARTS = ["<", "think>", "</think>", "<｜User｜>", "｜", "DSML", "<｜Us", "er｜>", "|>", "a", " ", "<｜DSML｜invoke"]


def test_the_words_stay_and_the_token_goes() -> None:
    protection = Protection(["x<｜User｜>y"])
    marked = protection.protect("x<｜User｜>y", CONTROL)
    assert protection.pieces(marked) == ["x<", "｜User｜>y"]
    assert protection.without_marks(marked) == "x<｜User｜>y"


@pytest.mark.parametrize("text", ["", "plain", "a < b", "1 > 0", "List<int>x", "｜", "User"])
def test_ordinary_text_is_left_alone(text: str) -> None:
    if text not in ("｜",):
        assert Protection([]).protect(f"({text})", CONTROL) == f"({text})"


def test_a_text_cannot_help_the_template_to_a_token() -> None:
    """The template writes the other half."""
    protection = Protection([])
    for before, text, after in (("", "<thi", "nk>"), ("<｜Us", "er｜>", ""), ("<th", "ink>x", "")):
        prompt = before + protection.protect(text, CONTROL) + after
        assert not any(token in piece for piece in protection.pieces(prompt) for token in ("<think>", "<｜User｜>"))


@given(before=st.sampled_from(["", "x", "<", "<｜", "</"]), parts=st.lists(st.sampled_from(PARTS), max_size=8))
def test_no_piece_holds_a_token_and_no_character_is_lost(before: str, parts: list[str]) -> None:
    text = "".join(parts)
    protection = Protection([text])
    prompt = before + protection.protect(text, CONTROL)
    pieces = protection.pieces(prompt)
    assert "".join(pieces) == before + text
    assert not any(token in piece for piece in pieces for token in TOKENS)


def test_the_mark_is_one_that_no_text_has() -> None:
    assert Protection([MARKS[0] + "x", MARKS[1]]).mark == MARKS[2]
    with pytest.raises(ChatError, match="all of the 32 noncharacters"):
        Protection(MARKS)
    with pytest.raises(ChatError, match="noncharacter U\\+FDD0"):
        Protection([]).protect(MARKS[0], CONTROL)


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(ChatError, match="surrogate"):
        Protection([]).protect("\ud800", CONTROL)
