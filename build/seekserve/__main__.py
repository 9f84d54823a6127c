"""`python -m seekserve`, for where the console script is not on the path."""

from __future__ import annotations

from seekserve.cli import main

main()
