"""`seekserve calibrate` on the tiny checkpoint's bundle, and on a synthetic engine that knows its own step model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seekserve.calibrate.fit import fit_steps, relative_errors
from seekserve.calibrate.reference import measure_steps
from seekserve.data import tiny_checkpoint_folder
from seekserve_backend.contract.bundle import Bundle
from seekserve_backend.contract.step_model import StepModel
from seekserve_backend.engines.port import EngineInfo
from seekserve_backend.engines.synthetic import Pace, SyntheticEngine

TRUE = StepModel(
    base_points=((1, 10.0), (8, 12.0), (64, 20.0), (600, 90.0)),
    kv_read_ms_per_token=2e-3,
    attention_ms_per_token2=3e-5,
    source="true",
)


class NoTime(Pace):
    def wait(self, step_ms: float) -> float:
        return step_ms


def run(*args: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "seekserve", *map(str, args)], capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


def test_an_engine_that_follows_a_model_gives_that_model_back() -> None:
    info = EngineInfo(
        kind="synthetic",
        max_seq_len_tokens=4096,
        max_batch_size=8,
        block_tokens=32,
        kv_total_blocks=512,
        vocab_size=99,
        eos_ids=(),
    )
    engine = SyntheticEngine(info, token_id=1, chunk_tokens=256, step_model=TRUE, pace=NoTime())
    samples = measure_steps(engine, progress=lambda _done, _total: None)
    assert engine.stats().running == 0
    assert engine.stats().kv_free_blocks == info.kv_total_blocks
    fit = fit_steps(samples, source="")
    assert fit.median_error < 0.05
    assert max(relative_errors(TRUE, samples)) < 1e-9, "what was in each step is told exactly"


def write_log(path: Path, steps: int) -> Path:
    rows = [
        {"decode_tokens": 1 + n % 8, "kv_tokens": 10 * n, "chunks": [], "step_ms": 10.0 + n % 8} for n in range(steps)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.needs_local
def test_the_tiny_bundle_gets_its_own_model(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    bundle = tmp_path / "bundle"
    checkpoint = tiny_checkpoint_folder()
    code, _, err = run("build-engine", checkpoint, "--out", bundle, "--max-batch-size", 2, "--max-seq-len", 128)
    assert code == 0, err
    before = (bundle / "bundle.json").read_bytes()
    code, out, err = run("calibrate", bundle, "--samples", write_log(tmp_path / "log", 100))
    assert (code, err) == (0, "")
    assert "the bundle had no step model\nnot written" in out
    assert (bundle / "bundle.json").read_bytes() == before
    code, out, err = run("calibrate", bundle, "--write", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    kept = Bundle.load(bundle).step_model
    assert kept is not None
    assert kept.to_json() == told["step_model"]
    assert told["before"] is None
    code, out, err = run("calibrate", bundle, "--samples", write_log(tmp_path / "short", 20), "--write")
    assert (code, out) == (2, "")
    assert "at least 30 steps" in err
    assert Bundle.load(bundle).step_model == kept
