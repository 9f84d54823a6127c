"""How many instances a model gets, and on which GPUs each of them runs.

Lists of whole numbers from the start, never a text with separators in it: one `--gpus 0,1` for each instance. All
problems are reported together. The text form `0,1;2,3` exists in config.pbtxt alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from seekserve.errors import ConflictError, InputError
from seekserve.output import problems_text
from seekserve_backend.contract.bundle import TRTLLM_KINDS, Bundle

__all__ = ["GPU_PARAMETER", "Placement", "parse_gpus", "place"]

GPU_PARAMETER = "gpu_device_ids"
_LIST = re.compile(r"[0-9]{1,4}(,[0-9]{1,4})*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    instances: int = 1
    gpus: tuple[tuple[int, ...], ...] = ()
    """One list for each instance; empty: the engine takes the first GPUs that it sees."""

    @property
    def parameters(self) -> dict[str, str]:
        """`gpu_device_ids` where GPUs were chosen, else nothing."""
        return {GPU_PARAMETER: ";".join(",".join(map(str, each)) for each in self.gpus)} if self.gpus else {}


def parse_gpus(texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Raises InputError for every text that is no list such as `0,1`."""
    problems = []
    for text in texts:
        if ";" in text:
            problems.append(f"{text!r} holds a semicolon: give --gpus once for each instance")
        elif not _LIST.match(text):
            problems.append(f"{text!r} is no list of GPU numbers such as 0,1")
    if problems:
        raise InputError(problems_text("--gpus", problems))
    return tuple(tuple(map(int, text.split(","))) for text in texts)


def place(bundle: Bundle, *, instances: int | None, gpus: Sequence[str]) -> Placement:
    """`instances` None: as many as lists of GPUs, else one. Raises InputError, or ConflictError with every problem."""
    lists = parse_gpus(gpus)
    count = instances if instances is not None else max(1, len(lists))
    if count < 1:
        raise InputError(f"--instances {count}: at least 1")
    problems = [*_engine_problems(bundle, count, lists), *_list_problems(bundle, count, lists)]
    if problems:
        raise ConflictError(problems_text("instances and GPUs", problems))
    return Placement(instances=count, gpus=lists)


def _engine_problems(bundle: Bundle, count: int, lists: Sequence[tuple[int, ...]]) -> list[str]:
    if bundle.engine not in TRTLLM_KINDS:
        return [f"--gpus is given, but the {bundle.engine} engine runs without a GPU: leave it out"] if lists else []
    nodes, world = bundle.parallel.nodes, bundle.parallel.world_size
    if nodes > 1:
        problems = []
        if count > 1:
            problems.append(
                f"{count} instances, but one replica takes {nodes} nodes: render one for each group of nodes"
            )
        if lists:
            problems.append(f"--gpus names GPUs of one node, but one replica takes {nodes} nodes: leave it out")
        return problems
    if count > 1 and not lists:
        example = " ".join(f"--gpus {_first(n * world, world)}" for n in range(count))
        return [f"{count} instances would all take the same {world} GPUs: say which, as in {example}"]
    return []


def _list_problems(bundle: Bundle, count: int, lists: Sequence[tuple[int, ...]]) -> list[str]:
    if not lists or bundle.engine not in TRTLLM_KINDS or bundle.parallel.nodes > 1:
        return []
    world, problems = bundle.parallel.world_size, []
    if len(lists) != count:
        problems.append(f"{count} instances and {len(lists)} lists of GPUs: give one --gpus for each instance")
    shape = f"tp {bundle.parallel.tp} x pp {bundle.parallel.pp}"
    for each in lists:
        if len(each) != world:
            text = ",".join(map(str, each))
            problems.append(f"--gpus {text} holds {len(each)} GPUs where one replica takes {world} ({shape})")
    flat = [gpu for each in lists for gpu in each]
    twice = sorted({gpu for gpu in flat if flat.count(gpu) > 1})
    if twice:
        problems.append(f"GPU {', '.join(map(str, twice))} is given more than once: instances cannot share a GPU")
    return problems


def _first(start: int, count: int) -> str:
    return ",".join(str(gpu) for gpu in range(start, start + count))
