"""What responses of the stock model mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seekserve_backend.engines.triton_bls.faults import Fault, fault_of
from seekserve_backend.engines.triton_bls.outputs import Piece, read_piece
from seekserve_backend.engines.triton_bls.vocabulary import end_ids, vocabulary_size


def ids(*beams: list[int], **more: Any) -> dict[str, Any]:
    return {"output_ids": [list(beams)], "sequence_length": [[len(beam) for beam in beams]], **more}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, None),
        (ids([]), Piece()),
        (ids([7]), Piece(token_ids=(7,))),
        (ids([7, 8, 9]), Piece(token_ids=(7, 8, 9))),
        (ids([7, 1]), Piece(token_ids=(7,), is_stopped=True)),
        (ids([1]), Piece(is_stopped=True)),
        (ids([7, 2, 9, 1]), Piece(token_ids=(7,), is_stopped=True)),
        # The best beam is the first; shorter ones are filled up.
        ({"output_ids": [[[7, 8, -1], [4, 5, 6]]], "sequence_length": [[2, 3]]}, Piece(token_ids=(7, 8))),
        # Only the new tokens, but all log probabilities so far.
        (ids([7], output_log_probs=[[[-3.0, -2.0, -1.0]]]), Piece(token_ids=(7,), logprobs=(-1.0,))),
        (ids([7, 8], output_log_probs=[[[-2.0, -1.0]]]), Piece(token_ids=(7, 8), logprobs=(-2.0, -1.0))),
        (ids([7, 1], output_log_probs=[[[-2.0, -1.0]]]), Piece(token_ids=(7,), logprobs=(-2.0,), is_stopped=True)),
        (ids([7, 8], output_log_probs=[[[-1.0]]]), Piece(token_ids=(7, 8))),
        (ids([], output_log_probs=[[[-1.0]]]), Piece()),
    ],
)
def test_a_response_is_read_up_to_its_stop_id(values: dict[str, Any], expected: Piece | None) -> None:
    assert read_piece(values, {1, 2}) == expected


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Exceeds maximum queue size", Fault.FULL),
        ("Maximum queue size of 4 has been reached, please try again later", Fault.FULL),
        ("Request timeout expired", Fault.TIMED_OUT),
        ("Stub process 'tensorrt_llm_0_0' is not healthy.", Fault.GONE),
        ("Failed for execute the inference request. Model 'tensorrt_llm' is not ready.", Fault.GONE),
        ("Request for unknown model: 'tensorrt_llm' is not found", Fault.GONE),
        ("Request for unknown model: 'tensorrt_llm' has no available versions", Fault.GONE),
        ("[request id: a] unexpected shape for input 'end_id' for model 'm'. Expected [-1,1], got [1]", Fault.INVALID),
        ("Prompt length (9) exceeds maximum input length (8).", Fault.INVALID),
        ("EndId (500) is not within acceptable range [-1, 100).", Fault.INVALID),
        ("Executor failed process requestId 7 due to the following error: CUDA out of memory", Fault.OTHER),
        ("", Fault.OTHER),
    ],
)
def test_errors_are_told_apart_by_their_words(text: str, fault: Fault) -> None:
    assert fault_of(text) is fault


def write(folder: Path, files: dict[str, Any]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(data))
    return folder


TOKENIZER = {"added_tokens": [{"id": 100, "content": "<end>"}], "model": {"vocab": {"a": 0, "b": 1}}}


@pytest.mark.parametrize(
    ("files", "ids", "size"),
    [
        ({"weights/generation_config.json": {"eos_token_id": 5}, "weights/config.json": {"vocab_size": 9}}, (5,), 9),
        ({"weights/generation_config.json": {"eos_token_id": [5, 6]}}, (5, 6), 101),
        ({"weights/config.json": {"eos_token_id": 4, "vocab_size": 9}}, (4,), 9),
        ({"engine/config.json": {"pretrained_config": {"vocab_size": 12}}}, (100,), 12),
        ({"tokenizer/tokenizer_config.json": {"eos_token": {"content": "<end>"}}}, (100,), 101),
    ],
)
def test_end_ids_and_size_come_from_the_best_file_there_is(
    tmp_path: Path, files: dict[str, Any], ids: tuple[int, ...], size: int
) -> None:
    base = {"tokenizer/tokenizer.json": TOKENIZER, "tokenizer/tokenizer_config.json": {"eos_token": "<end>"}}
    bundle = write(tmp_path, {**base, **files})
    assert (end_ids(bundle), vocabulary_size(bundle)) == (ids, size)


def test_a_bundle_that_names_no_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="names an end id; build"):
        end_ids(write(tmp_path, {"tokenizer/tokenizer.json": TOKENIZER}))
    with pytest.raises(ValueError, match="no vocabulary"):
        vocabulary_size(tmp_path / "nothing")
