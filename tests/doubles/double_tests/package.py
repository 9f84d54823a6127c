"""Imports the double afresh for one profile, and takes it out again. The double reads its environment when imported."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOUBLES = Path(__file__).resolve().parent.parent
PROFILES = ("1.2.1", "1.3.0rc20", "1.4.0rc4")
END = 1


@dataclass(frozen=True, kw_only=True)
class Package:
    """The imported double with what its tests need."""

    root: Any
    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "model"

    def module(self, name: str) -> Any:
        return importlib.import_module(f"tensorrt_llm.{name}" if name else "tensorrt_llm")

    def llm(self, **args: Any) -> Any:
        given = {"skip_tokenizer_init": True, "kv_cache_config": {"tokens_per_block": 4, "max_tokens": 400}, **args}
        return self.root.LLM(model=str(self.model), **given)

    def params(self, **given: Any) -> Any:
        return self.root.SamplingParams(**{"end_id": END, "max_tokens": 50, **given})

    def order(self, **behaviour: Any) -> None:
        """Replaces the control file."""
        draft = self.folder / "control.new"
        draft.write_text(json.dumps(behaviour), encoding="utf-8")
        draft.replace(self.folder / "control.json")

    def violations(self) -> list[str]:
        path = self.folder / "violations.jsonl"
        return [json.loads(line)["rule"] for line in path.read_text().splitlines()] if path.exists() else []


@contextlib.contextmanager
def imported(
    folder: Path, profile: str = "1.2.1", behaviour: Mapping[str, Any] | None = None, **environ: str
) -> Iterator[Package]:
    settings = {
        "DOUBLE_TRTLLM_PROFILE": profile,
        "DOUBLE_TRTLLM_CONTROL": str(folder / "control.json"),
        "DOUBLE_TRTLLM_VIOLATIONS": str(folder / "violations.jsonl"),
        "DOUBLE_TRTLLM_BEHAVIOUR": json.dumps(
            {"step_ms": 1, "construct_s": 0, "stats_delay_s": 0.02, **(behaviour or {})}
        ),
        **environ,
    }
    write_model(folder / "model")
    before, hook = dict(os.environ), sys.excepthook
    os.environ.update(settings)
    sys.path.insert(0, str(DOUBLES))
    try:
        _forget()
        yield Package(root=importlib.import_module("tensorrt_llm"), folder=folder)
    finally:
        _forget()
        sys.path.remove(str(DOUBLES))
        sys.excepthook = hook
        os.environ.clear()
        os.environ.update(before)


def write_model(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"max_position_embeddings": 512, "vocab_size": 1000, "eos_token_id": 1}')
    (folder / "model.safetensors").touch()


def write_engine(folder: Path, version: str, *, tp: int = 1, **build: Any) -> Path:
    folder.mkdir(exist_ok=True)
    config = {
        "version": version,
        "pretrained_config": {"mapping": {"tp_size": tp, "pp_size": 1, "cp_size": 1}, "vocab_size": 1000},
        "build_config": {
            "max_seq_len": 128,
            "max_batch_size": 4,
            "max_num_tokens": 64,
            "max_beam_width": 1,
            "plugin_config": {"tokens_per_block": 8},
            **build,
        },
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for rank in range(tp):
        (folder / f"rank{rank}.engine").touch()
    return folder


def _forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorrt_llm"]:
        del sys.modules[name]
