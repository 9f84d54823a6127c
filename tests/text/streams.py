"""Cuts of a text into chunks, for the properties of what reads streams."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st


def cut(text: str, at: list[int]) -> list[str]:
    edges = [0, *sorted(min(c, len(text)) for c in at), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


def chunks_of(parts: list[str], *, max_parts: int = 12) -> st.SearchStrategy[tuple[str, list[str]]]:
    """A text put together of `parts`, and the same text in chunks."""
    texts = st.lists(st.sampled_from(parts), max_size=max_parts).map("".join)
    return texts.flatmap(
        lambda text: st.lists(st.integers(0, len(text)), max_size=12).map(lambda at: (text, cut(text, at)))
    )
