"""What stands in the folder of a built engine, and whether it is the one that a bundle describes."""

from __future__ import annotations

from .config import ENGINE_CONFIG, read_engine_config
from .facts import EngineFacts
from .faults import engine_faults, missing_engines

__all__ = ["ENGINE_CONFIG", "EngineFacts", "engine_faults", "missing_engines", "read_engine_config"]
