from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seekserve_backend.contract.refusal import ErrorCode, ErrorLine

TRITON_CODES = {"UNAVAILABLE", "INVALID_ARG", "CANCELLED", "INTERNAL"}

LINES = st.builds(
    ErrorLine,
    code=st.sampled_from(ErrorCode),
    reason=st.text(max_size=40),
    retry_after_ms=st.none() | st.integers(0, 10**9),
    request_id=st.text(max_size=20),
    field=st.none() | st.text(max_size=20),
)


@settings(deadline=None)
@given(
    line=LINES,
    before=st.sampled_from(["", "[request id: 7] ", "in ensemble 'x', "]),
    after=st.sampled_from(["", "\n", " (tail)"]),
)
def test_a_line_is_found_again_in_what_triton_makes_of_it(line: ErrorLine, before: str, after: str) -> None:
    text = line.to_line()
    assert "\n" not in text
    assert text.isascii()
    assert ErrorLine.from_message(before + text + after) == line


@pytest.mark.parametrize(
    "message",
    [
        "",
        "some other error",
        '{"code":',
        '{"code":"overloaded"}',
        '{"code":"nonsense","reason":"r","retry_after_ms":null,"request_id":""}',
        '{"code":"failed","reason":1,"retry_after_ms":null,"request_id":""}',
        '{"code":"failed","reason":"r","retry_after_ms":-5,"request_id":""}',
        '{"code":["failed"],"reason":"r","retry_after_ms":1,"request_id":""}',
    ],
)
def test_anything_else_is_no_line(message: str) -> None:
    assert ErrorLine.from_message(message) is None


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_travels_under_a_triton_status(code: ErrorCode) -> None:
    assert code.triton_code in TRITON_CODES
    assert code.is_refusal == (code.triton_code == "UNAVAILABLE")
