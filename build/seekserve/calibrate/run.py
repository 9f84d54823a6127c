"""From a bundle (and a file of measured steps, if there is one) to its step model, written into the bundle if asked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seekserve.errors import BundleError, InputError
from seekserve.output import os_error_text
from seekserve.plan.bundle import open_bundle
from seekserve_backend.contract.bundle import BUNDLE_FILE, Bundle
from seekserve_backend.contract.step_model import StepModel

from .fit import Fit, fit_steps, relative_errors
from .reference import Progress, measure_steps
from .samples import SampleFile, StepSample, read_samples

__all__ = ["Calibration", "CalibrationRequest", "calibrate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRequest:
    bundle: Path
    samples: Path | None
    """None: the engine is measured in this process, which only the reference engine can be."""
    is_written: bool
    """The model takes the place of the one in the bundle."""
    repeats: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    fit: Fit
    before: StepModel | None
    """The bundle's model until now."""
    before_error: float | None
    """Its median error on the same steps."""
    left_out: Mapping[str, int]


def calibrate(request: CalibrationRequest, need_local: Callable[[str], None], progress: Progress) -> Calibration:
    """Raises BundleError, or InputError when there is nothing to fit. Writes last, and only when asked."""
    bundle = open_bundle(request.bundle)
    if request.samples is not None:
        file = read_samples(request.samples)
        source = f"measured: {request.samples.name}"
    else:
        file = SampleFile(samples=tuple(_measured(request, bundle, need_local, progress)), left_out={})
        source = "measured: the reference engine on this machine, in one process"
    fit = fit_steps(file.samples, source=source)
    before = bundle.step_model
    result = Calibration(
        fit=fit,
        before=before,
        before_error=None if before is None else _median_error(before, file.samples),
        left_out=file.left_out,
    )
    if request.is_written:
        _write(request.bundle, replace(bundle, step_model=fit.model))
    return result


def _measured(
    request: CalibrationRequest, bundle: Bundle, need_local: Callable[[str], None], progress: Progress
) -> list[StepSample]:
    if bundle.engine != "reference":
        raise BundleError(
            f"bundle {request.bundle} is built for the engine {bundle.engine!r}; only 'reference' runs in this process",
            hint="record steps of the running server (SEEKSERVE_STEP_LOG=FILE, or TensorRT-LLM's iteration statistics) "
            "and give the file with --samples",
        )
    need_local("measuring a bundle in this process")
    from seekserve_backend.engines.port import EngineError
    from seekserve_backend.engines.reference.engine import ReferenceEngine

    try:
        engine = ReferenceEngine(request.bundle, bundle)
    except EngineError as error:
        raise BundleError(f"bundle {request.bundle} cannot be run: {error}") from error
    with contextlib.closing(engine):
        return measure_steps(engine, repeats=request.repeats, progress=progress)


def _median_error(model: StepModel, samples: Sequence[StepSample]) -> float | None:
    errors = relative_errors(model, samples)
    return errors[len(errors) // 2] if errors else None


def _write(folder: Path, bundle: Bundle) -> None:
    """Beside it, then renamed: a bundle is never half written."""
    target = folder / BUNDLE_FILE
    partial = folder / f".{BUNDLE_FILE}.{os.getpid()}.partial"
    try:
        partial.write_text(bundle.to_json(), encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InputError(f"cannot write {target}: {os_error_text(error)}") from error
