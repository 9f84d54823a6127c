"""A launch that exists on disk only: its record, its run folder and its repository, and toy bundles."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.repository.toy_bundle import toy_bundle, write_bundle

from seekserve.repository.publish import RenderRequest, publish
from seekserve.server.orders import ORDERS_FOLDER
from seekserve.server.record import LaunchRecord, default_record_path, process_started_s
from seekserve.settings import Settings
from seekserve_backend.contract.bundle import Bundle, KvCache, Parallel, TrtllmSpec

BF16 = KvCache(dtype="bf16", block_tokens=32, capacity_blocks=1024, bytes_per_token=640)


def on_gpus(bundle: Bundle, *, tp: int = 1, version: str = "1.2.1") -> Bundle:
    return dataclasses.replace(
        bundle,
        engine="trtllm-pytorch",
        parallel=Parallel(tp=tp, gpus_per_node=8),
        trtllm=TrtllmSpec(version=version, model_dir="weights", start_timeout_s=1234.0),
    )


@dataclass
class Place:
    """The supervising process is this one, unless a record says otherwise."""

    root: Path

    @property
    def repository(self) -> Path:
        return self.root / "repo"

    @property
    def config(self) -> Path:
        return self.repository / "chat" / "config.pbtxt"

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    @property
    def env(self) -> Mapping[str, str]:
        return {"XDG_STATE_HOME": str(self.root / "state"), "HOME": str(self.root)}

    def bundle(self, variant: str, **changes: Any) -> Path:
        """As `build-engine --variant` names it."""
        base = changes.pop("base", None) or toy_bundle()
        sources = {"name": f"flag --name, --variant {variant}"}
        made = dataclasses.replace(base, **{"name": f"chat-{variant}", "sources": sources, **changes})
        return write_bundle(self.root / f"bundle-{variant}", made)

    def render(self, bundle: Path, name: str = "chat", **flags: Any) -> None:
        publish(RenderRequest(bundle=bundle, out=self.repository, name=name, **flags), Settings())

    def launch(self, **changes: Any) -> LaunchRecord:
        (self.run_dir / ORDERS_FOLDER).mkdir(parents=True, exist_ok=True)
        values: dict[str, Any] = {
            "id": "0badcafe",
            "state": "ready",
            "pid": os.getpid(),
            "pid_started_s": process_started_s(os.getpid()),
            "server_pid": None,
            "server_started_s": None,
            "repository": str(self.repository),
            "models": ("chat",),
            "http_url": "http://127.0.0.1:1",
            "grpc_url": "127.0.0.1:1",
            "metrics_url": "http://127.0.0.1:1/metrics",
            "shm_prefix": "seekserve_0badcafe_",
            "run_dir": str(self.run_dir),
            "log_file": str(self.root / "log"),
            "exit_timeout_s": 30,
            "restarts": 0,
            "started_s": 0.0,
            **changes,
        }
        record = LaunchRecord(paths=(str(default_record_path(values["id"], self.env)),), **values)
        record.write()
        return record
