"""`seekserve check`: everything that can be known to be wrong with a model repository before a server loads it.

Works on any repository, ours or not: structure, Triton's schema, what the schema cannot see, and the files that the
configurations name. Reads, never writes; each finding names file and line.
"""

from __future__ import annotations

from .check import check_repository
from .finding import RepositoryFinding
from .report import CheckReport

__all__ = ["CheckReport", "RepositoryFinding", "check_repository"]
