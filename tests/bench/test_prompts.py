from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seekserve.data
from seekserve.bench.prompts import Lengths, Prompts, Vocabulary, read_vocabulary
from seekserve.errors import InputError
from seekserve.simulate.records import Arrival

TINY = Path(next(iter(seekserve.data.__path__))) / "tiny_deepseek_v3"


def arrival(prompt_tokens: int, *, output_tokens: int = 7, blocks: tuple[int, ...] = ()) -> Arrival:
    return Arrival(0.0, prompt_tokens, output_tokens, "interactive", 100, blocks=blocks)


@given(st.integers(1, 3000), st.booleans())
def test_a_prompt_has_the_wanted_length_with_what_the_server_adds(length: int, adds_bos: bool) -> None:
    request = Prompts(Vocabulary(range(5, 90), adds_bos=adds_bos), seed=1).request_for(arrival(length), stream=True)
    assert request.input_ids is not None
    assert len(request.input_ids) == max(1, length - adds_bos)
    assert set(request.input_ids) <= set(range(5, 90))


def test_the_vocabulary_of_a_checkpoint_holds_no_control_token() -> None:
    data = json.loads((TINY / "tokenizer.json").read_text("utf-8"))
    control = {entry["id"] for entry in data["added_tokens"]}
    assert control
    assert not control & set(read_vocabulary(TINY).ids)


def test_equal_blocks_are_equal_prompts_and_other_blocks_are_not() -> None:
    prompts = Prompts(Vocabulary(range(1000)), seed=3)
    one, two, three = (
        list(prompts.request_for(arrival(1300, blocks=blocks), stream=True).input_ids or ())
        for blocks in ((11, 12), (11, 13), (14, 12))
    )
    assert one[:512] == two[:512] != three[:512]
    assert one[512:1024] == three[512:1024] != two[512:1024]
    assert one[1024:] != three[1024:]


def test_a_prompt_shorter_than_its_blocks_is_cut() -> None:
    request = Prompts(Vocabulary(range(9)), seed=0).request_for(arrival(700, blocks=(1, 2)), stream=True)
    assert len(request.input_ids or ()) == 700


def test_the_same_seed_gives_the_same_prompts() -> None:
    vocabulary = Vocabulary(range(1000))
    twice = [Prompts(vocabulary, seed=5).request_for(arrival(50), stream=True) for _ in range(2)]
    assert twice[0] == twice[1]
    assert Prompts(vocabulary, seed=6).request_for(arrival(50), stream=True) != twice[0]


@pytest.mark.parametrize(
    ("lengths", "max_tokens", "min_tokens"),
    [(Lengths.MAX, 7, 7), (Lengths.MIN, 100, 7), (Lengths.FREE, 100, None)],
)
def test_how_an_answer_gets_its_length(lengths: Lengths, max_tokens: int, min_tokens: int | None) -> None:
    request = Prompts(None, seed=0, lengths=lengths).request_for(arrival(5), stream=False)
    assert (request.max_tokens, request.min_tokens) == (max_tokens, min_tokens)
    assert len((request.prompt or "").split()) == 5
    assert request.stream is False


@pytest.mark.parametrize("text", [None, "", "{}", '{"model": {"vocab": {}}}', '{"model": 3}'])
def test_a_folder_without_a_usable_tokenizer_is_bad_input(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        read_vocabulary(tmp_path)
