"""Topology `stock-engine`: our model in front, the stock C++ `tensorrt_llm` model behind it.

The front tokenises, schedules and streams; it calls the stock model by name within the same server. That model's
configuration is complete and typed: every tensor from the contract's table, every parameter validated for the version.
"""

from __future__ import annotations

from dataclasses import replace

from seekserve.errors import ConflictError, InputError
from seekserve_backend.contract.bundle import Bundle
from seekserve_backend.contract.stock_model import STOCK_INPUTS, STOCK_OUTPUTS, StockTensor

from .model_config import CONFIG_FILE, KIND_CPU_NOTES, VERSION_FOLDER, ModelConfig, TensorConfig, config_text
from .placement import Placement
from .render import STOCK_PARAMETER, Rendering, RenderOptions, bundle_header, integrated
from .stock_parameters import stock_parameters

__all__ = ["stock_engine"]

_BACKEND = "tensorrtllm"
_PERIOD = "cancellation_check_period_ms"
_BATCH_NOTES = (
    "Requests that Triton may hand over at once; what runs together is the engine's decision, up to its batch size.",
    "Ragged inputs need dynamic_batching; nothing waits in its queue, since our model in front admits and orders.",
)


def stock_engine(bundle: Bundle, options: RenderOptions) -> Rendering:
    _check(options)
    spec = bundle.trtllm
    assert spec is not None, "the caller has checked the engine kind"
    given = _given(options)
    parameters, warnings = stock_parameters(
        bundle,
        engine_dir=options.bundle_dir / spec.model_dir,
        llm_args=options.llm_args,
        placement=options.placement,
        given=given,
        has_paged_context=options.has_paged_context,
    )
    stock = ModelConfig(
        name=options.stock_name,
        backend=_BACKEND,
        max_batch_size=bundle.limits.max_batch_size,
        is_decoupled=options.is_streaming,
        inputs=tuple(_tensor(tensor, is_input=True) for tensor in STOCK_INPUTS),
        outputs=tuple(_tensor(tensor, is_input=False) for tensor in STOCK_OUTPUTS),
        parameters=parameters,
        has_dynamic_batching=True,
    )
    front = integrated(bundle, replace(options, placement=Placement()), {STOCK_PARAMETER: stock.name})
    text = config_text(stock, header=bundle_header(bundle), batch_notes=_BATCH_NOTES, instance_notes=KIND_CPU_NOTES)
    files = {f"{stock.name}/{CONFIG_FILE}": text, f"{stock.name}/{VERSION_FOLDER}/.keep": ""}
    return Rendering(models=(*front.models, stock), files={**front.files, **files}, warnings=tuple(warnings))


def _check(options: RenderOptions) -> None:
    if options.stock_name == options.model_name:
        raise InputError(
            f"--stock-name {options.stock_name} is the name of the model in front of it too",
            hint="give another --name or --stock-name",
        )
    count = options.placement.instances
    if count > 1:
        raise ConflictError(
            f"{count} instances of the stock model behind one scheduler, which could not know where a request runs",
            hint="render each pair under names of its own (--name, --stock-name, one --gpus), or --topology integrated",
        )


def _given(options: RenderOptions) -> dict[str, str]:
    """What the flags say of the stock model's parameters, one of which has a flag of its own."""
    given = dict(options.stock_parameters)
    if options.cancellation_check_ms is not None:
        period = str(options.cancellation_check_ms)
        if given.setdefault(_PERIOD, period) != period:
            raise ConflictError(
                f"--cancellation-check-ms is {period}, but --stock-parameter {_PERIOD} is {given[_PERIOD]}",
                hint="say it in one place",
            )
    return given


def _tensor(tensor: StockTensor, *, is_input: bool) -> TensorConfig:
    return TensorConfig(
        name=tensor.name,
        data_type=f"TYPE_{tensor.data_type}",
        dims=tensor.dims,
        is_optional=is_input and tensor.is_optional,
        is_ragged=tensor.is_ragged,
        is_reshaped=tensor.is_reshaped,
    )
