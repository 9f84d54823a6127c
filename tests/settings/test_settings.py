"""seekserve.yaml: strict, all faults at once, relative to itself, and silent where it says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from seekserve.errors import ConfigError
from seekserve.plan.inputs import FIELDS, Given, Inputs
from seekserve.plan.plan import UNSET, Source
from seekserve.settings import PathSettings, ServerSettings, Settings, find_settings, load_settings

WHOLE = """\
checkpoint: models/toy
name: chat
target: {engine: reference}
limits:
  max_seq_len_tokens: 1024
  max_batch_size: 8
  max_num_tokens: 256
  prefill_chunk_tokens: 128
kv_cache: {dtype: bf16, block_tokens: 64, capacity_tokens: 8192}
policy: policy.yaml
server: {host: 0.0.0.0, http_port: 9000, grpc_port: 9001, metrics_port: 9002}
paths: {bundle: out/bundle, repository: /srv/repo, backends: ../backends}
"""


def load(folder: Path, text: str) -> Settings:
    path = folder / "seekserve.yaml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path)


def faults(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return str(caught.value)


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "models" / "toy").mkdir(parents=True)
    settings = load(tmp_path, WHOLE)
    assert settings.checkpoint == str(tmp_path / "models" / "toy")
    assert settings.policy == tmp_path / "policy.yaml"
    assert settings.server == ServerSettings(host="0.0.0.0", http_port=9000, grpc_port=9001, metrics_port=9002)
    assert settings.paths.bundle == tmp_path / "out/bundle"
    assert settings.paths.repository == Path("/srv/repo")
    inputs = settings.inputs
    place = str(tmp_path / "seekserve.yaml")
    assert inputs.kv_capacity_tokens == Given(8192, Source.FILE, place)
    assert all(isinstance(getattr(inputs, spec.name), Given) for spec in FIELDS)


@pytest.mark.parametrize("text", ["", "# nothing\n", "limits:\n", "server: {}\npaths:\n", "checkpoint: null\n"])
def test_what_is_not_said_stays_unset(tmp_path: Path, text: str) -> None:
    settings = load(tmp_path, text)
    assert settings.inputs == Inputs()
    assert (settings.checkpoint, settings.policy) == (UNSET, UNSET)
    assert (settings.server, settings.paths) == (ServerSettings(), PathSettings())


def test_a_checkpoint_that_is_no_path_is_left_as_it_is(tmp_path: Path) -> None:
    assert load(tmp_path, "checkpoint: deepseek-ai/DeepSeek-V2-Lite\n").checkpoint == "deepseek-ai/DeepSeek-V2-Lite"


def test_the_policy_can_stand_in_the_file(tmp_path: Path) -> None:
    assert load(tmp_path, "policy: {default_max_tokens: 9}\n").policy == {"default_max_tokens": 9}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("limits: {max_batchsize: 8}\n", "limits.max_batchsize: unknown key (did you mean max_batch_size?)"),
        ("limit: {max_batch_size: 8}\n", "limit: unknown key (did you mean limits?)"),
        ("limits: []\n", "limits: expected an object, got []"),
        ("limits: {max_batch_size: true}\n", "limits.max_batch_size: expected an integer, got True"),
        ("limits: {max_batch_size: '8'}\n", "limits.max_batch_size: expected an integer, got '8'"),
        ("limits: {max_batch_size: 0.9}\n", "limits.max_batch_size: expected an integer, got 0.9"),
        ("limits: {max_batch_size: .nan}\n", "limits.max_batch_size: expected an integer, got nan"),
        ("kv_cache: {dtype: 8}\n", "kv_cache.dtype: expected a string, got 8"),
        ("name: 7\n", "name: expected a string, got 7"),
        ("server: {http_port: 70000}\n", "server.http_port: expected at most 65535, got 70000"),
        ("policy: 3\n", "policy: expected the path of a policy file or the policy itself, got 3"),
        ("- a\n", "document: expected an object, got list"),
        ("just text\n", "document: expected an object, got str"),
    ],
)
def test_a_wrong_key_or_type_is_named_with_its_dotted_path(tmp_path: Path, text: str, fault: str) -> None:
    assert fault in faults(tmp_path, text)


def test_all_faults_are_reported_together(tmp_path: Path) -> None:
    text = faults(tmp_path, "nam: x\nlimits: {max_batch_size: no}\nserver: {port: 1}\npaths: {bundle: 3}\n")
    assert "4 problems" in text
    for part in ("nam: unknown", "limits.max_batch_size", "server.port: unknown", "paths.bundle"):
        assert part in text


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--config: no such file"):
        find_settings(tmp_path / "other.yaml", tmp_path)


def test_the_default_file_is_used_when_it_is_there(tmp_path: Path) -> None:
    assert find_settings(None, tmp_path) == Settings()
    (tmp_path / "seekserve.yaml").write_text("name: here\n", encoding="utf-8")
    assert find_settings(None, tmp_path).path == tmp_path / "seekserve.yaml"


def test_the_file_can_carry_every_input_of_a_plan(tmp_path: Path) -> None:
    from seekserve.plan.target import ALL_FIELDS

    path = tmp_path / "seekserve.yaml"
    path.write_text(
        "target: {gpu: h200_sxm, gpus: 8, trtllm_version: 1.2.1}\n"
        "parallel: {tp: 8, ep: 8, attention_dp: true, mtp: 1}\n"
        "workload: {isl_tokens: 4000, osl_tokens: 1000}\n"
        "limits: {chunked_prefill: false}\n"
        "kv_cache: {fraction: 0.85, host_cache_gib: 12}\n"
        "memory: {rank0_overhead_mib: 0}\n",
        encoding="utf-8",
    )
    inputs = load_settings(path).inputs
    given = {spec.name: value.value for spec in ALL_FIELDS if (value := getattr(inputs, spec.name))}
    assert given == {
        "gpu": "h200_sxm", "gpus": 8, "trtllm_version": "1.2.1", "tp": 8, "ep": 8, "attention_dp": True, "mtp": 1,
        "isl": 4000, "osl": 1000, "chunked_prefill": False, "kv_fraction": 0.85, "host_cache_gib": 12.0,
        "rank0_overhead_mib": 0,
    }  # fmt: skip
    assert inputs.tp.source_text == f"file {path}"  # type: ignore[union-attr]
