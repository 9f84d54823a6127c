"""Estimates: the shipped step models, the SLO line, cost per million tokens, and the isolated tool's report."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gpu_plans import deployment, plan

from seekserve.errors import ConfigError, InputError
from seekserve.plan.aiconfigurator import ask, fit, parse_report, tool_folder
from seekserve.plan.cost import compare, read_saved_estimate
from seekserve.plan.estimate import Estimate, EstimatePoint, Slo, Workload, estimate_plan, point
from seekserve.plan.estimate_text import estimate_text

V3 = {"gpus": 8, "tp": 8, "pp": 1, "ep": 8, "attention_dp": False}
REPORT = """
  Performance Estimate (agg)
  ISL:              4000
  TTFT:             559.915 ms
  TPOT:             26.873 ms
  Request Latency:  27406.301 ms
  tokens/s:         1,171.87
  tokens/s/gpu:     146.48
  tokens/s/user:    37.21
  ttft                559.915 ms     206.320 ms    36.8%
"""


@pytest.mark.parametrize(
    ("gpu", "gpus", "hosts"), [("h200", 8, "8 x H200"), ("h100", 16, "16 x H100"), ("b200", 8, "8 x B200")]
)
def test_three_shapes_of_v3_have_a_shipped_model_marked_as_predicted(gpu: str, gpus: int, hosts: str) -> None:
    made = plan(gpu=gpu, gpus=gpus)
    assert made.step_model is not None
    assert made.step_model.source.startswith("predicted: ")
    assert hosts in made.step_model.source


@pytest.mark.parametrize(
    "flags", [{**V3, "attention_dp": True}, {**V3, "kv_dtype": "bf16"}, {**V3, "mtp": 1}, {"gpus": 16, "nodes": 2}]
)
def test_another_shape_gets_no_model_rather_than_a_scaled_one(flags: dict[str, Any]) -> None:
    made = plan(**flags)
    assert made.step_model is None
    assert estimate_plan(made, slo=Slo()) is None
    assert "no step-time model ships" in estimate_text(made, None)


@pytest.mark.parametrize(
    ("batch", "tpot_ms", "tokens_per_s"),
    [(1, 7.1, 137), (8, 15.2, 510), (32, 26.9, 1172), (64, 37.2, 1700), (128, 52.2, 2434), (256, 79.6, 3201)],
)
def test_the_two_curve_model_is_close_to_the_planner_it_was_fitted_to(
    batch: int, tpot_ms: float, tokens_per_s: float
) -> None:
    model = plan(**V3).step_model
    assert model is not None
    found = point(model, batch, Workload(isl=4000, osl=1000, chunk=4000))
    assert found.tpot_ms == pytest.approx(tpot_ms, rel=0.06)
    assert found.tokens_per_s == pytest.approx(tokens_per_s, rel=0.08)


def test_points_grow_with_the_batch_and_the_slo_line_is_exact() -> None:
    made = plan(**V3)
    found = estimate_plan(made, slo=Slo(ttft_ms=2000, tpot_ms=50), price_per_gpu_hour=3.0)
    assert found is not None
    for before, after in zip(found.points, found.points[1:], strict=False):
        assert before.batch < after.batch
        assert before.tpot_ms <= after.tpot_ms
        assert before.tokens_per_s <= after.tokens_per_s
    best = found.best
    assert best is not None
    assert 64 < best.batch < 128
    model = made.step_model
    assert model is not None
    assert not point(model, best.batch + 1, Workload(isl=4000, osl=1000, chunk=1024)).keeps(found.slo)
    assert "---- SLO" in estimate_text(made, found)


def test_an_slo_that_nothing_keeps_is_said() -> None:
    made = plan(**V3)
    found = estimate_plan(made, slo=Slo(ttft_ms=10, tpot_ms=1))
    assert found is not None
    assert found.best is None
    assert "no batch size keeps the SLO" in estimate_text(made, found)


def test_ranks_of_attention_dp_share_a_step_but_not_a_prompt() -> None:
    model = plan(**V3).step_model
    assert model is not None
    one, eight = (point(model, 64, Workload(isl=4000, osl=1000, chunk=1024, pools=n)) for n in (1, 8))
    assert eight.ttft_ms > 2 * one.ttft_ms


def cheap(tokens_per_s: float, price: float | None = 2.0) -> Estimate:
    only = EstimatePoint(batch=8, ttft_ms=100, tpot_ms=10, tokens_per_s=tokens_per_s)
    return Estimate(points=(only,), slo=Slo(), source="predicted: test", gpus=8, price_per_gpu_hour=price)


def test_a_million_tokens_cost_price_times_gpus_times_time() -> None:
    found = cheap(1000.0)
    assert found.cost_per_million(found.points[0]) == pytest.approx(2.0 * 8 / 3.6)
    assert cheap(1000.0, None).cost_per_million(found.points[0]) is None


def test_before_and_after_with_the_pay_back() -> None:
    made = compare(cheap(2000.0), cheap(1000.0).to_json(), one_off_cost=1000.0)
    assert made.after == pytest.approx(made.before / 2, rel=1e-3)
    assert made.pay_back_million_tokens == pytest.approx(1000 / made.saved)
    assert "paid back after 450 million tokens" in "\n".join(made.lines())
    worse = compare(cheap(500.0), cheap(1000.0).to_json(), one_off_cost=1.0)
    assert "costs more by" in "\n".join(worse.lines())
    assert "never paid back" in "\n".join(worse.lines())


@pytest.mark.parametrize(
    ("content", "what"),
    [("{", "is not JSON"), ("[]", "holds a list"), ("{}", "has no estimate"), ('{"estimate": 3}', "has no")],
)
def test_a_file_that_is_no_saved_plan_is_refused(tmp_path: Path, content: str, what: str) -> None:
    path = tmp_path / "saved.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=what):
        read_saved_estimate(path)
    with pytest.raises(ConfigError, match="cannot read"):
        read_saved_estimate(tmp_path / "none.json")


def test_a_plan_without_a_cost_cannot_be_compared() -> None:
    with pytest.raises(ConfigError, match="this plan has no cost"):
        compare(None, cheap(1.0).to_json(), one_off_cost=None)
    with pytest.raises(ConfigError, match="saved plan has no cost"):
        compare(cheap(1.0), json.loads('{"within_slo": null}'), one_off_cost=None)


def test_the_tools_report_is_read_strictly() -> None:
    assert parse_report(REPORT, "static_gen") == 26.873
    assert parse_report(REPORT, "static_ctx") == 559.915
    for broken in (REPORT.replace("TPOT:", "ITL:"), REPORT + "  TPOT:   1.0 ms\n", "", REPORT.replace(" ms", " s")):
        with pytest.raises(InputError, match="figures for static_gen"):
            parse_report(broken, "static_gen")


@pytest.mark.parametrize("pools", [1, 8])
def test_a_step_model_is_recovered_from_static_points(pools: int) -> None:
    """The points of a known model must give that model back."""
    read_ms, attention_ms = 1.2e-5, 4e-7

    def measure(mode: str, prompt_tokens: int, batch: int) -> float:
        if mode == "static_gen":
            return 6.0 + 0.1 * batch + read_ms * batch * prompt_tokens
        return 20.0 + 0.03 * prompt_tokens + attention_ms * prompt_tokens**2

    found = fit(measure, pools=pools, source="predicted: test")
    assert found.kv_read_ms_per_token * pools == pytest.approx(read_ms)
    assert found.attention_ms_per_token2 * pools == pytest.approx(attention_ms)
    assert found.base_ms(64 * pools) == pytest.approx(12.4, rel=0.001)
    assert found.base_ms(4000 * pools) == pytest.approx(140.0, rel=0.001)


def test_the_tool_is_called_with_an_argument_list_of_this_shape() -> None:
    calls: list[Sequence[str]] = []

    def run(arguments: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        assert timeout_s > 0
        calls.append(arguments)
        return subprocess.CompletedProcess(list(arguments), 0, REPORT, "")

    case = deployment(**{**V3, "attention_dp": True}).case
    assert ask(case, Path("/tool/python"), "/models", "h200_sxm", "static_gen", 100, 8, run) == 26.873
    given = dict(zip(calls[0][6::2], calls[0][7::2], strict=False))
    assert given["--attention-dp-size"] == "8"
    assert given["--tp-size"] == "1"
    assert (given["--batch-size"], given["--isl"], given["--estimate-mode"]) == ("8", "100", "static_gen")
    assert (given["--moe-ep-size"], given["--moe-tp-size"], given["--system"]) == ("8", "1", "h200_sxm")


def test_a_failing_tool_is_reported_with_its_last_words() -> None:
    def run(arguments: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(list(arguments), 1, "", f"noise\nno table for this ({timeout_s})\n")

    with pytest.raises(InputError, match=r"exit 1\): noise \| no table for this"):
        ask(deployment(**V3).case, Path("/tool/python"), "/models", "h200_sxm", "static_ctx", 4000, 1, run)


def test_the_tool_lives_in_the_users_cache() -> None:
    assert tool_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/seekserve/aiconfigurator-0.12.0")
