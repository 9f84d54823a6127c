"""seekserve.yaml: all choices in one file, each of which a flag or the environment overrides.

Reads and checks; decides nothing. Every unknown, repeated or mistyped key is reported at once, with its dotted path.
Relative paths mean relative to the file, so that it works from any folder.

    checkpoint: deepseek-ai/DeepSeek-V2-Lite-Chat
    name: chat
    target: {engine: reference}               # or gpu, gpus, nodes, trtllm_version
    parallel: {tp: 8, ep: 8}                  # for engines on GPUs
    workload: {isl_tokens: 4000, osl_tokens: 1000}
    limits: {max_seq_len_tokens: 4096, max_batch_size: 16}
    kv_cache: {dtype: fp8_e4m3, block_tokens: 32}
    policy: policy.yaml                       # or the policy itself
    server: {host: 127.0.0.1, http_port: 8000, grpc_port: 8001, metrics_port: 8002}
    monitoring: {objective: 0.995}            # see monitor/choices.py
    paths: {bundle: build/chat, repository: build/repo, backends: build/backends}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seekserve.errors import ConfigError
from seekserve.output import problems_text
from seekserve.plan.inputs import Inputs, file_inputs
from seekserve.plan.plan import UNSET, Unset
from seekserve.plan.target import ALL_FIELDS
from seekserve.plan.yaml_file import read_yaml
from seekserve_backend.contract.fields import ContractError, Fields

__all__ = [
    "DEFAULT_FILE",
    "PathSettings",
    "ServerSettings",
    "Settings",
    "announced_settings",
    "find_settings",
    "load_settings",
]

DEFAULT_FILE = "seekserve.yaml"
_SECTIONS = ("target", "parallel", "workload", "limits", "kv_cache", "memory", "server", "paths")
_NULLABLE = (*_SECTIONS, "monitoring")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    host: str | Unset = UNSET
    http_port: int | Unset = UNSET
    grpc_port: int | Unset = UNSET
    metrics_port: int | Unset = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSettings:
    """Absolute."""

    bundle: Path | Unset = UNSET
    repository: Path | Unset = UNSET
    backends: Path | Unset = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the file says. Without a file everything is UNSET."""

    path: Path | None = None
    checkpoint: str | Unset = UNSET
    """A path that exists, made absolute, or whatever the file says (a hub id)."""
    inputs: Inputs = field(default_factory=Inputs)
    policy: Path | Mapping[str, Any] | Unset = UNSET
    """A policy file, or the policy itself."""
    monitoring: Mapping[str, Any] = field(default_factory=dict)
    """As it stands in the file; `render --monitoring` reads it."""
    server: ServerSettings = field(default_factory=ServerSettings)
    paths: PathSettings = field(default_factory=PathSettings)


def find_settings(config: Path | None, folder: Path) -> Settings:
    """`config`, which must exist; otherwise seekserve.yaml in `folder`; otherwise nothing."""
    if config is not None:
        return load_settings(config)
    default = folder / DEFAULT_FILE
    return load_settings(default) if default.is_file() else Settings()


def announced_settings(config: Path | None) -> Settings:
    """As `find_settings`, for commands: a file that nobody named is mentioned on stderr."""
    import click

    settings = find_settings(config, Path.cwd())
    if config is None and settings.path is not None:
        click.echo(f"using {settings.path}", err=True)
    return settings


def load_settings(path: Path) -> Settings:
    """Raises ConfigError with every fault of the file."""
    data = read_yaml(path, setting="--config")
    if isinstance(data, Mapping):
        # A section whose lines are all commented out reads as null and means: nothing set here.
        data = {key: {} if value is None and key in _NULLABLE else value for key, value in data.items()}
    try:
        return _read(Fields(data, str(path)), path)
    except ContractError as error:
        raise ConfigError(problems_text(str(path), error.problems)) from error


def _read(fields: Fields, path: Path) -> Settings:
    folder = path.absolute().parent
    sections = {name: fields.nested(name, fields.mapping(name, {})) for name in _SECTIONS}
    server, paths = sections["server"], sections["paths"]
    out = Settings(
        path=path,
        checkpoint=_checkpoint(fields, folder),
        inputs=_inputs(fields, sections, path),
        policy=_policy(fields, folder),
        monitoring=fields.mapping("monitoring", {}),
        server=ServerSettings(
            host=_optional_string(server, "host"),
            http_port=_port(server, "http_port"),
            grpc_port=_port(server, "grpc_port"),
            metrics_port=_port(server, "metrics_port"),
        ),
        paths=PathSettings(
            bundle=_path(paths, "bundle", folder),
            repository=_path(paths, "repository", folder),
            backends=_path(paths, "backends", folder),
        ),
    )
    for section in sections.values():
        section.done()
    fields.done()
    return out


def _inputs(fields: Fields, sections: Mapping[str, Fields], path: Path) -> Inputs:
    """Reads every plan field at its own dotted place."""
    values: dict[str, object] = {}
    for spec in ALL_FIELDS:
        section, _, key = spec.file_key.rpartition(".")
        value = _value(sections[section] if section else fields, key, spec.kind)
        if value is not None:
            values[spec.name] = value
    return file_inputs(values, path, ALL_FIELDS)


def _value(reader: Fields, key: str, kind: type) -> object:
    if kind is bool:
        return reader.boolean(key) if reader.has(key) else None
    if kind is int:
        return reader.opt_integer(key)
    return reader.opt_number(key) if kind is float else reader.opt_string(key)


def _checkpoint(fields: Fields, folder: Path) -> str | Unset:
    value = fields.opt_string("checkpoint")
    if value is None:
        return UNSET
    local = folder / Path(value).expanduser()
    return str(local) if local.exists() else value


def _policy(fields: Fields, folder: Path) -> Path | Mapping[str, Any] | Unset:
    if not fields.has("policy"):
        fields.opt_string("policy")
        return UNSET
    value = fields.raw("policy")
    if isinstance(value, Mapping):
        return value
    if isinstance(value, str):
        return folder / Path(value).expanduser()
    fields.problem(f"policy: expected the path of a policy file or the policy itself, got {value!r}")
    return UNSET


def _optional_string(fields: Fields, key: str) -> str | Unset:
    value = fields.opt_string(key)
    return UNSET if value is None else value


def _port(fields: Fields, key: str) -> int | Unset:
    value = fields.opt_integer(key, low=0, high=65535)
    return UNSET if value is None else value


def _path(fields: Fields, key: str, folder: Path) -> Path | Unset:
    value = fields.opt_string(key)
    return UNSET if value is None else folder / Path(value).expanduser()
