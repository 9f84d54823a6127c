from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from seekserve.server.command import ServerCommand, build_argv, build_env_changes, mask
from seekserve.server.ports import Ports

COMMAND = ServerCommand(
    binary=Path("/t/tritonserver"),
    repository=Path("/r"),
    backend_dir=Path("/b"),
    models=("one", "two"),
    host="127.0.0.1",
    ports=Ports(http=1, grpc=2, metrics=3),
    shm_prefix="seekserve_ab_",
    admin_key="KEY",
    exit_timeout_s=30,
    ready_timeout_s=12.5,
    log_verbose=0,
    has_gpu=True,
    configs_complete=True,
)


def test_every_endpoint_binds_to_the_host_and_only_named_models_load() -> None:
    argv = build_argv(dataclasses.replace(COMMAND, host="10.1.1.1"))
    for flag in ("--http-address", "--grpc-address", "--metrics-address"):
        assert f"{flag}=10.1.1.1" in argv
    assert [a for a in argv if "-port=" in a] == ["--http-port=1", "--grpc-port=2", "--metrics-port=3"]
    assert "--model-control-mode=explicit" in argv
    assert [a for a in argv if a.startswith("--load-model")] == ["--load-model=one", "--load-model=two"]


@pytest.mark.parametrize("flag", ["--http-restricted-api", "--grpc-restricted-protocol"])
def test_the_apis_that_change_a_server_need_the_key_of_the_launch(flag: str) -> None:
    value = next(a for a in build_argv(COMMAND) if a.startswith(flag)).partition("=")[2]
    apis, _, header = value.partition(":")
    assert set(apis.split(",")) == {"model-repository", "shared-memory", "trace", "logging"}
    assert header == "seekserve-admin-key=KEY"


def test_stubs_get_their_own_shared_memory_prefix_and_the_whole_loading_time() -> None:
    argv = build_argv(COMMAND)
    assert "--backend-config=python,shm-region-prefix-name=seekserve_ab_" in argv
    assert "--backend-config=python,stub-timeout-seconds=13" in argv


@pytest.mark.parametrize(
    ("change", "flag", "is_there"),
    [
        ({"has_gpu": False}, "--allow-gpu-metrics=false", True),
        ({"has_gpu": True}, "--allow-gpu-metrics=false", False),
        ({"configs_complete": True}, "--disable-auto-complete-config", True),
        ({"configs_complete": False}, "--disable-auto-complete-config", False),
    ],
)
def test_flags_that_depend_on_the_machine_and_the_models(change: dict[str, bool], flag: str, is_there: bool) -> None:
    assert (flag in build_argv(dataclasses.replace(COMMAND, **change))) is is_there


def test_the_environment_puts_the_running_python_first_and_keeps_what_was_there() -> None:
    changes = build_env_changes(
        {"PATH": "/bin:/py", "LD_LIBRARY_PATH": "/old"},
        run_dir=Path("/run"),
        probe_key="P",
        library_dirs=[Path("/libs"), Path("/lp")],
        python_bin_dir=Path("/py"),
    )
    assert changes == {
        "SEEKSERVE_RUN_DIR": "/run",
        "SEEKSERVE_PROBE_KEY": "P",
        "PATH": "/py:/bin",
        "LD_LIBRARY_PATH": "/libs:/lp:/old",
    }


def test_without_a_matching_stub_and_own_libraries_paths_are_left_alone() -> None:
    changes = build_env_changes({}, run_dir=Path("/run"), probe_key="P", library_dirs=[], python_bin_dir=None)
    assert set(changes) == {"SEEKSERVE_RUN_DIR", "SEEKSERVE_PROBE_KEY"}


def test_keys_are_masked_for_printing_and_absent_from_repr() -> None:
    assert mask("--x=KEY,KEY", ["KEY"]) == "--x=****,****"
    assert "KEY" not in repr(COMMAND)
