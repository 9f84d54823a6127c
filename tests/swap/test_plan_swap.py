"""What is swapped and which way, and everything that speaks against it, before anything changes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.repository.toy_bundle import toy_bundle
from tests.swap.place import BF16, Place, on_gpus

from seekserve.errors import BundleError, ConflictError, InputError
from seekserve.repository.checking import check_repository
from seekserve.server.orders import ORDERS_FOLDER
from seekserve.swap.job import SwapPlan, plan_swap
from seekserve.swap.request import SwapRequest
from seekserve_backend.contract.bundle import Limits

SHORT = Limits(max_seq_len_tokens=1024, max_batch_size=16, max_num_tokens=512, prefill_chunk_tokens=256)


def plan(place: Place, to: str = "bf16", **flags: Any) -> SwapPlan:
    return plan_swap(SwapRequest(repository=place.repository, to=to, **flags), place.env)


def files(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_a_variant_is_found_by_its_name_and_only_the_bundle_changes(place: Place) -> None:
    new = place.bundle("bf16", kv=BF16)
    before = files(place.root)
    made = plan(place)
    assert (made.target.new_dir, made.target.old_dir) == (new, place.root / "bundle-fp8")
    text = made.files.texts["config.pbtxt"]
    old = place.config.read_text()
    changed = [line for line in text.splitlines() if line not in old.splitlines()]
    assert all("bundle-bf16" in line or line.startswith("# Bundle chat-bf16") for line in changed), changed
    assert files(place.root) == before


def test_the_written_files_are_as_if_render_had_made_them(place: Place) -> None:
    new = place.bundle("bf16", kv=BF16)
    for name, text in plan(place).files.texts.items():
        (place.config.parent / name).write_text(text)
    swapped = files(place.config.parent)
    place.render(new)
    assert files(place.config.parent) == swapped


def test_a_path_names_any_bundle(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    new = place.bundle("bf16")
    assert plan(place, str(new)).target.new_dir == new
    monkeypatch.chdir(place.root)
    assert plan(place, "bundle-bf16").target.new_dir == new


def test_an_edited_policy_stays_an_edited_policy(place: Place) -> None:
    place.bundle("bf16")
    manifest = json.loads((place.config.parent / "rendered.json").read_text())
    made = json.loads(plan(place).files.texts["rendered.json"])
    assert made["files"]["policy.json"] == manifest["files"]["policy.json"]
    assert made["files"]["config.pbtxt"] == hashlib.sha256(plan(place).files.texts["config.pbtxt"].encode()).hexdigest()


@pytest.mark.parametrize("streaming", [True, False])
def test_instances_and_streaming_stay(tmp_path: Path, streaming: bool) -> None:
    place = Place(tmp_path)
    place.render(place.bundle("fp8"), instances=3, is_streaming=streaming)
    place.launch()
    place.bundle("bf16")
    old = place.config.read_text()
    assert plan(place).files.texts["config.pbtxt"].replace("bf16", "fp8") == old
    assert plan(place).files.instances == 3


CASES: list[tuple[dict[str, Any], str]] = [
    ({"family": "deepseek_v2"}, "of the family deepseek_v2, the present one of deepseek_v3; --allow-other-model"),
    ({"limits": SHORT}, "takes 1024 tokens per request where clients may send 2048 now; --force"),
    ({"base": on_gpus(toy_bundle())}, "whose package tensorrt_llm is not installed here; now it is reference"),
]


@pytest.mark.parametrize(("changes", "text"), CASES)
def test_what_clients_rely_on_is_not_changed_silently(place: Place, changes: dict[str, Any], text: str) -> None:
    place.bundle("bf16", **changes)
    with pytest.raises(ConflictError) as caught:
        plan(place)
    assert text in str(caught.value)


def test_another_tokenizer_needs_a_word(place: Place) -> None:
    other = place.bundle("bf16", name="chat-bf16")
    text = '{"model": {}}'
    (other / "tokenizer" / "tokenizer.json").write_text(text)
    data = json.loads((other / "bundle.json").read_text())
    data["files"]["tokenizer/tokenizer.json"] = {
        "bytes": len(text),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
    (other / "bundle.json").write_text(json.dumps(data))
    with pytest.raises(ConflictError, match=r"tokenizer\.json is another \(13 bytes"):
        plan(place)
    assert plan(place, allow_other_model=True).target.new_dir == other


def test_all_problems_come_in_one_report(place: Place) -> None:
    place.bundle("bf16", family="deepseek_v2", limits=SHORT)
    (place.config.parent / "policy.json").write_text("{")
    place.config.write_text(place.config.read_text() + "# mine\n")
    with pytest.raises(ConflictError) as caught:
        plan(place)
    assert "4 problems" in str(caught.value)
    for part in ("family", "1024 tokens", "policy.json is not valid", "was edited since it was rendered"):
        assert part in str(caught.value)
    (place.config.parent / "policy.json").write_text("{}")


def test_force_takes_a_shorter_limit_and_drops_an_edit(place: Place) -> None:
    place.bundle("bf16", limits=SHORT)
    place.config.write_text(place.config.read_text() + "# mine\n")
    assert "# mine" not in plan(place, force=True).files.texts["config.pbtxt"]


def test_a_damaged_bundle_is_refused_with_its_fault(place: Place) -> None:
    (place.bundle("bf16") / "weights" / "config.json").unlink()
    with pytest.raises(BundleError, match=r"weights/config\.json is missing"):
        plan(place)


@pytest.mark.parametrize(
    ("to", "text"),
    [("fp8", "serves .*bundle-fp8 already"), ("int8", "no variant of that name"), ("./int8", "no such folder")],
)
def test_a_target_that_is_none_says_what_there_is(place: Place, to: str, text: str) -> None:
    place.bundle("bf16")
    with pytest.raises((InputError, ConflictError), match=text) as caught:
        plan(place, to)
    assert to != "int8" or "bundle-bf16" in str(caught.value)


def test_gpus_decide_the_way_of_gpu_engines(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.render(place.bundle("fp8", base=on_gpus(toy_bundle(), tp=2)), gpus=("0,1", "2,3"))
    place.launch()
    place.bundle("bf16", base=on_gpus(toy_bundle(), tp=2))
    made = plan(place)
    assert (made.way.how, made.load_timeout_s) == ("drain", 1234.0)
    assert "both would use GPU 0, 1, 2, 3" in made.way.why
    beside = plan(place, gpus=("4,5", "6,7"))
    assert beside.way.how == "side-by-side"
    assert "0,1,2,3 now, 4,5,6,7 then" in beside.way.why
    assert '"4,5;6,7"' in beside.files.texts["config.pbtxt"]
    with pytest.raises(ConflictError, match="--how side-by-side: both would use GPU 2"):
        plan(place, gpus=("2,4", "5,6"), how="side-by-side")
    with pytest.raises(ConflictError, match="an engine that drains stays on its GPUs"):
        plan(place, gpus=("2,4", "5,6"))
    with pytest.raises(ConflictError, match="holds 1 GPUs where one replica takes 2"):
        plan(place, gpus=("4", "5"))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"tp": 4}, "runs on 4 ranks .* planned for 2"),
        ({"tp": 2, "version": "1.3.0rc20"}, "TensorRT-LLM 1.3.0rc20, the server"),
    ],
)
def test_ranks_and_version_are_the_launch_s(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    place = Place(tmp_path)
    place.render(place.bundle("fp8", base=on_gpus(toy_bundle(), tp=2)))
    place.launch()
    place.bundle("bf16", base=on_gpus(toy_bundle(), **changes))
    with pytest.raises(ConflictError, match=text):
        plan(place)


def test_launches_that_cannot_swap_say_why(place: Place) -> None:
    place.bundle("bf16")
    for changes, text in (
        ({"state": "restarting"}, "is restarting, not ready"),
        ({"plan": "leader by mpirun, tp 2 x pp 1 = 2"}, "cannot be swapped together"),
    ):
        place.launch(**changes)
        with pytest.raises(ConflictError, match=text):
            plan(place)
    place.launch()
    (place.run_dir / ORDERS_FOLDER).rmdir()
    with pytest.raises(ConflictError, match="takes no orders"):
        plan(place)


def test_a_launch_is_found_by_its_repository_among_the_living(place: Place) -> None:
    place.bundle("bf16")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    place.launch(id="dead0000", pid=gone.pid)
    assert plan(place).target.record.id == "0badcafe"
    place.launch(id="another0")
    with pytest.raises(InputError, match=r"2 launches serve .* choose with --id"):
        plan(place)
    assert plan(place, launch_id="another0").target.record.pid == os.getpid()
    with pytest.raises(ConflictError, match="not running any more"):
        plan(place, launch_id="dead0000")
    elsewhere = dataclasses.replace(SwapRequest(repository=place.root, to="bf16"), launch_id="another0")
    with pytest.raises(InputError, match=r"serves .*repo, not"):
        plan_swap(elsewhere, place.env)


def test_of_several_models_one_has_to_be_named(place: Place) -> None:
    place.bundle("bf16")
    place.render(place.root / "bundle-fp8", name="other")
    place.launch(models=("chat", "other"))
    with pytest.raises(InputError, match="serves chat, other; choose with --model"):
        plan(place)
    assert plan(place, model="other").target.model.name == "other"
    with pytest.raises(InputError, match="no model 'third'"):
        plan(place, model="third")


def test_the_repository_checks_clean_after_the_swap(place: Place) -> None:
    place.bundle("bf16")
    for name, text in plan(place).files.texts.items():
        (place.config.parent / name).write_text(text)
    report = check_repository(place.repository)
    assert not [finding for finding in report.findings if "bundle_dir" in finding.message], report
