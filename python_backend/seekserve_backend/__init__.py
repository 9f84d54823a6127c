"""seekserve_backend: what runs inside tritonserver.

Arrows: `triton -> service -> {core, text, engines} -> contract`. `core`, `text` and `contract` are pure (standard
library only, no I/O besides the file readers of `contract`, no clock, no threads). This package never imports
`seekserve`.
"""

__version__ = "0.1.0"
