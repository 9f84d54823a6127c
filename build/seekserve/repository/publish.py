"""The `render` job: open the bundle, render, read back, then write. All checks come before the first byte written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seekserve.errors import InputError
from seekserve.plan.bundle import open_bundle
from seekserve.plan.names import check_model_name
from seekserve.plan.plan import Unset
from seekserve.settings import Settings
from seekserve_backend.contract.bundle import Bundle
from seekserve_backend.contract.policy import Policy
from seekserve_backend.contract.stock_model import STOCK_MODEL

from .check import check_files
from .placement import place
from .policy import policy_from_data, read_policy
from .publish_report import DockerReport, RenderReport
from .read_inputs import find_stock_files, has_paged_context, parse_parameters, read_llm_args
from .render import TOPOLOGIES, Rendering, RenderOptions, render
from .write import WriteResult, plan_folder, plan_write, write_models

__all__ = ["DEFAULT_DOCKERFILE", "DEFAULT_MONITORING", "MakeMonitoring", "RenderReport", "RenderRequest", "publish"]

DEFAULT_MONITORING = ""
"""Stands for `REPOSITORY.monitoring`, beside the repository."""
DEFAULT_DOCKERFILE = ""
"""Stands for `REPOSITORY.docker/Dockerfile`, beside the repository."""
_PORTS = (8000, 8001, 8002)


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderRequest:
    """What the flags say; None falls back to the settings file, then to the default."""

    bundle: Path | None = None
    out: Path | None = None
    name: str | None = None
    policy: Path | None = None
    topology: str = TOPOLOGIES[0]
    instances: int | None = None
    gpus: tuple[str, ...] = ()
    """`0,1` for each instance."""
    is_streaming: bool = True
    stock_name: str | None = None
    stock_parameters: tuple[str, ...] = ()
    """`KEY=VALUE`"""
    stock_model_dir: Path | None = None
    cancellation_check_ms: int | None = None
    dockerfile: str | None = None
    """A path, or DEFAULT_DOCKERFILE; None: no Dockerfile."""
    base_image: str | None = None
    monitoring: str | None = None
    """A folder, or DEFAULT_MONITORING; None: no monitoring files."""
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    bundle_dir: Path
    repository: Path
    ports: tuple[int, int, int] = field(default=_PORTS)


MakeMonitoring = Callable[[Policy, Settings, int], Mapping[str, str]]
"""(policy, settings, Triton's metrics port) -> path inside the folder -> text."""


def publish(request: RenderRequest, settings: Settings, make_monitoring: MakeMonitoring | None = None) -> RenderReport:
    """Renders and, unless `dry_run`, writes. `make_monitoring` is asked where the request wants monitoring files."""
    _check_flags(request)
    places = _places(request, settings)
    bundle = open_bundle(places.bundle_dir)
    policy, policy_source = (None, "") if request.topology == "llmapi" else _policy(request, settings)
    options = _options(request, places, bundle, policy)
    rendering = render(bundle, options)
    check_files(rendering.files, rendering.models)
    results = _plan(request, places, rendering)
    docker = None if request.dockerfile is None else _docker(request, places, bundle, options)
    monitoring = None
    if request.monitoring is not None and make_monitoring is not None:
        assert policy is not None, "flags were checked"
        files = make_monitoring(policy, settings, places.ports[2])
        folder = _monitoring_folder(request.monitoring, places.repository)
        monitoring = plan_folder(folder, files, force=request.force, what="folder")
    if not request.dry_run:
        write_models([*results, *([] if monitoring is None else [monitoring])])
        if docker is not None:
            from .docker_file import write_dockerfile

            write_dockerfile(docker.file)
    return RenderReport(
        repository=places.repository,
        bundle_dir=places.bundle_dir,
        bundle=bundle,
        topology=request.topology,
        models=rendering.models,
        policy=policy,
        policy_source=policy_source,
        results=results,
        warnings=rendering.warnings,
        stock_files=options.stock_files,
        docker=docker,
        monitoring=monitoring,
        dry_run=request.dry_run,
    )


def _check_flags(request: RenderRequest) -> None:
    """No flag without effect."""
    if request.topology not in TOPOLOGIES:
        raise InputError(f"--topology {request.topology}: unknown", hint=f"one of {', '.join(TOPOLOGIES)}")
    needs: Mapping[str, tuple[object, tuple[str, ...]]] = {
        "--stock-name": (request.stock_name, ("stock-engine",)),
        "--stock-parameter": (request.stock_parameters, ("stock-engine",)),
        "--stock-model-dir": (request.stock_model_dir, ("llmapi",)),
        "--cancellation-check-ms": (request.cancellation_check_ms, ("stock-engine", "llmapi")),
        "--policy": (request.policy, ("integrated", "stock-engine")),
        "--monitoring": (request.monitoring is not None, ("integrated", "stock-engine")),
    }
    for flag, (value, topologies) in needs.items():
        if value and request.topology not in topologies:
            raise InputError(
                f"{flag} has no effect with --topology {request.topology}", hint=f"it is for {' and '.join(topologies)}"
            )
    if request.base_image is not None and request.dockerfile is None:
        raise InputError("--base-image has no effect without --dockerfile", hint="add --dockerfile, or leave it out")


def _places(request: RenderRequest, settings: Settings) -> _Places:
    paths, server = settings.paths, settings.server
    chosen = (server.http_port, server.grpc_port, server.metrics_port)
    # 0 picks a free port at launch, which nobody could publish beforehand.
    http, grpc, metrics = (
        default if isinstance(port, Unset) or port == 0 else port for port, default in zip(chosen, _PORTS, strict=True)
    )
    return _Places(
        bundle_dir=_pick(
            request.bundle, paths.bundle, "which bundle?", "give BUNDLE, or paths.bundle in seekserve.yaml"
        ),
        repository=_pick(
            request.out, paths.repository, "where to?", "give --out, or paths.repository in seekserve.yaml"
        ),
        ports=(http, grpc, metrics),
    )


def _options(request: RenderRequest, places: _Places, bundle: Bundle, policy: Policy | None) -> RenderOptions:
    name, topology = _name(request, bundle), request.topology
    is_stock = topology != "integrated"
    stock_name = STOCK_MODEL if request.stock_name is None else check_model_name(request.stock_name, "--stock-name")
    return RenderOptions(
        model_name=name,
        bundle_dir=places.bundle_dir,
        policy=Policy() if policy is None else policy,
        topology=topology,
        placement=place(bundle, instances=request.instances, gpus=request.gpus),
        is_streaming=request.is_streaming,
        llm_args=read_llm_args(bundle, places.bundle_dir) if is_stock else {},
        cancellation_check_ms=request.cancellation_check_ms,
        stock_name=stock_name,
        stock_parameters=parse_parameters(request.stock_parameters),
        has_paged_context=has_paged_context(bundle, places.bundle_dir) if topology == "stock-engine" else None,
        stock_files=find_stock_files(
            request.stock_model_dir, model_folder=places.repository / name, repository=places.repository
        )
        if topology == "llmapi"
        else None,
    )


def _plan(request: RenderRequest, places: _Places, rendering: Rendering) -> tuple[WriteResult, ...]:
    names = [model.name for model in rendering.models]
    return tuple(
        plan_write(
            places.repository,
            name,
            {path: text for path, text in rendering.files.items() if path.startswith(f"{name}/")},
            bundle_dir=places.bundle_dir,
            force=request.force,
            beside=names,
        )
        for name in names
    )


def _docker(request: RenderRequest, places: _Places, bundle: Bundle, options: RenderOptions) -> DockerReport:
    from .docker import Container, build_commands, dockerfile_text, linked_folders
    from .docker_file import plan_dockerfile
    from .images import base_image

    image = base_image(request.base_image, None if bundle.trtllm is None else bundle.trtllm.version)
    container = Container(
        model_name=options.model_name,
        repository=places.repository,
        bundle_dir=places.bundle_dir,
        linked=linked_folders(places.bundle_dir),
        placement=options.placement,
        world_size=bundle.parallel.world_size,
        nodes=bundle.parallel.nodes,
        ports=places.ports,
    )
    text = dockerfile_text(bundle, image, container)
    result = plan_dockerfile(request.dockerfile or "", text, repository=places.repository, force=request.force)
    commands = [*build_commands(result.folder, container), container.run()]
    return DockerReport(file=result, image=image.name, image_source=image.source, commands=tuple(map(tuple, commands)))


def _monitoring_folder(given: str, repository: Path) -> Path:
    default = repository.with_name(f"{repository.name}.monitoring")
    folder = Path(given).expanduser().absolute() if given else default
    if folder == repository or repository in folder.parents:
        raise InputError(
            f"--monitoring {folder} lies inside the repository {repository}, which holds models only",
            hint=f"leave the path out: it goes to {default}",
        )
    return folder


def _pick(flag: Path | None, setting: Path | Unset, question: str, hint: str) -> Path:
    """Absolute, with links kept: an operator's stable link is what the repository shall name."""
    if flag is not None:
        return flag.expanduser().absolute()
    if isinstance(setting, Unset):
        raise InputError(question, hint=hint)
    return setting


def _name(request: RenderRequest, bundle: Bundle) -> str:
    """The bundle's name was resolved when it was built; to ask the file again could only contradict it."""
    if request.name is not None:
        return check_model_name(request.name, "flag --name")
    return check_model_name(bundle.name, "name in the bundle")


def _policy(request: RenderRequest, settings: Settings) -> tuple[Policy, str]:
    if request.policy is not None:
        return read_policy(request.policy), f"flag --policy {request.policy}"
    if isinstance(settings.policy, Unset):
        return Policy(), "default"
    where = f"file {settings.path}"
    if isinstance(settings.policy, Path):
        return read_policy(settings.policy, setting=f"policy in {settings.path}"), f"{where}: {settings.policy}"
    return policy_from_data(settings.policy, where=f"{settings.path}: policy"), where
