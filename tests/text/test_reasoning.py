"""Groups I2 and I3 of the user reports: the tags wherever they are, however the stream was cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from tests.text.streams import chunks_of

from seekserve_backend.text.reasoning import PieceKind, ReasoningSplit, ends_in_thinking


def run(starts_in_thinking: bool, chunks: list[str]) -> tuple[str, str]:
    split = ReasoningSplit(starts_in_thinking)
    pieces = [piece for chunk in chunks for piece in split.feed(chunk)] + split.finish()
    assert all(piece.text for piece in pieces)
    kinds = [piece.kind for piece in pieces]
    assert kinds == sorted(kinds, key=lambda kind: kind is PieceKind.CONTENT), "reasoning comes first"
    joined = {kind: "".join(piece.text for piece in pieces if piece.kind is kind) for kind in PieceKind}
    return joined[PieceKind.REASONING], joined[PieceKind.CONTENT]


@pytest.mark.parametrize(
    ("starts", "chunks", "reasoning", "content"),
    [
        # I2: the tag stands in the prompt, in the output, in both, or nowhere
        (True, ["because</think>so"], "because", "so"),
        (False, ["<think>because</think>so"], "because", "so"),
        (True, ["<think>because</think>so"], "because", "so"),
        (False, ["so"], "", "so"),
        (False, ["\n<think>\n\n</think>\n\nso"], "\n\n", "\n\nso"),  # an empty pair
        (True, ["</think>so"], "", "so"),
        (False, ["so</think>?"], "", "so</think>?"),  # never opened: text
        (False, ["a <think>b</think>"], "", "a <think>b</think>"),  # only at the start
        (True, ["a</think>b</think>c"], "a", "b</think>c"),
        # I3: split over chunks, both kinds in one, a lone `<`, an end inside the reasoning
        (True, ["</th", "ink>Hi"], "", "Hi"),
        (True, ["thought.</think>Answer"], "thought.", "Answer"),
        (True, ["1 <", " 3"], "1 < 3", ""),
        (False, ["<", " 3"], "", "< 3"),
        (True, ["a </thin"], "a </thin", ""),
        (False, ["<thin"], "", "<thin"),
        (True, ["<think"], "<think", ""),
        (True, [], "", ""),
    ],
)
def test_what_is_reasoning_and_what_content(starts: bool, chunks: list[str], reasoning: str, content: str) -> None:
    assert run(starts, chunks) == (reasoning, content)


def test_a_lone_bracket_is_held_no_longer_than_it_must() -> None:
    split = ReasoningSplit(True)
    assert split.feed("1 <") == [(PieceKind.REASONING, "1 ")]
    assert split.feed(" ") == [(PieceKind.REASONING, "< ")]
    assert split.is_thinking
    split.finish()
    with pytest.raises(RuntimeError):
        split.feed("x")


@pytest.mark.parametrize("starts", [True, False])
@given(case=chunks_of(["<think>", "</think>", "<", "/", "think", ">", " ", "\n", "a"]))
@settings(max_examples=200)
def test_the_cut_never_changes_the_result(starts: bool, case: tuple[str, list[str]]) -> None:
    text, chunks = case
    reasoning, content = run(starts, chunks)
    assert (reasoning, content) == run(starts, [text])
    assert len(reasoning + content) >= len(text.strip()) - len("<think></think>")


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("<｜Assistant｜><think>\n", True),
        ("<｜Assistant｜><think>", True),
        ("<｜Assistant｜></think>", False),
        ("<｜Assistant｜>", False),
        ("<think> is a tag<｜Assistant｜>", False),
    ],
)
def test_the_start_is_read_from_the_prompt(prompt: str, expected: bool) -> None:
    assert ends_in_thinking(prompt) is expected
