"""What `render` tells about its work: for people with the next command lines, for machines as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seekserve.output import json_text, table
from seekserve_backend.contract.bundle import Bundle
from seekserve_backend.contract.policy import Policy

from .model_config import ModelConfig
from .render import VERSION_FOLDER
from .stock_files import IMAGE_FOLDER, NEEDED, StockFiles
from .write import WriteResult

__all__ = ["DockerReport", "RenderReport"]

_STATUS = {"create": "rendered", "replace": "replaced", "keep": "unchanged"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerReport:
    file: WriteResult
    image: str
    image_source: str
    commands: tuple[tuple[str, ...], ...]
    """To build the image, then to run it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderReport:
    repository: Path
    bundle_dir: Path
    bundle: Bundle
    topology: str
    models: tuple[ModelConfig, ...]
    policy: Policy | None
    """None where no model of ours would read it."""
    policy_source: str
    results: tuple[WriteResult, ...]
    """One for each model, in the order of `models`."""
    warnings: tuple[str, ...]
    stock_files: StockFiles | None
    docker: DockerReport | None
    monitoring: WriteResult | None
    dry_run: bool

    @property
    def model_name(self) -> str:
        return self.models[0].name

    @property
    def result(self) -> WriteResult:
        """Of the model that clients call."""
        return self.results[0]

    def json_text(self) -> str:
        files = {path: text for result in self.results for path, text in result.files.items()}
        data: dict[str, object] = {
            "status": "dry-run" if self.dry_run else _STATUS[self.result.action],
            "action": self.result.action,
            "topology": self.topology,
            "model": self.model_name,
            "models": [
                {"name": model.name, "backend": model.backend, "instances": model.instances, "action": result.action}
                for model, result in zip(self.models, self.results, strict=True)
            ],
            "repository": str(self.repository),
            "bundle": str(self.bundle_dir),
            "policy": None if self.policy is None else {"name": self.policy.name, "source": self.policy_source},
            "files": files if self.dry_run else sorted(files),
            "warnings": list(self.warnings),
            "stock_files": None if self.stock_files is None else dict(self.stock_files.hashes),
        }
        if self.docker is not None:
            data["docker"] = {
                "file": str(self.docker.file.folder),
                "action": self.docker.file.action,
                "base_image": self.docker.image,
                "commands": [list(command) for command in self.docker.commands],
                **({"text": next(iter(self.docker.file.files.values()))} if self.dry_run else {}),
            }
        if self.monitoring is not None:
            made = self.monitoring.files
            data["monitoring"] = {
                "folder": str(self.monitoring.folder),
                "action": self.monitoring.action,
                "files": dict(made) if self.dry_run else sorted(made),
            }
        return json_text(data)

    def text(self) -> str:
        lines = [*self._titles(), *table(self._rows())]
        lines += [f"  warning: {warning}" for warning in self.warnings]
        if self.dry_run:
            written = [*self.results, *([] if self.docker is None else [self.docker.file])]
            written += [] if self.monitoring is None else [self.monitoring]
            for path, text in (item for result in written for item in result.files.items()):
                lines += ["", f"--- {path}", *text.splitlines()]
        return "\n".join([*lines, *self._next_steps()])

    def _titles(self) -> Iterator[str]:
        for model, result in zip(self.models, self.results, strict=True):
            verb = f"would {result.action}" if self.dry_run else _STATUS[result.action]
            yield f"{verb} model {model.name} in {self.repository}"

    def _rows(self) -> list[tuple[str, str]]:
        limits, kv = self.bundle.limits, self.bundle.kv
        files = [path for result in self.results for path in result.files]
        rows = [
            ("bundle", f"{self.bundle_dir} ({self.bundle.engine}, {self.bundle.family})"),
            ("limits", f"{limits.max_seq_len_tokens} tokens per request, {limits.max_batch_size} requests at once"),
            ("KV cache", f"{kv.capacity_tokens} tokens in {kv.capacity_blocks} blocks, {kv.dtype}"),
        ]
        if self.policy is not None:
            classes = ", ".join(self.policy.classes)
            rows.append(("policy", f"{self.policy.name} ({self.policy_source}), classes {classes}"))
        if self.topology != "integrated":
            chain = " -> ".join(f"{model.name} ({model.backend})" for model in self.models)
            rows.append(("topology", f"{self.topology}: {chain}"))
        gpus = next((m.parameters["gpu_device_ids"] for m in self.models if "gpu_device_ids" in m.parameters), None)
        count = max(model.instances for model in self.models)
        if gpus is not None:
            rows.append(("instances", f"{count}, on GPUs {gpus.replace(';', ' and ')}"))
        elif count > 1:
            rows.append(("instances", str(count)))
        names = [path.partition("/")[2] if len(self.results) == 1 else path for path in files]
        rows.append(("files", ", ".join(names)))
        if self.stock_files is not None:
            hashes = ", ".join(f"{name} {digest[:12]}" for name, digest in self.stock_files.hashes.items())
            rows.append(("from image", f"{self.stock_files.folder}: {hashes}"))
        if self.docker is not None:
            rows.append(
                ("Dockerfile", f"{self.docker.file.folder} on {self.docker.image} ({self.docker.image_source})")
            )
        if self.monitoring is not None:
            names = [path.partition("/")[2] for path in self.monitoring.files]
            rows.append(("monitoring", f"{self.monitoring.folder}: {', '.join(names)}"))
        return rows

    def _next_steps(self) -> Iterator[str]:
        if self.topology == "llmapi" and self.stock_files is None:
            sources = [f"{IMAGE_FOLDER}/{VERSION_FOLDER}/{name}" for name in NEEDED]
            yield f"in the image that will serve: {_line(['cp', *sources, f'{self.result.folder}/{VERSION_FOLDER}/'])}"
        if self.dry_run and self.docker is None:
            return
        if self.docker is None:
            yield f"next: seekserve launch {shlex.quote(str(self.repository))} --backend-dir BACKENDS_DIR"
            return
        for number, command in enumerate(self.docker.commands):
            yield f"{'next' if number == 0 else 'then'}: {_line(command)}"


def _line(argv: Sequence[str]) -> str:
    return " ".join(shlex.quote(word) for word in argv)
