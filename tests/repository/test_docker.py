"""Dockerfile and docker run: every value is one word wherever it goes, and nobody's file is overwritten."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import shlex
from pathlib import Path

import pytest
from toy_bundle import toy_bundle
from toy_trtllm import toy_trtllm

from seekserve.errors import InputError, RenderError, TargetExists
from seekserve.repository.docker import Container, build_commands, dockerfile_text, is_ours, linked_folders
from seekserve.repository.docker_file import plan_dockerfile, write_dockerfile
from seekserve.repository.environment import render_text
from seekserve.repository.images import BaseImage, base_image, check_image, known_images
from seekserve.repository.placement import Placement

AWKWARD = Path('/srv/a b/c,"d"\'$HOME')
CONTAINER = Container(
    model_name="chat",
    repository=Path("/srv/repo"),
    bundle_dir=Path("/srv/bundle"),
    linked=(),
    placement=Placement(),
    world_size=1,
    nodes=1,
    ports=(8000, 8001, 8002),
)
IMAGE = BaseImage(name="nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3", source="a test")


def after(argv: list[str], flag: str) -> list[str]:
    return [value for word, value in itertools.pairwise(argv) if word == flag]


def instruction(text: str, name: str) -> list[str]:
    [line] = [line for line in text.splitlines() if line.startswith(f"{name} [")]
    words = json.loads(line.removeprefix(f"{name} "))
    assert isinstance(words, list)
    return words


def test_the_dockerfile_builds_on_the_image_and_installs_into_its_backends() -> None:
    text = dockerfile_text(toy_trtllm(), IMAGE, CONTAINER)
    lines = text.splitlines()
    assert f"FROM {IMAGE.name}" in lines
    assert instruction(text, "RUN") == [
        "seekserve", "install-backend", "/opt/tritonserver/backends", "--site-packages", "none",
    ]  # fmt: skip
    assert instruction(text, "ENTRYPOINT") == ["seekserve", "launch"]
    words = instruction(text, "CMD")
    assert words[:3] == ["/srv/repo", "--backend-dir", "/opt/tritonserver/backends"]
    assert words[-2:] == ["--host", "0.0.0.0"]
    assert not [line for line in lines if line.startswith("RUN python3") and "$" in line]


def test_an_awkward_path_is_one_word_in_the_dockerfile_and_in_the_run_line() -> None:
    container = dataclasses.replace(CONTAINER, repository=AWKWARD / "repo", bundle_dir=AWKWARD / "bundle")
    assert instruction(dockerfile_text(toy_trtllm(), IMAGE, container), "CMD")[0] == str(AWKWARD / "repo")
    argv = container.run()
    assert shlex.split(shlex.join(argv)) == argv
    mounts = [next(csv.reader([text])) for text in after(argv, "--mount")]
    assert [fields[1] for fields in mounts] == [f"source={AWKWARD / 'bundle'}", f"source={AWKWARD / 'repo'}"]
    assert all(fields[2] == fields[1].replace("source", "target", 1) for fields in mounts)
    assert all(fields[3] == "readonly" for fields in mounts)


def test_a_path_with_a_line_break_goes_into_no_line() -> None:
    container = dataclasses.replace(CONTAINER, repository=Path("/srv/a\nb"))
    with pytest.raises(RenderError, match="must be one line"):
        dockerfile_text(toy_trtllm(), IMAGE, container)
    with pytest.raises(InputError, match="line break"):
        container.run()


def test_ports_are_published_on_loopback_only() -> None:
    argv = dataclasses.replace(CONTAINER, ports=(9000, 9001, 9002)).run()
    assert after(argv, "--publish") == [f"127.0.0.1:{port}:{port}" for port in (9000, 9001, 9002)]


@pytest.mark.parametrize(
    ("gpus", "world", "device"),
    [((), 4, "device=0,1,2,3"), (((0, 1), (2, 3)), 2, "device=0,1,2,3"), (((4, 5),), 2, "device=0,1,2,3,4,5")],
)
def test_gpus_keep_their_numbers_inside(gpus: tuple[tuple[int, ...], ...], world: int, device: str) -> None:
    container = dataclasses.replace(
        CONTAINER, placement=Placement(instances=len(gpus) or 1, gpus=gpus), world_size=world
    )
    [given] = after(container.run(), "--gpus")
    assert next(csv.reader([given])) == [device]


def test_shared_memory_grows_with_the_instances_and_is_the_hosts_for_several_ranks() -> None:
    three = dataclasses.replace(CONTAINER, placement=Placement(instances=3, gpus=((0,), (1,), (2,))))
    assert after(CONTAINER.run(), "--shm-size") == ["320m"]
    assert after(three.run(), "--shm-size") == ["832m"]
    eight = dataclasses.replace(CONTAINER, world_size=8).run()
    assert after(eight, "--ipc") == ["host"]
    assert "--shm-size" not in eight


def test_several_nodes_use_the_hosts_network() -> None:
    container = dataclasses.replace(CONTAINER, world_size=16, nodes=2)
    assert after(container.run(), "--network") == ["host"]
    assert "--publish" not in container.run()
    assert "0.0.0.0" not in container.launch_arguments()


def test_limits_that_gpu_libraries_need_are_lifted() -> None:
    assert after(CONTAINER.run(), "--ulimit") == ["memlock=-1", "stack=67108864"]


@pytest.mark.parametrize(("name", "tag"), [("R1.Distill_7B", "r1-distill-7b"), ("chat", "chat"), ("-", "model")])
def test_a_model_name_becomes_a_legal_tag(name: str, tag: str) -> None:
    assert dataclasses.replace(CONTAINER, model_name=name).tag.partition(":")[0] == f"seekserve/{tag}"


def test_the_build_context_is_the_dockerfiles_own_folder() -> None:
    wheel, build = build_commands(Path("/srv/repo.docker/Dockerfile"), CONTAINER)
    assert wheel[:5] == ["python3", "-m", "pip", "wheel", "--no-deps"]
    assert build[-1] == "/srv/repo.docker"


def test_where_links_lead_is_mounted_too(tmp_path: Path) -> None:
    blobs, snapshot, bundle = (tmp_path / name for name in ("hub/blobs", "hub/snapshots/x", "bundle/weights"))
    for folder in (blobs, snapshot, bundle):
        folder.mkdir(parents=True)
    (blobs / "abc").write_text("")
    (snapshot / "w.safetensors").symlink_to("../../blobs/abc")
    (bundle / "w.safetensors").symlink_to(snapshot / "w.safetensors")
    (bundle / "inside").symlink_to("w.safetensors")
    assert set(linked_folders(tmp_path / "bundle")) == {blobs, snapshot}


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(InputError, match="in a circle"):
        linked_folders(tmp_path)


def test_only_an_unedited_dockerfile_of_ours_is_replaced(tmp_path: Path) -> None:
    repository = tmp_path / "repo"
    first = plan_dockerfile("", dockerfile_text(toy_trtllm(), IMAGE, CONTAINER), repository=repository, force=False)
    path = tmp_path / "repo.docker" / "Dockerfile"
    assert (first.action, first.folder) == ("create", path)
    write_dockerfile(first)
    assert is_ours(path.read_text())
    again = plan_dockerfile("", path.read_text(), repository=repository, force=False)
    assert again.action == "keep"
    other = dockerfile_text(toy_trtllm(name="other"), IMAGE, dataclasses.replace(CONTAINER, model_name="other"))
    write_dockerfile(plan_dockerfile("", other, repository=repository, force=False))
    assert path.read_text() == other
    path.write_text(other + "RUN true\n", encoding="utf-8")
    with pytest.raises(TargetExists, match="edited since"):
        plan_dockerfile("", other, repository=repository, force=False)
    assert plan_dockerfile("", other, repository=repository, force=True).action == "replace"
    assert [each.name for each in path.parent.iterdir()] == ["Dockerfile"]


@pytest.mark.parametrize(("given", "word"), [("repo/Dockerfile", "inside the repository"), ("none/D", "no folder")])
def test_a_dockerfile_in_a_wrong_place_is_refused(tmp_path: Path, given: str, word: str) -> None:
    with pytest.raises(InputError, match=word):
        plan_dockerfile(str(tmp_path / given), "", repository=tmp_path / "repo", force=False)


@pytest.mark.parametrize(("version", "triton"), [("1.2.1", "26.07"), ("v1.2.1", "26.07"), ("1.2.0", "26.03")])
def test_the_newest_image_with_the_version_is_taken(version: str, triton: str) -> None:
    assert base_image(None, version).name == f"nvcr.io/nvidia/tritonserver:{triton}-trtllm-python-py3"


@pytest.mark.parametrize("version", ["1.3.0rc20", "1.4.0rc4", None])
def test_a_version_in_no_known_image_needs_one_named(version: str | None) -> None:
    with pytest.raises(InputError, match="no Triton image of NVIDIA's is known") as caught:
        base_image(None, version)
    assert "--base-image" in str(caught.value)
    assert base_image("registry.local:5000/triton:mine", version).source == "flag --base-image"


@pytest.mark.parametrize(
    "name", ["", "a b", "x\nRUN evil", "$(x)", "${IMAGE}", 'a"b', "x/UPPER", "-x", "x:", "x@sha256:1"]
)
def test_what_is_no_image_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is no name of an image"):
        check_image(name)


def test_every_known_image_is_a_legal_name() -> None:
    assert [check_image(name) for _, name in known_images()] == [name for _, name in known_images()]


@pytest.mark.parametrize(
    ("source", "value"),
    [("{{ v | docker_image }}", "a b"), ("{{ v | json_words }}", "text"), ("{{ v | hash_comment }}", "syntax=evil")],
)
def test_the_filters_refuse_what_would_become_an_instruction(source: str, value: str) -> None:
    with pytest.raises(RenderError):
        render_text(source, {"v": value}, name="t")


def test_the_header_names_the_bundle_without_tensorrt_llm_too() -> None:
    assert "reference" in dockerfile_text(toy_bundle(), IMAGE, CONTAINER)
