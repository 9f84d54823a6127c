"""`--verify` measures against the source and the definition, whatever has written the output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.convert.conftest import fill, run, toy

torch = pytest.importorskip("torch")

from seekserve.checkpoint.headers import read_header  # noqa: E402
from seekserve.convert.kernel import TorchQuantiser  # noqa: E402
from seekserve.convert.plan import plan_conversion  # noqa: E402
from seekserve.convert.verify import Verification, verify_output  # noqa: E402
from seekserve.errors import CheckpointError  # noqa: E402

pytestmark = pytest.mark.needs_local


def ignore(_count: int) -> None:
    return None


def verified(source: Path, out: Path) -> Verification:
    found = run(source, out, "fp8-block", verify=True).verification
    assert found is not None
    return found


def test_errors_are_reported_by_group_with_the_worst_tensors(plain: Path, tmp_path: Path) -> None:
    found = verified(plain, tmp_path / "out")
    assert sorted(found.groups) == ["attention", "dense_mlp", "routed_experts", "shared_experts"]
    assert all(0.02 < group.relative_error < 0.03 for group in found.groups.values())
    worst = [tensor.relative_error for tensor in found.worst]
    assert worst == sorted(worst, reverse=True)
    assert worst[0] == max(group.worst_relative_error for group in found.groups.values())
    assert found.zero_blocks == 0
    assert found.unchanged_tensors > 0


def test_the_relative_error_is_that_of_the_norms(plain: Path, tmp_path: Path) -> None:
    found = verified(plain, tmp_path / "out")
    name = found.worst[0].name
    load_file = pytest.importorskip("safetensors.torch").load_file
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for path in plain.glob("*.safetensors"):
        before.update(load_file(path))
        after.update(load_file(tmp_path / "out" / path.name))
    weight, codes, scale = before[name].double(), after[name], after[f"{name}_scale_inv"]
    rows, columns = weight.shape
    factors = scale.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
    difference = (codes.float() * factors).double() - weight
    assert found.worst[0].relative_error == pytest.approx(float(difference.norm() / weight.norm()))
    assert found.worst[0].largest_error == pytest.approx(float(difference.abs().max()))


def test_blocks_of_zeros_are_counted_and_named(tmp_path: Path) -> None:
    source = toy(fp8=False).write(tmp_path / "plain")
    name = "model.layers.0.mlp.up_proj.weight"  # 330 x 200: 3 x 2 blocks
    fill(source, {name: bytes(128 * 200 * 2)})
    found = verified(source, tmp_path / "out")
    assert (found.zero_blocks, found.zero_block_tensors) == (2, (name,))


def test_a_kernel_that_is_wrong_by_one_bit_is_found_and_nothing_is_kept_as_whole(plain: Path, tmp_path: Path) -> None:
    def make() -> Any:
        quantise = TorchQuantiser()

        def call(weight: Any, codes: Any, scales: Any) -> None:
            quantise(weight, codes, scales)
            codes[0, 0] ^= 1

        return call

    with pytest.raises(CheckpointError, match="not what the definition gives"):
        run(plain, tmp_path / "out", "fp8-block", verify=True, kernel=make)
    assert not (tmp_path / "out").exists()


def test_every_changed_tensor_of_an_output_is_named(plain: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(plain, out, "fp8-block")
    names = ["lm_head.weight", "model.layers.1.mlp.experts.0.up_proj.weight"]
    for path in out.glob("*.safetensors"):
        for name, entry in read_header(path).tensors.items():
            if name in names:
                with path.open("r+b") as file:
                    file.seek(entry.begin_bytes)
                    first = file.read(1)
                    file.seek(entry.begin_bytes)
                    file.write(bytes([first[0] ^ 1]))
    plan = plan_conversion(plain, "fp8-block")
    with pytest.raises(CheckpointError, match="2 tensors") as caught:
        verify_output(plan, out, workers=1, progress=ignore)
    assert all(name in str(caught.value) for name in names)


def test_the_way_to_bf16_is_verified_too(fp8: Path, tmp_path: Path) -> None:
    report = run(fp8, tmp_path / "out", "bf16", verify=True)
    told = json.loads(report.json_text())["verification"]
    assert told["groups"]["attention"]["relative_error"] < 2.0**-8
    assert "Verified" in report.text()
