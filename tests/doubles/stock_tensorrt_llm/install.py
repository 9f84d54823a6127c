"""Puts the double into a model repository, with the tensors of the stock model, and reads what it wrote down."""

from __future__ import annotations

import json
import shutil
import sysconfig
from pathlib import Path
from typing import Any

from seekserve_backend.contract.stock_model import STOCK_INPUTS, STOCK_MODEL, STOCK_OUTPUTS, StockTensor

__all__ = ["StockDouble"]


class StockDouble:
    def __init__(self, repository: Path, *, name: str = STOCK_MODEL) -> None:
        self._version = repository / name / "1"
        self._version.mkdir(parents=True, exist_ok=True)
        # In place of what was rendered there: the same tensors, another backend.
        (repository / name / "config.pbtxt").write_text(_config(name))
        shutil.copy(Path(__file__).with_name("model.py"), self._version / "model.py")
        (self._version / "site_packages.txt").write_text(sysconfig.get_path("purelib"))
        self.control()

    def control(self, **settings: Any) -> None:
        """Holds for the requests that come from now on; what is not named is as by default."""
        draft = self._version / "control.json.tmp"
        draft.write_text(json.dumps(settings))
        draft.replace(self._version / "control.json")

    def journal(self, event: str | None = None) -> list[dict[str, Any]]:
        path = self._version / "journal.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in map(json.loads, lines) if event in (None, line["event"])]


def _config(name: str) -> str:
    parts = [f'name: "{name}"', 'backend: "python"', "max_batch_size: 64"]
    parts.append("model_transaction_policy { decoupled: true }")
    parts += [_tensor("input", each) for each in STOCK_INPUTS] + [_tensor("output", each) for each in STOCK_OUTPUTS]
    parts.append("instance_group { count: 1 kind: KIND_CPU }")
    return "\n".join(parts) + "\n"


def _tensor(kind: str, tensor: StockTensor) -> str:
    dims = ", ".join(map(str, tensor.dims))
    optional = "optional: true " if kind == "input" and tensor.is_optional else ""
    ragged = "allow_ragged_batch: true " if tensor.is_ragged else ""
    # A Python model may not reshape to nothing, so a scalar stays [1] there; what is sent over the wire is the same.
    return f'{kind} {{ name: "{tensor.name}" data_type: TYPE_{tensor.data_type} dims: [ {dims} ] {optional}{ragged}}}'
