"""Which model a client means when it names none: the one that the launch record of this URL holds.

The repository index of a server launched by this toolkit is restricted to the launcher, so the record in the state
folder is asked first. Reading is lenient: a record that is damaged, foreign or from another version is passed over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seekserve.errors import InputError

__all__ = ["launched_metrics_url", "launched_models", "only_model", "state_folder"]


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    base = environment.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "seekserve" / "launches"


def launched_models(target: str, folder: Path) -> tuple[str, ...]:
    """Models of the newest launch on this gRPC address; empty when no record knows it."""
    return _names(_newest_record(target, folder))


def launched_metrics_url(target: str, folder: Path) -> str | None:
    """Where the newest launch on this gRPC address shows its metrics; None when no record says so."""
    url = _newest_record(target, folder).get("metrics_url")
    return url if isinstance(url, str) and url else None


def _newest_record(target: str, folder: Path) -> Mapping[str, Any]:
    found: list[tuple[float, Path, Mapping[str, Any]]] = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            age = path.stat().st_mtime
        except (OSError, ValueError):
            continue
        if isinstance(record, dict) and _address(str(record.get("grpc_url", ""))) == _address(target):
            found.append((age, path, record))
    return max(found, key=lambda entry: entry[:2])[2] if found else {}


def _names(record: Mapping[str, Any]) -> tuple[str, ...]:
    models = record.get("models", record.get("model", []))
    items = models if isinstance(models, list) else [models]
    names = [item.get("name") if isinstance(item, dict) else item for item in items]
    return tuple(name for name in names if isinstance(name, str) and name)


def _address(url: str) -> str:
    host, _, port = url.rpartition("://")[2].rstrip("/").rpartition(":")
    return f"{'127.0.0.1' if host in ('localhost', '0.0.0.0', '[::1]', '[::]') else host}:{port}"


def only_model(names: Sequence[str], url: str, why_none: str = "") -> str:
    """The one name, or InputError that names `--model` and the candidates."""
    if len(names) == 1:
        return names[0]
    if names:
        raise InputError(f"{url} serves {len(names)} models ({', '.join(names)}); name one with --model")
    raise InputError(
        f"which model at {url}? No launch record of this machine knows the address{why_none}",
        hint="name it with --model NAME",
    )
