"""What is wrong whatever the figures of the service say: dead processes, a broken engine, faults of GPUs. Pure."""

from __future__ import annotations

from .rules_causes import BREAKER, HICCUPS, SLOW_ENGINE, THROTTLED, beyond
from .tree import Branch, Evidence, Kind, Leaf
from .view import View
from .words import count, percent, ratio, seconds

__all__ = ["HEALTH"]

_DEAD_S = 10.0
_DRIFT = 0.3


def _dead(view: View) -> Evidence | None:
    age = view.window.numbers_age_s()
    return beyond(age, _DEAD_S, f"its numbers are {seconds(age)} old; they are written every second")


def _xid(view: View) -> Evidence | None:
    found = [f"GPU {gpu}: Xid {value:.0f}" for gpu, value in view.window.gpu("xid").items() if value > 0.0]
    return Evidence(4.0 + len(found), tuple(found)) if found else None


def _ecc(view: View) -> Evidence | None:
    found = [
        f"GPU {gpu}: {count(value)} uncorrectable memory errors"
        for gpu, value in view.window.gpu("ecc_double_bit").items()
        if value > 0.0
    ]
    return Evidence(4.0 + len(found), tuple(found)) if found else None


def _drift(view: View) -> Evidence | None:
    """Below: above is a finding of its own."""
    bias = view.window.mean("step_bias_ratio")
    if bias is None or bias > 1.0 - _DRIFT:
        return None
    return Evidence((1.0 - bias) / _DRIFT, (f"steps take {ratio(bias)} times what the step model says",))


def _dropped(view: View) -> Evidence | None:
    dropped = view.window.increase("observations_dropped_total")
    return beyond(dropped, 1.0, f"{count(dropped)} observations are missing from the histograms")


def _low_cache_use(view: View) -> Evidence | None:
    """M3's target is above 85 %; said only where requests wait for something else."""
    used = view.kv_share("kv_used_blocks")
    if used is None or used >= 0.3 or view.queued() < 5.0:
        return None
    return Evidence(0.3 / max(used, 0.01), (f"KV cache {percent(used)} used while {count(view.queued())} wait",))


def _slow_memory(view: View) -> Evidence | None:
    """M3: 75 to 85 % of the memory bandwidth is what decoding can use."""
    found = [value for value in view.window.gpu("bandwidth_ratio").values() if value > 0.85]
    if not found:
        return None
    return Evidence(max(found) / 0.85, (f"memory bandwidth {percent(max(found))} in use: no headroom above 85 %",))


HEALTH = Branch(
    name="health",
    look=lambda view: Evidence(1.0, ()),
    leaves=(
        Leaf(
            id="dead-process",
            kind=Kind.FAULT,
            what="The process that serves the model is dead or stuck; Triton's own health stays green then.",
            change="`seekserve launch` restarts the server by itself within seconds; where something else started it, "
            "restart it. Gather first: `seekserve collect`.",
            look=_dead,
        ),
        BREAKER,
        Leaf(
            id="gpu-xid",
            kind=Kind.FAULT,
            what="The driver reported an error of a GPU.",
            change="Look the Xid up in NVIDIA's list; 48, 63, 64, 79, 94, 95 mean the node needs a reset or a new GPU. "
            "Drain it: `seekserve stop`.",
            look=_xid,
        ),
        Leaf(
            id="gpu-ecc",
            kind=Kind.FAULT,
            what="A GPU's memory has errors that could not be corrected.",
            change="Drain the node, reset the GPU, and replace it if they come back.",
            look=_ecc,
        ),
        THROTTLED,
        SLOW_ENGINE,
        HICCUPS,
        Leaf(
            id="model-too-slow",
            kind=Kind.NOTE,
            what="The engine is faster than its step model says.",
            change="Nothing breaks: the scheduler has noticed. Measure the step model again, so that it starts right.",
            look=_drift,
        ),
        Leaf(
            id="observations-dropped",
            kind=Kind.NOTE,
            what="Some observations did not make it into the histograms.",
            change="Percentiles of this time are of a sample. It happens when more end at once than one flush takes.",
            look=_dropped,
        ),
        Leaf(
            id="cache-idle",
            kind=Kind.NOTE,
            what="Requests wait while most of the KV cache is empty.",
            change="The cache is not what they wait for: less of it would do, or the batch could be larger.",
            look=_low_cache_use,
        ),
        Leaf(
            id="bandwidth-full",
            kind=Kind.NOTE,
            what="The GPUs' memory bandwidth is used up.",
            change="Decoding is as fast as it gets on this hardware; only fewer bytes (FP8, FP4) or more GPUs help.",
            look=_slow_memory,
        ),
    ),
)
