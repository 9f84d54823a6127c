"""How busy the GPUs are, where `nvidia-smi` is there to say so."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

__all__ = ["Utilisation", "read_percent", "watched"]

_EVERY_S = 1.0


@dataclass(slots=True)
class Utilisation:
    percent: list[float] = field(default_factory=list)
    """One mean over all GPUs for each look."""

    @property
    def mean_percent(self) -> float | None:
        return sum(self.percent) / len(self.percent) if self.percent else None


def read_percent(text: str) -> float | None:
    """Mean of one number a line; GPUs that report none ("[N/A]") are left out."""
    found = [float(line) for line in text.split("\n") if line.strip().replace(".", "", 1).isdigit()]
    return sum(found) / len(found) if found else None


@asynccontextmanager
async def watched() -> AsyncIterator[Utilisation]:
    """Looks once a second until the block ends; finds nothing on a machine without a GPU."""
    found = Utilisation()
    tool = shutil.which("nvidia-smi")
    task = asyncio.create_task(_look(tool, found)) if tool else None
    try:
        yield found
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _look(tool: str, found: Utilisation) -> None:
    while True:
        process = await asyncio.create_subprocess_exec(
            tool,
            "--query-gpu=utilization.gpu",
            "--format=csv,noheader,nounits",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        out, _ = await process.communicate()
        percent = read_percent(out.decode("utf-8", "replace"))
        if percent is not None:
            found.percent.append(percent)
        await asyncio.sleep(_EVERY_S)
