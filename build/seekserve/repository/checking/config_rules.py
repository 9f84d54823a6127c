"""Rules that hold for every Triton model and that its protobuf schema does not check.

Triton accepts several of these and then behaves otherwise than the file reads: a priority that does not exist, a batch
that is never formed, a cache that a decoupled model never uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .finding import RepositoryFinding, error, warning
from .model import ModelFolder

__all__ = ["config_findings"]

_PLACEHOLDER = re.compile(r"\$\{[^}]*}?|\{\{.*?(?:}}|$)|\{%.*?(?:%}|$)")


def config_findings(model: ModelFolder) -> Iterator[RepositoryFinding]:
    for rule in _RULES:
        yield from rule(model)


def _placeholders(model: ModelFolder) -> Iterator[RepositoryFinding]:
    for number, line in enumerate(model.text.split("\n"), start=1):
        found = _PLACEHOLDER.search(line.split("#", 1)[0])
        if found is not None:
            message = f"the placeholder {found[0][:80]!r} was not filled in"
            yield error("placeholder", model.config_file, number, message, "fill it in, or leave the line out")


def _name(model: ModelFolder) -> Iterator[RepositoryFinding]:
    if model.config.name not in ("", model.name):
        line = model.value_line("name", model.config.name)
        message = f"says name {model.config.name!r} in the folder {model.name!r}; Triton wants them equal"
        yield error("name", model.config_file, line, message)


def _runner(model: ModelFolder) -> Iterator[RepositoryFinding]:
    config = model.config
    if not config.backend and not config.platform:
        yield error("no-backend", model.config_file, None, "names neither backend nor platform")
    is_ensemble = config.platform == "ensemble"
    if is_ensemble != (config.WhichOneof("scheduling_choice") == "ensemble_scheduling"):
        message = "platform ensemble and ensemble_scheduling belong together"
        yield error("ensemble", model.config_file, model.line("platform"), message)
    if config.backend == "python":
        file = config.default_model_filename or "model.py"
        for version in model.versions:
            if not (version / file).is_file():
                where = f"{model.name}/{version.name}/{file}"
                yield error("model-file", where, None, "does not exist, and the python backend runs it")


def _batching(model: ModelFolder) -> Iterator[RepositoryFinding]:
    config, file = model.config, model.config_file
    if config.max_batch_size < 0:
        yield error("max-batch", file, model.line("max_batch_size"), f"max_batch_size is {config.max_batch_size}")
    if config.WhichOneof("scheduling_choice") != "dynamic_batching":
        return
    batching = config.dynamic_batching
    if config.max_batch_size < 1:
        message = "dynamic_batching with max_batch_size 0: Triton refuses to batch"
        yield error("batch-zero", file, model.line("dynamic_batching"), message, "set max_batch_size to 1 or more")
    too_large = [size for size in batching.preferred_batch_size if size > max(config.max_batch_size, 1)]
    if too_large:
        message = f"preferred_batch_size {too_large} is above max_batch_size {config.max_batch_size}"
        yield error("preferred-batch", file, model.line("preferred_batch_size"), message)
    levels = batching.priority_levels
    if batching.default_priority_level > levels:
        message = f"default_priority_level is {batching.default_priority_level} of {levels} priority_levels"
        yield error("priority", file, model.line("default_priority_level"), message)
    elif levels and not batching.default_priority_level:
        message = f"priority_levels is {levels} without default_priority_level: requests without a priority are refused"
        yield error("priority", file, model.line("priority_levels"), message)
    for level in batching.priority_queue_policy:
        if not 1 <= level <= levels:
            message = f"a queue policy for priority {level}, of {levels} priority_levels"
            yield error("priority", file, model.line("priority_queue_policy"), message)
    if model.is_decoupled and batching.default_queue_policy.max_queue_size:
        message = "max_queue_size does not limit a decoupled model that answers later than execute returns"
        yield warning("queue-limit", file, model.line("max_queue_size"), message, "shed inside the backend")


def _instances(model: ModelFolder) -> Iterator[RepositoryFinding]:
    from tritonclient.grpc import model_config_pb2

    for group in model.config.instance_group:
        kind = model_config_pb2.ModelInstanceGroup.Kind.Name(group.kind)
        if group.count < 0:
            yield error("instances", model.config_file, model.line("count"), f"instance count is {group.count}")
        if group.gpus and kind == "KIND_CPU":
            message = f"instance_group has gpus {list(group.gpus)} and KIND_CPU, which uses none"
            yield error("instances", model.config_file, model.line("gpus"), message)
        if len({*group.gpus}) != len(group.gpus):
            message = f"instance_group names a GPU twice: {list(group.gpus)}"
            yield warning("instances", model.config_file, model.line("gpus"), message)


def _tensors(model: ModelFolder) -> Iterator[RepositoryFinding]:
    for side in ("input", "output"):
        seen: set[str] = set()
        for tensor in getattr(model.config, side):
            line = model.value_line("name", tensor.name)
            if tensor.name in seen:
                yield error("tensor-twice", model.config_file, line, f"declares the {side} {tensor.name!r} twice")
            seen.add(tensor.name)
            if not tensor.name:
                yield error("tensor", model.config_file, line, f"has an {side} without a name")
            if not tensor.data_type:
                yield error("tensor", model.config_file, line, f"{side} {tensor.name!r} has no data_type")
            bad = [size for size in tensor.dims if size < -1 or size == 0]
            if bad or (not tensor.dims and not tensor.HasField("reshape")):
                message = f"{side} {tensor.name!r} has dims {list(tensor.dims)}; each is -1 or above 0"
                yield error("dims", model.config_file, line, message)


def _cache(model: ModelFolder) -> Iterator[RepositoryFinding]:
    if model.is_decoupled and model.config.response_cache.enable:
        message = "response_cache is on for a decoupled model: Triton refuses to load it"
        yield error("cache", model.config_file, model.line("response_cache"), message)


_RULES: tuple[Callable[[ModelFolder], Iterator[RepositoryFinding]], ...] = (
    _placeholders,
    _name,
    _runner,
    _batching,
    _instances,
    _tensors,
    _cache,
)
