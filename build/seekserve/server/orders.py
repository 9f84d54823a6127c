"""The orders that a running launch takes and what it answers: JSON files in the `orders` folder of its run folder.

The run folder is its owner's alone (0700), so whoever can write there could end the launch as well; the key of the
repository API never leaves the launch. An order `ID.json` is written whole and renamed; the launch takes it away and
answers in `ID.result.json`, which grows from `running` to one of the final states.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from seekserve_backend.contract.fields import ContractError, Fields

__all__ = [
    "FINAL_STATES",
    "ORDERS_FOLDER",
    "SWAP_FILES",
    "WAYS",
    "OrderResult",
    "SwapOrder",
    "pending_orders",
    "read_results",
]

ORDERS_FOLDER = "orders"
ORDER_SCHEMA = 1
WAYS = ("side-by-side", "drain")
SWAP_FILES = ("config.pbtxt", "rendered.json")
"""What a swap may replace in a model's folder."""
FINAL_STATES = ("done", "failed", "refused")
"""done: the new variant serves; failed: it was tried, the old one serves; refused: nothing was tried."""
STATES = ("running", *FINAL_STATES)
_ORDER = re.compile(r"([0-9a-f]{12})\.json")
_RESULT = ".result.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapOrder:
    """Serve another bundle under the same name."""

    id: str
    model: str
    old_bundle_dir: str
    """What the model's config names now; an order that was made for another state is refused."""
    bundle_dir: str
    how: str
    """One of WAYS."""
    files: Mapping[str, str] = field(repr=False)
    """Of SWAP_FILES, name -> new text."""
    drain_timeout_s: float
    """For how long requests of the old variant may go on before they are failed."""
    load_timeout_s: float

    def write(self, run_dir: Path) -> Path:
        path = run_dir / ORDERS_FOLDER / f"{self.id}.json"
        _write_json(path, {"schema_version": ORDER_SCHEMA, "kind": "swap", **asdict(self), "files": dict(self.files)})
        return path

    @classmethod
    def read(cls, path: Path) -> SwapOrder:
        """Raises ContractError, with every fault, for a document of another kind, schema or form."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ContractError(path.name, [f"not JSON that can be read ({error})"]) from error
        fields = Fields(data, path.name)
        schema, kind = fields.raw("schema_version"), fields.raw("kind")
        if schema != ORDER_SCHEMA or kind != "swap":
            known = f"this launch takes the kind 'swap' of schema {ORDER_SCHEMA}"
            raise ContractError(path.name, [f"an order of kind {kind!r} and schema {schema!r}; {known}"])
        files = fields.mapping("files")
        if not set(files) <= set(SWAP_FILES) or not all(isinstance(text, str) for text in files.values()):
            fields.problem(f"files: only texts of {' and '.join(SWAP_FILES)} are taken, got {sorted(map(str, files))}")
        order = cls(
            id=fields.string("id"),
            model=fields.string("model"),
            old_bundle_dir=fields.string("old_bundle_dir"),
            bundle_dir=fields.string("bundle_dir"),
            how=fields.string("how", choices=WAYS),
            files={str(name): str(text) for name, text in files.items()},
            drain_timeout_s=fields.number("drain_timeout_s", low=0.0),
            load_timeout_s=fields.number("load_timeout_s", low=1.0),
        )
        if f"{order.id}.json" != path.name:
            fields.problem(f"id: {order.id!r} in a file called {path.name}")
        fields.done()
        return order


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderResult:
    id: str
    state: str
    """`running`, or one of FINAL_STATES."""
    text: str
    """One sentence: what goes on, or how it ended and why."""
    model: str = ""
    how: str = ""
    old_bundle_dir: str = ""
    bundle_dir: str = ""
    took_s: float = 0.0
    failed_requests: int = 0
    """Those that were still running on the old variant when the time was up, and were answered with an error."""

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES

    def write(self, run_dir: Path) -> None:
        _write_json(_result_path(run_dir, self.id), {"schema_version": ORDER_SCHEMA, **asdict(self)})

    @classmethod
    def read(cls, run_dir: Path, order_id: str) -> OrderResult | None:
        """None while there is none."""
        try:
            data: Any = json.loads(_result_path(run_dir, order_id).read_text(encoding="utf-8"))
            data.pop("schema_version")
            return cls(**data)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None


def pending_orders(run_dir: Path) -> list[Path]:
    """The oldest first; a file that is still being written has another name."""
    try:
        found = [path for path in (run_dir / ORDERS_FOLDER).iterdir() if _ORDER.fullmatch(path.name)]
        return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))
    except OSError:
        return []


def read_results(run_dir: Path) -> list[OrderResult]:
    names = sorted(path.name for path in (run_dir / ORDERS_FOLDER).glob(f"*{_RESULT}"))
    found = (OrderResult.read(run_dir, name.removesuffix(_RESULT)) for name in names)
    return [result for result in found if result is not None]


def _result_path(run_dir: Path, order_id: str) -> Path:
    return run_dir / ORDERS_FOLDER / f"{order_id}{_RESULT}"


def _write_json(path: Path, data: Mapping[str, object]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(data, file)
    temporary.replace(path)
