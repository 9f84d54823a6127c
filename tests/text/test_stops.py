from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seekserve_backend.text.stops import StopMatcher


def run(stops: list[str], chunks: list[str]) -> tuple[str, str | None]:
    matcher, text, stop = StopMatcher(stops), "", None
    for chunk in chunks:
        shown, found = matcher.feed(chunk)
        assert stop is None or (shown, found) == ("", None), "something came after the stop"
        text += shown
        stop = stop or found
    shown, found = matcher.flush()
    return text + shown, stop or found


def search(stops: list[str], text: str) -> tuple[str, str | None]:
    """The plain meaning: the stop that begins first, of those the longest."""
    for start in range(len(text)):
        hits = [s for s in stops if s and text.startswith(s, start)]
        if hits:
            return text[:start], max(hits, key=len)
    return text, None


def cut(text: str, at: list[int]) -> list[str]:
    edges = [0, *sorted(min(c, len(text)) for c in at), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


@pytest.mark.parametrize(
    ("stops", "chunks", "shown", "stop"),
    [
        ([], ["abc"], "abc", None),
        (["", ""], ["abc"], "abc", None),
        (["END"], ["abcEND", "x"], "abc", "END"),
        (["END"], ["abcE", "N", "Dx"], "abc", "END"),
        (["END"], ["abcE", "N", "x"], "abcENx", None),
        (["END"], ["abcEN"], "abcEN", None),
        (["END"], ["END"], "", "END"),
        (["b", "ab"], ["xab"], "x", "ab"),  # begins first
        (["ab", "abc"], ["xab", "c"], "x", "abc"),  # begin together: the longest
        (["ab", "abc"], ["xab", "d"], "x", "ab"),
        (["ab", "abc"], ["xab"], "x", "ab"),
        (["abcd", "bc"], ["abc", "x"], "a", "bc"),  # the earlier one came to nothing
        (["abcd", "bc"], ["abc", "d"], "", "abcd"),
        (["aab"], ["aaa", "ab"], "aa", "aab"),  # a beginning inside a beginning
        (["\n\n"], ["a\n", "b\n", "\nc"], "a\nb", "\n\n"),
        (["你好"], ["说你", "好吗"], "说", "你好"),
    ],
)
def test_what_is_shown_and_what_stops(stops: list[str], chunks: list[str], shown: str, stop: str | None) -> None:
    assert run(stops, chunks) == (shown, stop)


def test_text_that_cannot_become_a_stop_is_shown_at_once() -> None:
    matcher = StopMatcher(["END"])
    assert matcher.feed("abE") == ("ab", None)
    assert matcher.feed("x") == ("Ex", None)
    assert matcher.feed("ENE") == ("EN", None)
    assert matcher.flush() == ("E", None)


def test_without_stops_nothing_is_ever_held() -> None:
    assert StopMatcher([]).feed("anything") == ("anything", None)


WORDS = st.text("ab", max_size=5)


@settings(deadline=None, max_examples=250)
@given(
    stops=st.lists(WORDS, max_size=4),
    text=st.text("abc", max_size=30),
    at=st.lists(st.integers(0, 30), max_size=30),
)
def test_chunks_do_not_matter(stops: list[str], text: str, at: list[int]) -> None:
    assert run(stops, cut(text, at)) == search(stops, text)


@settings(deadline=None, max_examples=100)
@given(stops=st.lists(WORDS, max_size=4), text=st.text("abc", max_size=20))
def test_no_more_is_held_than_the_longest_stop_lacks(stops: list[str], text: str) -> None:
    matcher, fed, shown = StopMatcher(stops), "", ""
    longest = max(map(len, stops), default=0)
    for char in text:
        new, found = matcher.feed(char)
        fed, shown = fed + char, shown + new
        if found is not None:
            break
        held = fed[len(shown) :]
        assert fed.startswith(shown)
        assert held == "" or any(s.startswith(held) and len(s) > len(held) for s in stops)
        assert len(held) < max(longest, 1)
