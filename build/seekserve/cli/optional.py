"""Commands whose libraries come with an extra say which one, instead of a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["needs_extra"]


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Around the late imports of a command; turns what is missing into MissingDependency."""
    try:
        yield
    except ModuleNotFoundError as error:
        from seekserve.errors import MissingDependency

        if (error.name or "").partition(".")[0] in ("seekserve", "seekserve_backend"):
            raise
        raise MissingDependency(
            f"this command needs {error.name}, which is not installed", hint=f"pip install 'seekserve[{extra}]'"
        ) from error
