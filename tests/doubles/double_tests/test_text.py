"""Text side of the double: with a tokenizer the client detokenises, and cuts at stop strings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.doubles.double_tests.conftest import Make
from tests.doubles.double_tests.package import Package

LETTERS = "-.abcdefgh"


class Letters:
    """Token 2 is a, 3 is b and so on; 0 and 1 are special."""

    eos_token_id = 1
    pad_token_id = None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [LETTERS.index(letter) for letter in text]

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return "".join(LETTERS[token] for token in token_ids if token > 1 or not skip_special_tokens)


class OtherWords(Letters):
    """Encodes a word on its own into other tokens than the text makes of it."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return super().encode(text) if add_special_tokens else [9, 9]


def run(package: Package, prompt: Any, tokenizer: Any = None, **params: Any) -> tuple[Any, list[str]]:
    async def go() -> tuple[Any, list[str]]:
        llm = await asyncio.to_thread(package.llm, skip_tokenizer_init=False, tokenizer=tokenizer or Letters())
        given = package.root.SamplingParams(**params)
        result = llm.generate_async(prompt, sampling_params=given, streaming=True)
        texts = [part.outputs[0].text_diff async for part in result]
        assert given.end_id == 1 or "end_id" in params
        await asyncio.to_thread(llm.shutdown)
        return result, texts

    return asyncio.run(go())


def test_text_grows_with_the_tokens(double: Make) -> None:
    result, texts = run(double(), "abc")
    assert result.outputs[0].text == "abc"
    assert texts == ["a", "b", "c", ""]
    assert (result.prompt, result.prompt_token_ids) == ("abc", [2, 3, 4])


def test_stop_string_is_cut_from_the_ids_but_its_sent_part_stays_in_the_text(double: Make) -> None:
    result, texts = run(double(), "abcd", stop="bc")
    output = result.outputs[0]
    assert (output.token_ids, output.finish_reason, output.stop_reason) == ([2], "stop", "bc")
    assert (output.text, texts) == ("ab", ["a", "b", ""])


def test_stop_string_made_of_other_tokens_is_cut_from_the_text_alone(double: Make) -> None:
    result, texts = run(double(), "abcd", stop="bc", tokenizer=OtherWords())
    output = result.outputs[0]
    assert (output.text, output.finish_reason, output.stop_reason) == ("a", "stop", "bc")
    assert output.token_ids == [2, 3, 4]
    assert texts == ["a", "b", ""]
    assert result.finished
    assert result.aborted()


def test_stop_strings_with_an_end_id_are_never_encoded(double: Make) -> None:
    package = double()
    error: Any = package.module("executor").RequestError
    with pytest.raises(error, match="not tokenised"):
        run(package, "abcd", stop="bc", end_id=1)


def test_no_text_without_detokenisation(double: Make) -> None:
    result, _ = run(double(), "ab", detokenize=False)
    assert result.outputs[0].text == ""
    assert result.outputs[0].token_ids == [2, 3, 1]
