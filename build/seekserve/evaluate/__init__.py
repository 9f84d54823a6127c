"""How often a build answers right: task files asked of a bundle or a running server, two builds side by side.

Decides whether a drop is too large; changes nothing on disk. Imports neither torch nor gRPC by itself: the modules that
run an engine or speak to a server are imported when a target needs them.
"""

from __future__ import annotations

from seekserve.evaluate.run import EvaluateRequest, Evaluation, evaluate

__all__ = ["EvaluateRequest", "Evaluation", "evaluate"]
