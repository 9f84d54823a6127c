"""The Triton Python-based backend `seekserve`: wires Triton's calls to the service and nothing else.

Installed as `<backend-directory>/seekserve/model.py` beside a copy of the `seekserve_backend` package and
`version.json`. `execute` only copies bytes out and enqueues; it returns at once and never raises.
"""

import json
import site
import sys
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent


def _use_recorded_site_packages() -> None:
    """The stub of a pip-installed tritonserver knows no virtual environment: its packages come from version.json."""
    record = _HERE / "version.json"
    folder = json.loads(record.read_text(encoding="utf-8")).get("site_packages") if record.exists() else None
    if folder:
        sys.path.insert(0, folder)
        site.addsitedir(folder)
    # In front of that, so that this installed copy wins over one in the environment.
    sys.path.insert(0, str(_HERE))


_use_recorded_site_packages()

import triton_python_backend_utils as pb_utils  # noqa: E402

from seekserve_backend.triton.host import Host  # noqa: E402


class TritonPythonModel:
    """One instance of one deployment."""

    def initialize(self, args: dict[str, Any]) -> None:
        self._host = Host(args, pb_utils, installed_at=_HERE)
        self._host.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._host.take(request)

    def finalize(self) -> None:
        self._host.stop()
