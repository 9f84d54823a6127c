"""The double's command lines against the table of flags: both were written from the sources, each by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.trtllm_engine.machine import DOUBLE, machine

from seekserve.trtllm.tables import table

EXAMPLES = DOUBLE / "examples"
TOOLS = {
    "trtllm-build": DOUBLE / "bin" / "trtllm-build",
    "convert-deepseek-v1": EXAMPLES / "models/contrib/deepseek_v1/convert_checkpoint.py",
    "convert-deepseek-v2": EXAMPLES / "models/contrib/deepseek_v2/convert_checkpoint.py",
    "convert-qwen": EXAMPLES / "models/core/qwen/convert_checkpoint.py",
    "convert-llama": EXAMPLES / "models/core/llama/convert_checkpoint.py",
    "quantize": EXAMPLES / "quantization/quantize.py",
}
REQUIRED = {
    "convert-deepseek-v1": ["--model_dir", "x", "--output_dir", "y"],
    "convert-deepseek-v2": ["--model_dir", "x", "--output_dir", "y"],
    "convert-qwen": ["--model_dir", "x"],
}


def call(tool: str, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(TOOLS[tool]), *REQUIRED.get(tool, []), *args]
    return subprocess.run(argv, env=dict(machine().environ), capture_output=True, text=True, check=False)


@pytest.mark.parametrize("tool", TOOLS)
def test_the_double_knows_exactly_the_flags_of_the_table(tool: str) -> None:
    text = call(tool, "--help").stdout
    words = {word.strip("[],=") for word in text.replace("\n", " ").split() if word.lstrip("[").startswith("--")}
    flags = {word.removeprefix("--") for word in words} - {"help"}
    known = {name for name, entry in table("tools", tool).items() if not entry.removed}
    assert flags == known


@pytest.mark.parametrize("tool", TOOLS)
def test_an_unknown_flag_ends_as_argparse_ends(tool: str) -> None:
    answer = call(tool, "--no_such_flag", "1")
    assert answer.returncode == 2
    assert "unrecognized arguments: --no_such_flag 1" in answer.stderr


def test_the_builder_s_default_length_is_the_trap_it_is(tmp_path: Path) -> None:
    """163,840 positions of a model whose YaRN factor is 40."""
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    config = {
        "architecture": "DeepseekV2ForCausalLM",
        "dtype": "bfloat16",
        "max_position_embeddings": 163840,
        "rotary_scaling": {"type": "yarn", "factor": 40},
        "mapping": {"world_size": 1, "tp_size": 1, "pp_size": 1},
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
    }
    (checkpoint / "config.json").write_text(json.dumps(config))
    (checkpoint / "rank0.safetensors").write_bytes(b"x")
    out, cache = str(tmp_path / "engine"), str(tmp_path / "timing")
    answer = call(
        "trtllm-build", "--checkpoint_dir", str(checkpoint), "--output_dir", out, "--output_timing_cache", cache
    )
    assert answer.returncode == 0, answer.stderr
    built = json.loads((tmp_path / "engine" / "config.json").read_text())
    assert built["build_config"]["max_seq_len"] == 6_553_600
