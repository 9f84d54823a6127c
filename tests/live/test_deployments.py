"""The promised deployments served: their bundles on the double of TensorRT-LLM, together in one real tritonserver."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deployments.builds import DEPLOYMENTS, Built
from tests.live.conftest import Deployment, Server, run_cli

from seekserve.client import Client, GenerateRequest
from seekserve_backend.contract.bundle import Bundle

DOUBLES = Path(__file__).resolve().parent.parent / "doubles"
PROMPT = "Count from 1 to 30, then back: 一二三 😀."
# One server has one version of the package; V4 needs a later one. Two nodes cannot be had here.
BY_PROFILE = {
    "1.2.1": [name for name in DEPLOYMENTS if not name.startswith("v4") and name != "v3-16xh100"],
    "1.4.0rc4": [name for name in DEPLOYMENTS if name.startswith("v4")],
}


@pytest.fixture(scope="module", params=BY_PROFILE)
def served(
    request: pytest.FixtureRequest, built: Built, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, list[str]]]:
    profile = str(request.param)
    names = BY_PROFILE[profile]
    folder = tmp_path_factory.mktemp("served")
    repository, backends, site = folder / "repository", folder / "backends", folder / "site"
    for name in names:
        bundle = built(name)
        spec = Bundle.load(bundle).trtllm
        assert spec is not None
        assert spec.version == profile
        run_cli("render", bundle, "--out", repository, "--name", name)
    run_cli("check", repository, "--trtllm-version", profile)
    site.mkdir()
    (site / "double.pth").write_text(f"{DOUBLES}\n{sysconfig.get_path('purelib')}\n")
    run_cli("install-backend", backends, "--site-packages", site)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOUBLE_TRTLLM_PROFILE", profile)
        patch.setenv("DOUBLE_TRTLLM_VIOLATIONS", str(folder / "violations"))
        server = Server(Deployment(folder=folder, repository=repository, backends=backends), repository=repository)
    try:
        yield server, names
    finally:
        code = server.stop()
    assert code == 0
    violations = folder / "violations"
    assert not violations.exists() or not violations.read_text(), violations.read_text()


def test_every_deployment_answers_through_the_real_server(served: tuple[Server, list[str]]) -> None:
    server, names = served
    assert sorted(server.ready["models"]) == sorted(names)
    for name in names:
        with Client(server.grpc, name) as client:
            # The double gives the prompt back: text, length and end have gone through tokenizer, engine and stream.
            done = client.generate(GenerateRequest(prompt=PROMPT, max_tokens=200))
        assert done.text == PROMPT, name
        assert done.finish_reason == "stop", name
