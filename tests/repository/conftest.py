from __future__ import annotations

import sys
from pathlib import Path

# In importlib mode a test folder is not importable by itself; its toys are shared by several modules.
sys.path.insert(0, str(Path(__file__).parent))
