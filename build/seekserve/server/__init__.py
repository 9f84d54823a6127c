"""Finding, launching, watching, draining and stopping tritonserver.

`Launch` is the one object that others use; everything else here serves it, `status`, `stop` or `doctor`. Nothing heavy
is imported until it is used.
"""

from __future__ import annotations

from seekserve.server.events import Event
from seekserve.server.launch import Launch
from seekserve.server.options import LaunchOptions

__all__ = ["Event", "Launch", "LaunchOptions"]
