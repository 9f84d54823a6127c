"""The texts of the control tokens of a conversation. Their ids differ between releases: they are looked up by text."""

from __future__ import annotations

__all__ = ["ASSISTANT", "BOS", "EOS", "SYSTEM", "USER"]

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
SYSTEM = "<｜System｜>"
"""V4.1 only."""
