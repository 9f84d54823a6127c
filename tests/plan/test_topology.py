"""Topology text and what follows from it: groups, sockets, warnings; the machine behind `--gpu auto`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_plans import CONFIGS
from hypothesis import given
from hypothesis import strategies as st

from seekserve.errors import ConfigError
from seekserve.plan.ask import PlanRequest, make_plan
from seekserve.plan.gpu_resolve import resolve_gpu
from seekserve.plan.inputs import Inputs, flag_inputs, merge
from seekserve.plan.machine import environment_findings, read_machine, topology_findings
from seekserve.plan.model import read_model
from seekserve.plan.probe import Probe, probe_nvml, probe_smi
from seekserve.plan.target import ALL_FIELDS
from seekserve.plan.topology import Topology, parse_topology

FOLDER = Path(__file__).parent / "topologies"


def text(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def read(name: str) -> Topology:
    return parse_topology(text(name), name)


def test_an_nvswitch_host_is_one_group_over_two_numa_nodes() -> None:
    found = read("h100-nvswitch")
    assert found.groups() == (tuple(range(8)),)
    assert found.numa == ("0",) * 4 + ("1",) * 4
    assert found.relation(7, 0) == "NV18"
    assert found.sockets(range(8)) == ("0", "1")
    [note] = topology_findings(found, 8)
    assert (note.rule, note.severity) == ("topology-numa", "note")


def test_without_nvlink_groups_are_switches_then_sockets() -> None:
    found = read("a100-pcie")
    assert not found.has_nvlink
    assert found.groups() == tuple((index,) for index in range(8))
    assert found.groups("PIX") == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert found.groups("PXB") == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert found.farthest(range(8)) == "SYS"


def test_a_group_that_crosses_sockets_is_warned_about_with_a_better_shape() -> None:
    [found] = topology_findings(read("a100-pcie"), 8)
    assert (found.rule, found.severity) == ("topology-sockets", "warning")
    assert "GPU0-GPU7 crosses the link between sockets (SYS)" in found.message
    assert found.hint == "--tp 4 --pp 2"
    assert topology_findings(read("a100-pcie"), 4) == []
    assert topology_findings(read("a100-pcie"), 1) == []


def test_bridged_pairs_are_groups_of_their_own() -> None:
    found = read("a100-pcie-bridges")
    assert found.groups() == ((0, 1), (2, 3))
    [warning] = topology_findings(found, 4)
    assert (warning.rule, warning.hint.split(",")[0]) == ("topology-nvlink", "--tp 2")
    assert topology_findings(found, 2) == []


@pytest.mark.parametrize(("name", "code"), [("workstation-phb", "PHB"), ("workstation-node", "NODE")])
def test_two_cards_of_a_workstation_are_joined_through_the_cpu(name: str, code: str) -> None:
    found = read(name)
    assert found.relation(0, 1) == code
    assert found.numa == ("0", "0")


def test_blanks_in_place_of_tabs_and_escape_codes_read_the_same() -> None:
    plain = read("h100-nvswitch")
    blanks = re.sub("\t+", "     ", text("h100-nvswitch"))
    coloured = "\x1b[4m" + text("h100-nvswitch").replace("\n", "\x1b[0m\n", 1)
    assert parse_topology(blanks, "x").relations == plain.relations
    assert parse_topology(coloured, "x") == plain


def test_empty_affinities_of_containers_are_unknown_nodes() -> None:
    found = parse_topology(
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t\t\nGPU1\tNV4\t X \t\t\n", "container"
    )
    assert found.numa == (None, None)
    assert found.groups() == ((0, 1),)


def test_old_names_mean_the_same() -> None:
    found = parse_topology(
        "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\nGPU0\t X \tSOC\tPIX\t0-9\nGPU1\tSOC\t X \tPIX\t0-9\n", "old"
    )
    assert found.relation(0, 1) == "SYS"


def test_a_single_gpu_has_no_relations() -> None:
    found = parse_topology("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\t0\n", "one")
    assert (found.groups(), found.farthest((0,)), found.has_nvlink) == (((0,),), None, False)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("NVIDIA-SMI has failed because it could not talk to the driver", "begins with 'NVIDIA-SMI has failed"),
        ("", "begins with 'nothing'"),
        ("\tGPU0\tGPU1\nGPU0\t X \tNV4\n", "2 GPU columns but 1 GPU rows"),
        ("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tSYS\t X \n", "GPU0 reaches GPU1 by NV4, but GPU1 reaches GPU0 by SYS"),
        ("\tGPU0\tGPU1\nGPU0\t X \tfast\nGPU1\tfast\t X \n", "line 2: 'fast' is no relation"),
        ("\tGPU0\tGPU2\nGPU0\t X \tNV4\nGPU2\tNV4\t X \n", "not GPU0, GPU1, ..."),
    ],
)
def test_what_is_no_matrix_is_refused_with_its_line(content: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_topology(content, "pasted")
    assert what in str(caught.value)


def test_the_peer_to_peer_matrix_is_not_taken_for_a_topology() -> None:
    with pytest.raises(ConfigError, match="'GNS' is no relation"):
        read("p2p-matrix")


@given(st.text(max_size=300))
def test_any_text_is_a_topology_or_a_config_error(content: str) -> None:
    try:
        found = parse_topology(content, "text")
    except ConfigError:
        return
    assert found.gpus


@given(st.lists(st.sampled_from(["NV18", "PIX", "SYS", "X", "", "GPU0", "GPU1", "\t", "NIC0", "0-3"]), max_size=40))
def test_any_table_is_a_topology_or_a_config_error(cells: list[str]) -> None:
    test_text = "\tGPU0\tGPU1\n" + "\n".join("\t".join(cells[i : i + 4]) for i in range(0, len(cells), 4))
    try:
        parse_topology(test_text, "table")
    except ConfigError:
        return


@pytest.mark.parametrize(
    ("environ", "nvlink", "severity"),
    [
        ({"CUDA_LAUNCH_BLOCKING": "1"}, False, "warning"),
        ({"CUDA_LAUNCH_BLOCKING": "0"}, False, None),
        ({"NCCL_P2P_DISABLE": "1"}, True, "error"),
        ({"NCCL_P2P_DISABLE": "1"}, False, None),
        ({"NCCL_P2P_LEVEL": "loc"}, False, "warning"),
        ({"NCCL_P2P_LEVEL": "NVL"}, True, None),
        ({"NCCL_ALGO": "Ring"}, True, "note"),
        ({"NCCL_NET": "Socket"}, True, "warning"),
        ({}, True, None),
    ],
)
def test_harmful_variables_are_found_where_they_harm(
    environ: dict[str, str], nvlink: bool, severity: str | None
) -> None:
    found = environment_findings(environ, has_nvlink=nvlink)
    assert [each.severity for each in found] == ([severity] if severity else [])


def smi(answers: dict[str, str | None]) -> Callable[[Sequence[str]], str | None]:
    return lambda arguments: answers.get("topo" if "topo" in arguments else "list")


def test_nvidia_smi_gives_devices_and_topology() -> None:
    found = probe_smi(smi({"list": "NVIDIA H200, 143771\n" * 2, "topo": text("workstation-phb")}))
    assert found is not None
    assert found.devices == (("NVIDIA H200", 143771 * 1024**2),) * 2
    assert found.topology is not None


@pytest.mark.parametrize("answers", [{"list": None}, {"list": ""}, {"list": "No devices were found\n"}])
def test_a_driver_that_lists_nothing_is_no_machine(answers: dict[str, str | None]) -> None:
    assert probe_smi(smi(answers)) is None


def test_a_topology_that_cannot_be_read_does_not_hide_the_gpus() -> None:
    found = probe_smi(smi({"list": "NVIDIA L4, 23034\n", "topo": "not supported"}))
    assert found is not None
    assert found.topology is None


class NvmlError(Exception):
    pass


def fake_nvml(links: Sequence[int], to_switch: bool) -> Any:
    """Two GPUs; `links` says how many NVLinks each has."""
    ids = ["00000000:17:00.0", "00000000:65:00.0"]

    def state(handle: int, link: int) -> int:
        if link >= links[handle]:
            raise NvmlError
        return 1

    return SimpleNamespace(
        NVMLError=NvmlError,
        NVML_NVLINK_DEVICE_TYPE_SWITCH=2,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda _: b"NVIDIA H200",
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=140 * 1024**3),
        nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=ids[handle].encode()),
        nvmlDeviceGetNvLinkState=state,
        nvmlDeviceGetNvLinkRemoteDeviceType=lambda handle, link: 2 if to_switch else 1,
        nvmlDeviceGetNvLinkRemotePciInfo=lambda handle, link: SimpleNamespace(busId=ids[1 - handle]),
        nvmlDeviceGetTopologyCommonAncestor=lambda a, b: 20,
    )


@pytest.mark.parametrize(
    ("links", "to_switch", "code"), [((18, 18), True, "NV18"), ((4, 4), False, "NV4"), ((0, 0), False, "PXB")]
)
def test_nvml_gives_the_same_relations_as_the_text(links: Sequence[int], to_switch: bool, code: str) -> None:
    found = probe_nvml(lambda: fake_nvml(links, to_switch))
    assert found is not None
    assert found.topology is not None
    assert found.topology.relation(0, 1) == code
    assert found.devices[0] == ("NVIDIA H200", 140 * 1024**3)


def test_nvml_without_a_driver_or_a_module_is_no_machine() -> None:
    def failing() -> Any:
        def init() -> None:
            raise NvmlError

        return SimpleNamespace(NVMLError=NvmlError, nvmlInit=init)

    def missing() -> Any:
        raise ImportError

    assert probe_nvml(failing) is None
    assert probe_nvml(missing) is None


def test_auto_takes_gpus_and_memory_from_the_machine() -> None:
    probe = Probe(devices=(("NVIDIA H200", 139 * 1024**3),) * 8, topology=read("h100-nvswitch"), through="nvidia-smi")
    machine = read_machine(None, {"NCCL_P2P_DISABLE": "1"}, reads_gpus=True, probe=lambda: probe)
    assert machine.gpu is not None
    assert (machine.gpu.name, machine.gpu.memory_bytes, machine.count) == ("h200-sxm-141gb", 139 * 1024**3, 8)
    assert [found.rule for found in machine.findings(8)] == ["environment", "topology-numa"]
    assert machine.lines()[1].startswith("  GPU0, GPU1, ")
    assert machine.to_json()["nvlink_groups"] == [list(range(8))]


@pytest.mark.parametrize(
    ("devices", "what"),
    [
        ((), "no NVIDIA GPU found here, neither through NVML"),
        ((("NVIDIA H200", 1), ("NVIDIA L4", 1)), "different GPUs: NVIDIA H200, NVIDIA L4"),
        ((("NVIDIA Z9", 1),), "'NVIDIA Z9' is not in the catalogue"),
    ],
)
def test_a_machine_that_cannot_be_planned_for_says_why(devices: tuple[tuple[str, int], ...], what: str) -> None:
    probe = Probe(devices=devices, topology=None, through="NVML")
    with pytest.raises(ConfigError) as caught:
        read_machine(None, {}, reads_gpus=True, probe=lambda: probe)
    assert what in str(caught.value)


def test_a_pasted_topology_is_judged_with_the_plan() -> None:
    request = PlanRequest(
        checkpoint=str(CONFIGS / "r1-distill-llama-70b.json"),
        inputs=flag_inputs({"gpu": "a100-pcie-80gb", "gpus": 8, "tp": 8}, ALL_FIELDS),
        topology=FOLDER / "a100-pcie.txt",
    )
    answer = make_plan(request, Inputs(), {})
    assert answer.plan.deployment is not None
    assert "topology-sockets" in {found.rule for found in answer.plan.deployment.findings}
    assert "GPU0, GPU1, GPU2, GPU3: joined by several PCIe switches (PXB), NUMA node 0" in answer.text()
    assert answer.to_json()["topology"]["nvlink_groups"] == [[index] for index in range(8)]


def test_auto_plans_for_the_gpus_that_were_found() -> None:
    probe = Probe(devices=(("NVIDIA H200", 139 * 1024**3),) * 8, topology=read("h100-nvswitch"), through="NVML")
    machine = read_machine(None, {}, reads_gpus=True, probe=lambda: probe, nccl_files=())
    inputs = merge(flag_inputs({"gpu": "auto"}, ALL_FIELDS), machine.inputs())
    made = resolve_gpu(inputs, read_model(str(CONFIGS / "deepseek-v3.json")), gpu=machine.gpu)
    assert made.sources["target.gpus"] == "derived this machine, NVML"
    assert made.deployment is not None
    assert (made.deployment.target.gpus, made.deployment.gpu.memory_bytes) == (8, 139 * 1024**3)
    assert made.deployment.fits


def test_nccl_s_own_files_count_as_environment(tmp_path: Path) -> None:
    first, second = tmp_path / "etc.conf", tmp_path / "home.conf"
    first.write_text("# NCCL_NET=Socket\nNCCL_SHM_DISABLE=1\n", encoding="utf-8")
    second.write_text("NCCL_SHM_DISABLE=0\nNCCL_IB_DISABLE = 1\n", encoding="utf-8")
    probe = Probe(devices=(("NVIDIA H200", 1),), topology=None, through="NVML")
    files = (first, second, tmp_path / "none.conf")
    machine = read_machine(None, {}, reads_gpus=True, probe=lambda: probe, nccl_files=files)
    assert [found.about for found in machine.environment] == [("NCCL_IB_DISABLE",)]
