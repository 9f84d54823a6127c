"""Where TensorRT-LLM's tools are: the interpreter that has the package, trtllm-build, the scripts of its examples.

Everything is found, and its version compared with the plan's, before anything starts; what is missing is one sentence.
The interpreter is never guessed: it is this one, or the one that trtllm-build itself names in its first line.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from seekserve.errors import ConfigError, ConflictError, MissingDependency
from seekserve.output import problems_text
from seekserve.trtllm import VersionFacts
from seekserve.trtllm.versions import version_key

__all__ = ["IMAGE_EXAMPLES", "Package", "Tools", "ask_interpreter", "find_tools", "require_tools"]

IMAGE_EXAMPLES: Final = Path("/app/tensorrt_llm/examples")
"""Where NVIDIA's image has them."""
_BUILD: Final = "trtllm-build"
_TIMEOUT_S: Final = 60
# Reads metadata only: importing tensorrt_llm takes minutes and wants a GPU.
_QUESTION: Final = """
import importlib.metadata, importlib.util, json
spec = importlib.util.find_spec("tensorrt_llm")
folders = list(spec.submodule_search_locations or []) if spec else []
print(json.dumps([importlib.metadata.version("tensorrt_llm"), folders[0] if folders else None]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    version: str
    folder: Path | None


Ask = Callable[[str, Mapping[str, str]], Package | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    python: str
    build: str
    script: Path
    package: Package | None
    problems: tuple[str, ...]
    """What is missing; the paths are then those where it is looked for."""


def find_tools(
    script: str, examples_dir: Path | None, environ: Mapping[str, str], ask: Ask, *, python: str = sys.executable
) -> Tools:
    """`script` is a POSIX path below the examples folder. Never raises for what is missing."""
    problems = []
    build = shutil.which(_BUILD, path=environ.get("PATH", os.defpath))
    if build is None:
        problems.append(f"no {_BUILD} on PATH")
    package = ask(python, environ)
    named = _interpreter_of(build)
    if package is None and named is not None and named != python:
        python, package = named, ask(named, environ)
    if package is None:
        problems.append(f"no tensorrt_llm for {python}")
    folders = _example_folders(examples_dir, package)
    found = next((folder / script for folder in folders if (folder / script).is_file()), None)
    if found is None:
        problems.append(f"no {script} in {', '.join(map(str, folders))}")
    return Tools(
        python=python,
        build=build or _BUILD,
        script=found or folders[0] / script,
        package=package,
        problems=tuple(problems),
    )


def require_tools(tools: Tools, version: VersionFacts) -> None:
    """Raises MissingDependency, or ConflictError when another version would build than the plan is for."""
    if tools.problems:
        raise MissingDependency(
            problems_text("an engine cannot be built here", tools.problems),
            hint=f"run this inside NVIDIA's image of TensorRT-LLM {version.version}, or give --examples-dir; "
            "--dry-run shows the commands anywhere",
        )
    assert tools.package is not None
    if not _is_same(tools.package.version, version.version):
        raise ConflictError(
            f"{tools.python} has TensorRT-LLM {tools.package.version}, the plan is for {version.version}: an engine "
            "runs in the version that built it only",
            hint=f"--trtllm-version {tools.package.version}, or the image of {version.version}",
        )


def ask_interpreter(python: str, environ: Mapping[str, str]) -> Package | None:
    try:
        answer = subprocess.run(
            [python, "-c", _QUESTION],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        version, folder = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return Package(version=str(version), folder=None if folder is None else Path(folder))


def _interpreter_of(script: str | None) -> str | None:
    """The interpreter in the first line of an installed console script."""
    if script is None:
        return None
    with Path(script).open("rb") as file:
        first = file.readline(1024).decode("utf-8", errors="replace")
    words: Sequence[str] = shlex.split(first[2:]) if first.startswith("#!") else []
    return words[0] if words and Path(words[0]).name.startswith("python") else None


def _example_folders(given: Path | None, package: Package | None) -> list[Path]:
    if given is not None:
        return [given.expanduser().absolute()]
    beside = [] if package is None or package.folder is None else [package.folder / "examples"]
    return [IMAGE_EXAMPLES, *beside]


def _is_same(one: str, other: str) -> bool:
    try:
        return version_key(one) == version_key(other)
    except ConfigError:
        return one == other
