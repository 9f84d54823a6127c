"""Models that call others: the steps of an ensemble, and what BLS models name in their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .finding import RepositoryFinding, error, warning
from .model import ModelFolder
from .ours import is_ours

__all__ = ["call_findings"]

_STOCK = "stock_model"
_CALLS = {
    "tensorrt_llm_model_name": "the model that this one calls",
    "tensorrt_llm_draft_model_name": "the draft model that this one calls",
    "context_model_name": "the context model that this one calls",
    "generation_model_name": "the generation model that this one calls",
    _STOCK: "the engine's model that this one calls",
}


def call_findings(models: Mapping[str, ModelFolder]) -> Iterator[RepositoryFinding]:
    for model in models.values():
        if model.config.platform == "ensemble":
            yield from _steps(model, models)
        yield from _named(model, models)
    yield from _engines_of_fronts(models)


def _steps(model: ModelFolder, models: Mapping[str, ModelFolder]) -> Iterator[RepositoryFinding]:
    steps = model.config.ensemble_scheduling.step
    made = model.tensor_names("input").union(*({*step.output_map.values()} for step in steps))
    for step in steps:
        line = model.value_line("model_name", step.model_name)
        called = models.get(step.model_name)
        if called is None:
            message = f"has a step {step.model_name!r}, which is no model of this repository"
            yield error("step-missing", model.config_file, line, message)
            continue
        for side, mapping in (("input", step.input_map), ("output", step.output_map)):
            for name in sorted({*mapping} - called.tensor_names(side)):
                message = f"step {step.model_name!r} has no {side} {name!r}"
                yield error("step-tensor", model.config_file, model.value_line("key", name), message)
        needed = {tensor.name for tensor in called.config.input if not tensor.optional}
        for name in sorted(needed - {*step.input_map}):
            message = f"step {step.model_name!r} needs the input {name!r}, which the step does not map"
            yield error("step-input", model.config_file, line, message)
        for name in sorted({*step.input_map.values()} - made):
            message = f"step {step.model_name!r} reads {name!r}, which no step and no input makes"
            yield error("step-source", model.config_file, model.value_line("value", name), message)
    for name in sorted(model.tensor_names("output") - made):
        message = f"declares the output {name!r}, which no step makes"
        yield error("step-output", model.config_file, model.value_line("name", name), message)


def _named(model: ModelFolder, models: Mapping[str, ModelFolder]) -> Iterator[RepositoryFinding]:
    for key, what in _CALLS.items():
        value = model.parameters.get(key, "")
        if not value or "${" in value:
            continue
        line = model.parameter_line(key)
        called = models.get(value)
        if called is None:
            yield error("call-missing", model.config_file, line, f"{key} is {value!r}, but {what} is not here")
        elif called.is_decoupled != model.is_decoupled:
            message = (
                f"is {_streams(model)} and calls {value!r}, which is {_streams(called)}: "
                "a streaming request fails unless both are decoupled"
            )
            hint = "set model_transaction_policy { decoupled: true } in both"
            yield error("decoupled", model.config_file, model.line("decoupled") or line, message, hint)


def _engines_of_fronts(models: Mapping[str, ModelFolder]) -> Iterator[RepositoryFinding]:
    """A front of ours schedules as if its engine were its own."""
    owners: dict[str, str] = {}
    for model in models.values():
        name = model.parameters.get(_STOCK, "")
        if name not in models:
            continue
        line = model.parameter_line(_STOCK)
        if is_ours(models[name]):
            message = f"{_STOCK} is {name!r}, which is a model of seekserve too and no engine's"
            yield error("call-kind", model.config_file, line, message, "render the pair again, under two names")
        elif name in owners:
            message = f"{_STOCK} {name!r} is {owners[name]!r}'s too: each counts all of the engine's room as its own"
            yield warning("call-shared", model.config_file, line, message, "give each a stock model (--stock-name)")
        owners.setdefault(name, model.name)


def _streams(model: ModelFolder) -> str:
    return "decoupled" if model.is_decoupled else "not decoupled"
