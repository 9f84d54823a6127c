"""LaunchOptions from what the user said: flag over seekserve.yaml over default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from seekserve.errors import InputError
from seekserve.output import problems_text
from seekserve.plan.plan import Unset
from seekserve.server.options import LaunchOptions
from seekserve.settings import Settings

__all__ = ["choose_options"]


def choose_options(flags: Mapping[str, Any], settings: Settings) -> LaunchOptions:
    """`flags`: fields of LaunchOptions; None means that the flag was not given."""
    server, paths = settings.server, settings.paths
    from_file = {
        "repository": paths.repository,
        "backend_dir": paths.backends,
        "host": server.host,
        "http_port": server.http_port,
        "grpc_port": server.grpc_port,
        "metrics_port": server.metrics_port,
    }
    values: dict[str, Any] = {name: value for name, value in from_file.items() if not isinstance(value, Unset)}
    values.update((name, value) for name, value in flags.items() if value is not None)
    endless = [name for name, value in values.items() if isinstance(value, float) and not math.isfinite(value)]
    if endless:
        problems = [f"--{name.replace('_', '-')} is {values[name]}, which is no number of seconds" for name in endless]
        raise InputError(problems_text("launch", problems))
    where = settings.path or "seekserve.yaml"
    for name, flag, key in (("repository", "REPOSITORY", "repository"), ("backend_dir", "--backend-dir", "backends")):
        if name not in values:
            raise InputError(f"launch: {flag} was not given, and {where} sets no paths.{key}; one of them is needed")
    return LaunchOptions(**values)
