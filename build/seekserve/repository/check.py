"""Reads a rendered model back through Triton's own protobuf schema and holds it against what was meant, field by field.

Triton would accept several differences and misbehave later (a decoupled flag that is off, a queue that never sheds), so
each of them is a sentence of its own and all are reported together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seekserve.errors import RenderError
from seekserve.output import problems_text

from .model_config import CONFIG_FILE, ModelConfig, TensorConfig
from .our_model import our_model

__all__ = ["check_files", "config_problems", "differences", "parse_config", "repository_problems", "tensors_of"]


def check_files(files: Mapping[str, str], models: Sequence[ModelConfig]) -> None:
    """Raises RenderError unless each rendered config means exactly what was meant."""
    for model in models:
        where = f"{model.name}/{CONFIG_FILE}"
        problems = differences(files[where], model)
        if problems:
            raise RenderError(
                problems_text(f"rendered {where}", problems), hint="the template is at fault: please report it"
            )


def config_problems(text: str, *, model_name: str, parameters: Mapping[str, str]) -> list[str]:
    """As `differences`, for a model of ours of which only name and parameters are known; both streaming and not, with
    any number of instances."""
    try:
        config = parse_config(text)
    except ValueError as error:
        return [str(error)]
    model = our_model(
        model_name,
        parameters,
        instances=sum(group.count for group in config.instance_group),
    )
    return differences(text, model)


def differences(text: str, model: ModelConfig) -> list[str]:
    """One sentence for each; a text that does not parse is one problem."""
    try:
        config = parse_config(text)
    except ValueError as error:
        return [str(error)]
    problems = [f"the placeholder {mark} is left in it" for mark in ("${", "{{", "{%") if mark in text]
    for rule in _RULES:
        problems += rule(config, model)
    found = {key: value.string_value for key, value in config.parameters.items()}
    for key in sorted({*found, *model.parameters}):
        if found.get(key) != model.parameters.get(key):
            problems.append(f"parameter {key} is {found.get(key)!r} where {model.parameters.get(key)!r} was meant")
    return problems


def parse_config(text: str) -> Any:
    """The ModelConfig message. Raises ValueError with line and column."""
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    try:
        return text_format.Parse(text, model_config_pb2.ModelConfig())
    except text_format.ParseError as error:
        raise ValueError(f"not a Triton model configuration: {error}") from error


def repository_problems(repository: Path) -> list[str]:
    """Folders that Triton would take for a model although they are none (tensorrtllm_backend #83)."""
    problems = []
    for child in sorted(repository.iterdir()):
        if not child.is_dir() or child.name.startswith("."):
            continue
        if not (child / CONFIG_FILE).is_file():
            problems.append(f"{child.name}/ has no {CONFIG_FILE}, so Triton would take it for a broken model")
        elif not any(sub.is_dir() and sub.name.isdecimal() for sub in child.iterdir()):
            problems.append(f"{child.name}/ has no numbered version folder such as {child.name}/1")
    return problems


def tensors_of(tensors: Sequence[Any]) -> tuple[TensorConfig, ...]:
    """Inputs or outputs of a parsed configuration."""
    from tritonclient.grpc import model_config_pb2

    return tuple(
        TensorConfig(
            name=tensor.name,
            data_type=model_config_pb2.DataType.Name(tensor.data_type),
            dims=tuple(tensor.dims),
            is_optional=getattr(tensor, "optional", False),
            is_ragged=getattr(tensor, "allow_ragged_batch", False),
            is_reshaped=tensor.HasField("reshape"),
        )
        for tensor in tensors
    )


def _name(config: Any, model: ModelConfig) -> Iterable[str]:
    if config.name != model.name:
        yield f"name is {config.name!r} in the folder {model.name!r}; Triton wants them equal"


def _backend(config: Any, model: ModelConfig) -> Iterable[str]:
    if config.backend != model.backend:
        yield f"backend is {config.backend!r}, not {model.backend!r}"


def _decoupled(config: Any, model: ModelConfig) -> Iterable[str]:
    found = config.model_transaction_policy.decoupled
    if found != model.is_decoupled:
        why = "streaming needs true" if model.is_decoupled else "it was rendered with --no-streaming"
        yield f"model_transaction_policy.decoupled is {_word(found)} where {_word(model.is_decoupled)} was meant; {why}"


def _batching(config: Any, model: ModelConfig) -> Iterable[str]:
    if config.max_batch_size != model.max_batch_size:
        yield f"max_batch_size is {config.max_batch_size} where {model.max_batch_size} was meant"
    wanted = "dynamic_batching" if model.has_dynamic_batching else None
    scheduler = config.WhichOneof("scheduling_choice")
    if scheduler != wanted:
        yield f"{scheduler} is set where {wanted or 'no scheduler of Triton'} was meant"


def _instances(config: Any, model: ModelConfig) -> Iterable[str]:
    groups = [(group.Kind.Name(group.kind), group.count) for group in config.instance_group]
    if groups != [(model.instance_kind, model.instances)]:
        yield f"instance_group is {groups} where {[(model.instance_kind, model.instances)]} was meant"


def _inputs(config: Any, model: ModelConfig) -> Iterable[str]:
    yield from _tensors("input", tensors_of(config.input), model.inputs)


def _outputs(config: Any, model: ModelConfig) -> Iterable[str]:
    yield from _tensors("output", tensors_of(config.output), model.outputs)


def _tensors(kind: str, found: Sequence[TensorConfig], meant: Sequence[TensorConfig]) -> Iterable[str]:
    given, wanted = {each.name: each for each in found}, {each.name: each for each in meant}
    if len(given) != len(found):
        yield f"an {kind} stands in it twice"
    for name in [*wanted, *(name for name in given if name not in wanted)]:
        if given.get(name) != wanted.get(name):
            yield f"{kind} {name} is {_tensor_text(given.get(name))} where {_tensor_text(wanted.get(name))} was meant"


def _tensor_text(tensor: TensorConfig | None) -> str:
    if tensor is None:
        return "absent"
    flags = {"optional": tensor.is_optional, "ragged": tensor.is_ragged, "a scalar": tensor.is_reshaped}
    return ", ".join([f"{tensor.data_type} {list(tensor.dims)}", *(word for word, is_set in flags.items() if is_set)])


def _word(value: bool) -> str:
    return "true" if value else "false"


_RULES: tuple[Callable[[Any, ModelConfig], Iterable[str]], ...] = (
    _name,
    _backend,
    _decoupled,
    _batching,
    _instances,
    _inputs,
    _outputs,
)
