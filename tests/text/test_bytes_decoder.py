from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seekserve_backend.text.bytes_decoder import IncrementalUtf8

# Whole characters of every length, their beginnings, and bytes that UTF-8 forbids, next to each other.
FRAGMENTS = st.one_of(
    st.text(max_size=4).map(str.encode),
    st.binary(max_size=3),
    st.sampled_from(
        [b"\xe2\x82", b"\xf0\x9f", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90", b"\xf5", b"\xed"]
    ),
)


@settings(deadline=None, max_examples=150)
@given(fragments=st.lists(FRAGMENTS, max_size=8), cuts=st.lists(st.integers(0, 40), max_size=12))
def test_any_chunking_equals_decoding_at_once(fragments: list[bytes], cuts: list[int]) -> None:
    data = b"".join(fragments)
    decoder, text, start = IncrementalUtf8(), "", 0
    for cut in [*sorted(min(c, len(data)) for c in cuts), len(data)]:
        text += decoder.feed(data[start:cut])
        start = cut
    assert text + decoder.flush() == data.decode("utf-8", "replace")


@settings(deadline=None)
@given(st.text(max_size=20))
def test_byte_by_byte_only_whole_characters_leave(text: str) -> None:
    decoder = IncrementalUtf8()
    for char in text.encode("utf-8", "replace").decode():
        *first, last = (decoder.feed(bytes([b])) for b in char.encode())
        assert "".join(first) == ""
        assert last == char
    assert decoder.flush() == ""


@pytest.mark.parametrize("tail", [b"\xe4", b"\xe4\xbd", b"\xf0\x9f\x98"])
def test_an_unfinished_character_is_replaced_at_the_end(tail: bytes) -> None:
    decoder = IncrementalUtf8()
    assert decoder.feed(b"ok" + tail) == "ok"
    assert decoder.flush() == "\ufffd"
    assert decoder.flush() == ""
