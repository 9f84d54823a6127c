"""FP8 block quantisation of a checkpoint and the way back: bounded memory, resumable, bit-exact with the formula.

`formula` is the definition, `kernel` and `native` compute it fast, `rules` says which tensors, `layout` lays the output
down, `convert` runs it. Nothing is ever left behind under the output's name but a whole checkpoint.
"""

from __future__ import annotations

from .convert import ConvertRequest, Listener, convert
from .report import ConvertReport

__all__ = ["ConvertReport", "ConvertRequest", "Listener", "convert"]
