from __future__ import annotations

import sys
from pathlib import Path

# In importlib mode a test folder is not importable by itself; the toy checkpoints are those of tests/checkpoint.
sys.path.insert(0, str(Path(__file__).parent.parent / "checkpoint"))
