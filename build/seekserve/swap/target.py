"""What is to be swapped: the launch, the model in it, the bundle that it serves now and the one that it shall serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seekserve.errors import ConflictError, InputError
from seekserve.output import problems_text
from seekserve.plan.bundle import open_bundle
from seekserve.server.models import ServedModel, read_models
from seekserve.server.orders import ORDERS_FOLDER
from seekserve.server.record import LaunchRecord, find_records
from seekserve.server.stopping import choose_record
from seekserve_backend.contract.bundle import BUNDLE_FILE, Bundle

__all__ = ["Target", "find_bundle", "find_launch", "find_model"]

_GROUPS = ("leader", "llmapi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    record: LaunchRecord
    model: ServedModel
    old_dir: Path
    old: Bundle
    new_dir: Path
    new: Bundle


def find_launch(
    repository: Path | None, *, pid_file: Path | None, launch_id: str | None, env: Mapping[str, str]
) -> LaunchRecord:
    """The running launch that is meant; it must be ready and take orders."""
    if pid_file is None and launch_id is None and repository is not None:
        record = _launch_of(repository, env)
    else:
        record = LaunchRecord.read(choose_record(pid_file=pid_file, launch_id=launch_id, env=env))
        if repository is not None and Path(record.repository).resolve() != repository.resolve():
            raise InputError(f"launch {record.id} serves {record.repository}, not {repository}")
    if not record.supervisor_is_alive():
        raise ConflictError(
            f"launch {record.id} is not running any more", hint="there is nothing to swap: render and launch instead"
        )
    if record.state != "ready":
        raise ConflictError(f"launch {record.id} is {record.state}, not ready", hint="try again when it is ready")
    if record.plan.replace(",", " ").split()[0] in _GROUPS:
        raise ConflictError(
            f"the ranks of launch {record.id} ({record.plan}) are separate servers, which cannot be swapped together",
            hint="render the new variant, then `seekserve stop` and `seekserve launch`",
        )
    if not (Path(record.run_dir) / ORDERS_FOLDER).is_dir():
        raise ConflictError(
            f"launch {record.id} takes no orders: an older seekserve started it, or another user",
            hint="stop it and launch again",
        )
    return record


def _launch_of(repository: Path, env: Mapping[str, str]) -> LaunchRecord:
    if not repository.is_dir():
        raise InputError(f"repository {repository} is not a folder", hint="name the one that was launched")
    found = [record for path in find_records(env) if (record := LaunchRecord.read_if_there(path)) is not None]
    ours = [record for record in found if Path(record.repository).resolve() == repository.resolve()]
    alive = [record for record in ours if record.supervisor_is_alive()]
    if not alive:
        raise InputError(
            f"no running launch serves {repository}",
            hint="name the launch with --id or --pid-file, or start one with `seekserve launch`",
        )
    if len(alive) > 1:
        raise InputError(
            f"{len(alive)} launches serve {repository}: {', '.join(record.id for record in alive)}; choose with --id"
        )
    return alive[0]


def find_model(record: LaunchRecord, name: str | None) -> ServedModel:
    """A model of ours with its engine inside our backend."""
    models, problems = read_models(Path(record.repository), only=record.models)
    if problems:
        raise InputError(problems_text(f"repository {record.repository}", problems))
    ours = {model.name: model for model in models if model.is_ours}
    if name is None and len(ours) == 1:
        name = next(iter(ours))
    if name is None:
        raise InputError(f"launch {record.id} serves {', '.join(ours) or 'no model of ours'}; choose with --model")
    if name not in ours:
        raise InputError(
            f"launch {record.id} serves no model {name!r} of ours", hint=f"it serves {', '.join(ours) or 'none'}"
        )
    model = ours[name]
    if "stock_model" in model.parameters:
        raise ConflictError(
            f"model {name} calls the stock model {model.parameters['stock_model']!r}, which holds the engine",
            hint="render the new variant, then `seekserve stop` and `seekserve launch`",
        )
    assert model.bundle_dir is not None, "read_models has looked for it"
    return model


def find_bundle(to: str, present_dir: Path, present: Bundle) -> Path:
    """A bundle folder, or the name of a variant that `build-engine --variant` put beside the present one."""
    given = Path(to).expanduser()
    if (given / BUNDLE_FILE).is_file():
        return given.absolute()
    if "/" in to or to in (".", ".."):
        open_bundle(given)  # says what is wrong with it
        raise AssertionError(f"{given} has no {BUNDLE_FILE}")
    beside = present_dir.parent
    for name in (f"{_base_name(present_dir, present)}-{to}", f"{present_dir.name}-{to}", to):
        if (beside / name / BUNDLE_FILE).is_file():
            return (beside / name).absolute()
    there = sorted(path.parent.name for path in beside.glob(f"*/{BUNDLE_FILE}") if path.parent != present_dir)
    raise InputError(
        f"--to {to}: no bundle of that path, and no variant of that name beside {present_dir}",
        hint=f"bundles there: {', '.join(there)}" if there else "build it with `seekserve build-engine --variant NAME`",
    )


def _base_name(folder: Path, bundle: Bundle) -> str:
    """The folder's name without the variant that the bundle was built as."""
    _, mark, variant = bundle.sources.get("name", "").rpartition("--variant ")
    return folder.name.removesuffix(f"-{variant}") if mark else folder.name
