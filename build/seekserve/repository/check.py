"""Reads a rendered model back: Triton's own protobuf schema first, then the meaning that the schema cannot see.

Triton would accept several of these and misbehave later (a decoupled flag that is off, a queue that never sheds), so
each rule stands on its own and all broken ones are reported together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seekserve.errors import RenderError
from seekserve.output import problems_text
from seekserve_backend.contract.tensors import INPUTS, OUTPUTS, TensorSpec

from .render import BACKEND_NAME, CONFIG_FILE

__all__ = ["check_files", "config_problems", "parse_config", "repository_problems"]


def check_files(files: Mapping[str, str], *, model_name: str, parameters: Mapping[str, str]) -> None:
    """Raises RenderError unless the rendered config means exactly what was meant."""
    where = f"{model_name}/{CONFIG_FILE}"
    problems = config_problems(files[where], model_name=model_name, parameters=parameters)
    if problems:
        raise RenderError(
            problems_text(f"rendered {where}", problems), hint="the template is at fault: please report it"
        )


def config_problems(text: str, *, model_name: str, parameters: Mapping[str, str]) -> list[str]:
    """One sentence for each rule that the text breaks; a text that does not parse breaks one."""
    try:
        config = parse_config(text)
    except ValueError as error:
        return [str(error)]
    problems = [f"the placeholder {mark} is left in it" for mark in ("${", "{{", "{%") if mark in text]
    for rule in _RULES:
        problems += rule(config)
    if config.name != model_name:
        problems.append(f"name is {config.name!r} in the folder {model_name!r}; Triton wants them equal")
    found = {key: value.string_value for key, value in config.parameters.items()}
    for key in sorted({*found, *parameters}):
        if found.get(key) != parameters.get(key):
            problems.append(f"parameter {key} is {found.get(key)!r} where {parameters.get(key)!r} was meant")
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


def _backend(config: Any) -> Iterable[str]:
    if config.backend != BACKEND_NAME:
        yield f"backend is {config.backend!r}, not {BACKEND_NAME!r}"


def _decoupled(config: Any) -> Iterable[str]:
    if not config.model_transaction_policy.decoupled:
        yield "model_transaction_policy.decoupled is false; streaming needs true"


def _batching(config: Any) -> Iterable[str]:
    if config.max_batch_size < 1:
        yield f"max_batch_size is {config.max_batch_size}; below 1, Triton refuses the [1, 1] tensors of stock clients"
    scheduler = config.WhichOneof("scheduling_choice")
    if scheduler:
        yield f"{scheduler} is set; the backend schedules, and Triton's queue in front of it would hide the load"


def _instances(config: Any) -> Iterable[str]:
    groups = [(group.Kind.Name(group.kind), group.count) for group in config.instance_group]
    if groups != [("KIND_CPU", 1)]:
        yield f"instance_group is {groups}; one KIND_CPU instance owns the engine"


def _inputs(config: Any) -> Iterable[str]:
    yield from _tensors("input", config.input, INPUTS)
    yield from (f"input {tensor.name} is not optional" for tensor in config.input if not tensor.optional)


def _outputs(config: Any) -> Iterable[str]:
    yield from _tensors("output", config.output, OUTPUTS)


def _tensors(kind: str, found: Sequence[Any], specs: Sequence[TensorSpec]) -> Iterable[str]:
    from tritonclient.grpc import model_config_pb2

    wanted = {spec.name: (f"TYPE_{spec.data_type}", list(spec.dims)) for spec in specs}
    given = {tensor.name: (model_config_pb2.DataType.Name(tensor.data_type), list(tensor.dims)) for tensor in found}
    if len(given) != len(found):
        yield f"an {kind} stands in it twice"
    for name in [*wanted, *(name for name in given if name not in wanted)]:
        is_given, is_wanted = given.get(name), wanted.get(name)
        if is_given != is_wanted:
            yield f"{kind} {name} is {_tensor_text(is_given)} where the contract says {_tensor_text(is_wanted)}"


def _tensor_text(tensor: tuple[str, list[int]] | None) -> str:
    return "absent" if tensor is None else f"{tensor[0]} {tensor[1]}"


_RULES: tuple[Callable[[Any], Iterable[str]], ...] = (_backend, _decoupled, _batching, _instances, _inputs, _outputs)
