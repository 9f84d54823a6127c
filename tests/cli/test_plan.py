"""`seekserve plan` as a command: exit codes, both streams, JSON, and options for every input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from seekserve.cli.plan import PRESETS, PROFILES, QUANTIZE, command
from seekserve.errors import ConflictError, DoesNotFit, InputError, SeekserveError
from seekserve.plan import curated
from seekserve.plan.presets import preset_names
from seekserve.plan.quantised import QUANTISED_WEIGHTS
from seekserve.plan.target import ALL_FIELDS

CONFIGS = Path(__file__).parents[1] / "checkpoint" / "configs"
V3 = str(CONFIGS / "deepseek-v3.json")


def run(*arguments: str) -> tuple[str, SeekserveError | None]:
    """Standard output and the error that the group would print."""
    result: Result = CliRunner().invoke(command, list(arguments), standalone_mode=False)
    if result.exception is not None and not isinstance(result.exception, SeekserveError):
        raise result.exception
    return result.stdout, result.exception


def test_v3_on_eight_h200_is_a_plan() -> None:
    out, error = run(V3, "--gpu", "h200_sxm", "--gpus", "8")
    assert error is None
    for words in ("DeepSeek-V3", "TP 8, EP 8", "79.29 GiB", "35,136 B in fp8_e4m3", "0 errors"):
        assert words in out


def test_what_does_not_fit_prints_the_report_and_exits_3() -> None:
    out, error = run(V3, "--gpu", "h200_sxm", "--gpus", "2")
    assert isinstance(error, DoesNotFit)
    assert error.exit_code == 3
    assert "NO PLAN" in out
    assert "smallest that would: 8 x h200-sxm-141gb" in str(error)


def test_json_is_whole_when_it_does_not_fit() -> None:
    out, error = run(V3, "--gpu", "a100-80", "--gpus", "8", "--json")
    report: dict[str, Any] = json.loads(out)
    assert isinstance(error, ConflictError)
    assert report["fits"] is False
    assert "precision-hardware" in {finding["code"] for finding in report["findings"]}


def test_a_wrong_name_exits_2_and_prints_nothing() -> None:
    out, error = run(V3, "--gpu", "h201")
    assert isinstance(error, InputError)
    assert error.exit_code == 2
    assert out == ""


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--against", "x.json"], "give --price-per-gpu-hour too"),
        (["--one-off-cost", "5"], "give --against too"),
        (["--price-per-gpu-hour", "0"], "--price-per-gpu-hour must be above 0"),
        (["--slo-tpot-ms", "-1"], "--slo-tpot-ms must be above 0"),
        (["--topology", "none.txt"], "cannot read none.txt"),
        (["--beside", "none.json"], "cannot read none.json"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: list[str], what: str) -> None:
    _, error = run(V3, "--gpu", "h200", *arguments)
    assert isinstance(error, InputError)
    assert what in str(error)


def test_costs_before_and_after_come_from_two_plans(tmp_path: Path) -> None:
    price = ["--price-per-gpu-hour", "3"]
    saved, error = run(V3, "--gpu", "h200", "--gpus", "8", *price, "--json")
    assert error is None
    (tmp_path / "before.json").write_text(saved, encoding="utf-8")
    against = ["--against", str(tmp_path / "before.json"), "--one-off-cost", "1000"]
    out, error = run(V3, "--gpu", "b200", "--gpus", "8", *price, *against)
    assert error is None
    assert "Cost per million generated tokens" in out
    assert "million tokens" in out
    assert "per 1M tokens" in out


def test_two_engines_on_one_gpu_are_refused_when_they_promise_it_twice(tmp_path: Path) -> None:
    small = str(CONFIGS / "r1-distill-qwen-1.5b.json")
    saved, _ = run(small, "--gpu", "h100", "--gpus", "1", "--json")
    (tmp_path / "first.json").write_text(saved, encoding="utf-8")
    _, error = run(small, "--gpu", "h100", "--gpus", "1", "--beside", str(tmp_path / "first.json"))
    assert isinstance(error, DoesNotFit)
    assert "promised twice" in str(error)


def test_explain_and_preset_print_reasons() -> None:
    out, error = run(V3, "--gpu", "h200", "--gpus", "8", "--preset", "latency", "--explain")
    assert error is None
    assert re.search(r"limits\.max_batch_size +8  \(preset latency\)", out)
    assert "rule: batch 8 for a latency service" in out


def test_a_profile_gives_settings_and_explain_prints_the_guides_arguments() -> None:
    out, error = run(V3, "--gpu", "h200", "--gpus", "8", "--profile", "throughput", "--explain")
    assert error is None
    assert re.search(r"limits\.max_num_tokens +3200  \(preset deepseek-r1-throughput-hopper \(examples/", out)
    assert re.search(r"stream_interval +10  \(examples/configs/curated/deepseek-r1-throughput\.yaml", out)
    assert re.search(r"moe_config\.backend +CUTLASS  \(", out)
    _, error = run(V3, "--gpu", "h200", "--profile", "throughput", "--preset", "latency")
    assert isinstance(error, InputError)


def test_plain_weights_are_planned_as_the_engine_will_hold_them() -> None:
    qwen = str(CONFIGS / "r1-distill-qwen-7b.json")
    flags = ("--gpu", "l40s", "--gpus", "1", "--engine", "trtllm-engine")
    plain, small = (json.loads(run(qwen, *flags, *more, "--json")[0]) for more in ((), ("--quantize", "w4a8_awq")))
    assert (plain["weights"]["precision"], small["weights"]["precision"]) == ("bf16", "w4a8_awq")
    assert small["weights"]["bytes"] < 0.5 * plain["weights"]["bytes"]
    assert (plain["kv_cache"]["dtype"], small["kv_cache"]["dtype"]) == ("bf16", "fp8_e4m3")


def test_every_input_has_an_option_with_help() -> None:
    options = {option: parameter for parameter in command.params for option in parameter.opts}
    for spec in ALL_FIELDS:
        assert options[spec.flag].name == spec.name
    assert tuple(PRESETS) == preset_names()
    assert tuple(PROFILES) == curated.PROFILES
    assert QUANTIZE == QUANTISED_WEIGHTS


def test_the_whole_command_exits_3_with_the_error_on_stderr() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seekserve", "plan", V3, "--gpu", "h200", "--gpus", "2"], capture_output=True, text=True
    )
    assert done.returncode == 3
    assert "NO PLAN" in done.stdout
    assert done.stderr.startswith("error: no plan: does not fit: the weights alone take 626.9 GiB")
    assert "Traceback" not in done.stderr
