"""The `render` job: open the bundle, render, read back, then write. All checks come before the first byte written."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from seekserve.errors import InputError
from seekserve.output import json_text, table
from seekserve.plan.bundle import open_bundle
from seekserve.plan.names import check_model_name
from seekserve.plan.plan import Unset
from seekserve.settings import Settings
from seekserve_backend.contract.bundle import Bundle
from seekserve_backend.contract.policy import Policy

from .check import check_files
from .policy import policy_from_data, read_policy
from .render import RenderOptions, model_parameters, render
from .write import WriteResult, plan_write, write_model

__all__ = ["RenderReport", "RenderRequest", "publish"]

_STATUS = {"create": "rendered", "replace": "replaced", "keep": "unchanged"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderRequest:
    """What the flags say; None falls back to the settings file, then to the default."""

    bundle: Path | None = None
    out: Path | None = None
    name: str | None = None
    policy: Path | None = None
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderReport:
    repository: Path
    bundle_dir: Path
    bundle: Bundle
    policy: Policy
    policy_source: str
    result: WriteResult
    dry_run: bool

    @property
    def model_name(self) -> str:
        return self.result.folder.name

    def json_text(self) -> str:
        return json_text(
            {
                "status": "dry-run" if self.dry_run else _STATUS[self.result.action],
                "action": self.result.action,
                "model": self.model_name,
                "repository": str(self.repository),
                "bundle": str(self.bundle_dir),
                "policy": {"name": self.policy.name, "source": self.policy_source},
                "files": dict(self.result.files) if self.dry_run else sorted(self.result.files),
            }
        )

    def text(self) -> str:
        limits, kv = self.bundle.limits, self.bundle.kv
        verb = f"would {self.result.action}" if self.dry_run else _STATUS[self.result.action]
        rows = [
            ("bundle", f"{self.bundle_dir} ({self.bundle.engine}, {self.bundle.family})"),
            (
                "limits",
                f"{limits.max_seq_len_tokens} tokens per request, {limits.max_batch_size} requests at once",
            ),
            ("KV cache", f"{kv.capacity_tokens} tokens in {kv.capacity_blocks} blocks, {kv.dtype}"),
            ("policy", f"{self.policy.name} ({self.policy_source}), classes {', '.join(self.policy.classes)}"),
            ("files", ", ".join(path.partition("/")[2] for path in self.result.files)),
        ]
        lines = [f"{verb} model {self.model_name} in {self.repository}", *table(rows)]
        if self.dry_run:
            for path, text in self.result.files.items():
                lines += ["", f"--- {path}", *text.splitlines()]
        else:
            lines.append(f"next: seekserve launch {shlex.quote(str(self.repository))} --backend-dir BACKENDS_DIR")
        return "\n".join(lines)


def publish(request: RenderRequest, settings: Settings) -> RenderReport:
    """Renders and, unless `dry_run`, writes."""
    paths = settings.paths
    bundle_dir = _pick(request.bundle, paths.bundle, "which bundle?", "give BUNDLE, or paths.bundle in seekserve.yaml")
    repository = _pick(request.out, paths.repository, "where to?", "give --out, or paths.repository in seekserve.yaml")
    bundle = open_bundle(bundle_dir)
    policy, policy_source = _policy(request, settings)
    options = RenderOptions(model_name=_name(request, bundle), bundle_dir=bundle_dir, policy=policy)
    files = render(bundle, options)
    check_files(files, model_name=options.model_name, parameters=model_parameters(options))
    result = plan_write(repository, options.model_name, files, bundle_dir=bundle_dir, force=request.force)
    if not request.dry_run:
        write_model(result)
    return RenderReport(
        repository=repository,
        bundle_dir=bundle_dir,
        bundle=bundle,
        policy=policy,
        policy_source=policy_source,
        result=result,
        dry_run=request.dry_run,
    )


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
