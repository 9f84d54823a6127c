"""What the command line says for TensorRT-LLM alone, and its reading once the plan has named the version.

No flag is passed over: one that an engine kind has no use for is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from seekserve.errors import ConfigError, InputError
from seekserve.output import problems_text
from seekserve.trtllm import load_extra_args, overlay, parse_set
from seekserve_backend.contract.bundle import Retention

from .llm_args import leaves
from .outcome import TrtllmWish

__all__ = ["TrtllmFlags"]

_EVERY: Final = ("trtllm-pytorch", "trtllm-engine")
_ENGINE: Final = ("trtllm-engine",)
_PYTORCH: Final = ("trtllm-pytorch",)
_USERS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "sets": (_EVERY, "--set"),
    "extra_args": (_EVERY, "--extra-args"),
    "preset": (_EVERY, "--preset"),
    "topology": (_EVERY, "--topology"),
    "profile": (_PYTORCH, "--profile"),
    "retain_prompt_priority": (_EVERY, "--retain-prompt-priority"),
    "retain_prompt_tokens": (_EVERY, "--retain-prompt-tokens"),
    "retain_prompt_s": (_EVERY, "--retain-prompt-s"),
    "decode_priority": (_EVERY, "--decode-priority"),
    "max_beam_width": (_EVERY, "--max-beam-width"),
    "quantize": (_ENGINE, "--quantize"),
    "build_flags": (_ENGINE, "--build-flag"),
    "examples_dir": (_ENGINE, "--examples-dir"),
    "calibration_data": (_ENGINE, "--calibration-data"),
    "workers": (_ENGINE, "--workers"),
}
"""Field -> engine kinds that use it, its flag."""
_LOW, _HIGH = 0, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TrtllmFlags:
    """As given; None and () mean not given."""

    sets: tuple[str, ...] = ()
    extra_args: Path | None = None
    preset: str | None = None
    topology: Path | None = None
    profile: str | None = None
    retain_prompt_priority: int | None = None
    retain_prompt_tokens: int | None = None
    retain_prompt_s: float | None = None
    decode_priority: int | None = None
    max_beam_width: int | None = None
    quantize: str | None = None
    build_flags: tuple[str, ...] = ()
    examples_dir: Path | None = None
    calibration_data: str | None = None
    workers: int | None = None

    def refuse_unused(self, engine: str, more: Iterable[str] = ()) -> None:
        """`more` are other given flags that the engine has no use for. Raises InputError naming every one."""
        given = [field.name for field in fields(self) if getattr(self, field.name) not in (None, ())]
        unused = [_USERS[name] for name in given if engine not in _USERS[name][0]]
        problems = [f"{flag} is for {' and '.join(kinds)}" for kinds, flag in unused]
        problems += [f"{flag} is for engines on GPUs" for flag in more]
        if problems:
            hint = "leave it out, or choose another --engine; engines on GPUs need --gpu"
            raise InputError(problems_text(f"the engine {engine} has no use for what was given", problems), hint=hint)

    def wish(self, engine: str, version: str) -> TrtllmWish:
        """Raises ConfigError with every value that is wrong in itself."""
        args, sources = self._arguments(engine, version)
        return TrtllmWish(
            args=args,
            args_sources=sources,
            build_flags=_named_values(self.build_flags),
            retention=self._retention(),
            max_beam_width=_at_least("--max-beam-width", self.max_beam_width, 1),
            examples_dir=self.examples_dir,
            calibration_data=self.calibration_data,
            workers=_at_least("--workers", self.workers, 1),
            profile=self.profile,
        )

    def _arguments(self, engine: str, version: str) -> tuple[dict[str, Any], dict[str, str]]:
        """The file's and, over them, those of --set."""
        from_file: dict[str, Any] = {}
        if self.extra_args is not None:
            from_file = load_extra_args(self.extra_args, version, engine_kind=engine)
        from_flags = parse_set(self.sets, version, engine_kind=engine)
        sources = dict.fromkeys(leaves(from_file), f"file {self.extra_args}")
        sources.update(dict.fromkeys(leaves(from_flags), "flag --set"))
        merged, problems = overlay(from_file, from_flags)
        if problems:
            raise ConfigError(problems_text("--set and --extra-args", [each.text for each in problems]))
        return merged, sources

    def _retention(self) -> Retention | None:
        values = {
            "prompt_priority": self.retain_prompt_priority,
            "prompt_tokens": self.retain_prompt_tokens,
            "prompt_duration_s": self.retain_prompt_s,
            "decode_priority": self.decode_priority,
        }
        given: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        problems = [
            f"{flag} must be from {_LOW} to {_HIGH}, got {value}"
            for flag, value in (
                ("--retain-prompt-priority", self.retain_prompt_priority),
                ("--decode-priority", self.decode_priority),
            )
            if value is not None and not _LOW <= value <= _HIGH
        ]
        if self.retain_prompt_tokens is not None and self.retain_prompt_tokens < 1:
            problems.append(f"--retain-prompt-tokens must be at least 1, got {self.retain_prompt_tokens}")
        if self.retain_prompt_s is not None and not 0 < self.retain_prompt_s < 1e9:
            problems.append(f"--retain-prompt-s must be above 0, got {self.retain_prompt_s}")
        narrows = [name for name in ("prompt_tokens", "prompt_duration_s") if name in given]
        if narrows and "prompt_priority" not in given:
            problems.append("--retain-prompt-tokens and --retain-prompt-s say for what --retain-prompt-priority holds")
        if problems:
            raise ConfigError(problems_text("no engine", problems))
        return Retention(**given) if given else None


def _named_values(texts: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE`; a bare NAME is a switch and means the empty value."""
    out: dict[str, str] = {}
    problems = []
    for text in texts:
        name, _, value = text.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not name.isidentifier():
            problems.append(f"{text!r} is not of the form NAME=VALUE, such as gemm_plugin=bfloat16")
        elif name in out and out[name] != value:
            problems.append(f"{name} is given twice, as {out[name]!r} and as {value!r}: keep one")
        else:
            out[name] = value
    if problems:
        raise ConfigError(problems_text("--build-flag", problems))
    return out


def _at_least(flag: str, value: int | None, low: int) -> int | None:
    if value is not None and value < low:
        raise ConfigError(f"{flag} must be at least {low}, got {value}")
    return value
