"""Worker processes, where a test asks for them: real children that end with their parent, and whose loss is death.

They are started with sys.executable, as the package's own pool is; where that is no Python, construction fails.
"""

from __future__ import annotations

import subprocess
import sys

__all__ = ["Workers"]

_BODY = "import sys; print(1, flush=True); sys.stdin.read()"


class Workers:
    def __init__(self, count: int) -> None:
        """Raises RuntimeError where a worker does not come up."""
        self._children: list[subprocess.Popen[str]] = []
        try:
            for _ in range(count):
                self._children.append(self._start())
            for child in self._children:
                assert child.stdout is not None
                if child.stdout.readline() != "1\n":
                    raise OSError(f"{sys.executable!r} is no Python")
        except OSError as reason:
            self.close()
            raise RuntimeError("Executor worker died during initialization") from reason

    def are_alive(self) -> bool:
        return all(child.poll() is None for child in self._children)

    def close(self) -> None:
        for child in self._children:
            child.communicate()

    @staticmethod
    def _start() -> subprocess.Popen[str]:
        words = [sys.executable, "-I", "-S", "-c", _BODY]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
