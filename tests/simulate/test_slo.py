"""SLO files: every fault is told at once; policies made for their promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from seekserve.errors import ConfigError, InputError
from seekserve.simulate.policies import candidate_for
from seekserve.simulate.slo import ClassSlo, SloFile, read_slo

GOOD = """
chunk_tokens: 512
classes:
  chat: {share: 0.6, ttft_ms: 1000, ttft_ms_per_token: 0.25, tpot_ms: 50}
  batch: {share: 0.4, e2e_ms: 300000}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "p.yaml"
    path.write_text(text)
    return path


def test_a_file_is_read_with_its_defaults(tmp_path: Path) -> None:
    slo = read_slo(write(tmp_path, GOOD))
    assert (slo.name, slo.chunk_tokens, slo.max_tokens) == ("p", 512, 1000)
    assert slo.classes["chat"] == ClassSlo(share=0.6, ttft_ms=1000.0, ttft_ms_per_token=0.25, tpot_ms=50.0)
    assert slo.classes["batch"].is_offline


@pytest.mark.parametrize("name", ["conversation", "code", "long_context", "reasoning"])
def test_the_files_of_the_experiments_are_good(name: str, repository_root: Path) -> None:
    assert read_slo(repository_root / "scripts" / "experiments" / "slo" / f"{name}.yaml").classes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("0.6", "0.5"), ["sum to 0.9"]),
        (GOOD.replace("e2e_ms: 300000", ""), ["classes.batch", "promises nothing"]),
        (GOOD.replace("tpot_ms", "tpot"), ["tpot"]),
        (GOOD.replace("0.6", "x").replace("512", "0"), ["3 problems", "share", "chunk_tokens"]),
        ("classes: {}", ["sum to 0"]),
        ("- 1", ["p.yaml"]),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read_slo(write(tmp_path, text))
    for word in words:
        assert word in str(caught.value)


def test_targets_are_met_up_to_the_edge() -> None:
    rules = ClassSlo(share=1.0, ttft_ms=100.0, ttft_ms_per_token=1.0, tpot_ms=50.0)
    assert rules.is_met(ttft_ms=110.0, tpot_ms=50.0, e2e_ms=9e9, prompt_tokens=10)
    assert not rules.is_met(ttft_ms=110.1, tpot_ms=50.0, e2e_ms=0.0, prompt_tokens=10)
    assert not rules.is_met(ttft_ms=1.0, tpot_ms=50.1, e2e_ms=0.0, prompt_tokens=10)
    assert ClassSlo(share=1.0, e2e_ms=5.0).is_met(ttft_ms=9e9, tpot_ms=9e9, e2e_ms=5.0, prompt_tokens=1)


def test_policies_carry_the_promises_or_their_own_timeouts(slo: SloFile) -> None:
    paced = candidate_for("paced", slo).policy.classes["interactive"]
    assert (paced.deadline_ms, paced.deadline_ms_per_token, paced.tpot_slo_ms) == (500, 1.0, 60.0)
    static = candidate_for("static:8:1.5", slo).policy
    assert (static.max_running, static.classes["interactive"].deadline_ms) == (8, 1500)
    assert static.classes["offline"].deadline_ms == 60_000
    assert candidate_for("static:8", slo).policy.classes["interactive"].deadline_ms == 500
    fcfs = candidate_for("fcfs", slo).policy.classes
    assert fcfs["interactive"] == fcfs["offline"]
    assert candidate_for("seed:open", slo).policy.seed.caps is False
    assert [candidate_for(name, slo).knows_lengths for name in ("paced", "oracle")] == [False, True]


@pytest.mark.parametrize(
    "spec", ["", "pace", "static", "static:0", "static:8:x", "static:8:-1", "seed:shut", "paced:1"]
)
def test_an_unknown_policy_is_named_with_those_there_are(spec: str, slo: SloFile) -> None:
    with pytest.raises(InputError) as caught:
        candidate_for(spec, slo)
    assert repr(spec) in str(caught.value)
    assert "static:80:1.5" in str(caught.value)


def test_a_policy_file_is_taken_as_it_is(tmp_path: Path, slo: SloFile) -> None:
    path = write(tmp_path, "name: mine\nkind: static\nmax_running: 3\n")
    assert candidate_for(str(path), slo).policy.max_running == 3
