"""The bundle of an engine: its description, the files that the build writes itself, and putting it together.

Engine files are linked into the bundle, never moved: until the rename they are in the work folder too, so a full disk
or an interruption at the very end costs nothing. build.json says how the engine was made, for people and for `reused`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import seekserve
from seekserve.errors import TargetExists
from seekserve.output import files_in, new_folder, problems_text, write_files
from seekserve.plan.bundle import bundle_faults, sha256_of
from seekserve_backend.contract.bundle import BUNDLE_FILE, Bundle, BundleFile, TrtllmSpec

from ..existing import load_existing
from ..files import FileCopy
from ..llm_args import Args
from ..writer import Progress
from .job import Job

__all__ = ["BUILD_RECORD", "ENGINE_FOLDER", "assemble", "bundle_copies", "describe", "judge_existing"]

BUILD_RECORD: Final = "build.json"
ENGINE_FOLDER: Final = "engine"
_TOKENIZER: Final = "tokenizer"
_LOAD_BYTES_PER_S: Final = 200e6
"""A cautious disk: half an hour for DeepSeek-V2."""
_START_S: Final = 600.0
_SHOWN: Final = 6


def describe(job: Job, args: Args, *, beam_width: int) -> Bundle:
    """The bundle before its files are known."""
    no_files: dict[str, BundleFile] = {}
    plan = job.plan
    return Bundle(
        name=plan.name,
        family=plan.family,
        engine=plan.engine,
        toolkit_version=seekserve.__version__,
        engine_version=job.version.version,
        gpu=plan.gpu,
        parallel=job.parallel,
        weights_dtype=job.wanted,
        weights_bytes=plan.weights_bytes,
        limits=job.limits,
        kv=plan.kv,
        step_model=plan.step_model,
        sources=_sources(job, args),
        files=no_files,
        trtllm=TrtllmSpec(
            version=job.version.version,
            model_dir=ENGINE_FOLDER,
            max_beam_width=beam_width,
            retention=job.wish.trtllm.retention,
            start_timeout_s=float(round(_START_S + job.engine_bytes / _LOAD_BYTES_PER_S)),
        ),
    )


def bundle_copies(job: Job) -> tuple[FileCopy, ...]:
    """The tokenizer, and the file with the end ids, which an engine folder does not hold."""
    copies = job.source.copies
    tokenizer = (copy for copy in copies if copy.target.startswith(f"{_TOKENIZER}/"))
    generation = (copy for copy in copies if copy.target == "weights/generation_config.json")
    return (*tokenizer, *(replace(copy, target=f"{_TOKENIZER}/generation_config.json") for copy in generation))


def assemble(
    target: Path,
    bundle: Bundle,
    engine: Path,
    copies: Sequence[FileCopy],
    texts: Mapping[str, str],
    *,
    replace_target: bool,
    progress: Progress,
) -> Bundle:
    """Returns `bundle` with its files. `engine` keeps its files."""
    with new_folder(target, replace=replace_target) as folder:
        for name in files_in(engine):
            _link(engine / name, folder / ENGINE_FOLDER / name)
        for copy in copies:
            place = folder / copy.target
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(copy.source, place)
        write_files(folder, texts)
        complete = replace(bundle, files=_described(folder, progress))
        (folder / BUNDLE_FILE).write_text(complete.to_json(), encoding="utf-8")
    return complete


def _described(folder: Path, progress: Progress) -> dict[str, BundleFile]:
    """Reads every byte, which takes minutes for the engines of a large model."""
    sizes = {name: (folder / name).stat().st_size for name in files_in(folder)}
    files: dict[str, BundleFile] = {}
    done = 0
    for name, size_bytes in sizes.items():
        files[name] = BundleFile(size_bytes=size_bytes, sha256=sha256_of(folder / name))
        done += size_bytes
        progress(f"sha256 of {name}", done, sum(sizes.values()))
    return files


def judge_existing(
    target: Path, wanted: Bundle, copies: Sequence[FileCopy], texts: Mapping[str, str], *, force: bool
) -> Bundle | None:
    """The bundle that is there when it is this very one; None when it shall be replaced. Raises TargetExists."""
    there = load_existing(target)
    if force:
        foreign = [name for name in files_in(target) if name != BUNDLE_FILE and name not in there.files]
        if foreign:
            raise TargetExists(
                problems_text(f"{target} holds files that are not part of its bundle", foreign[:_SHOWN]),
                hint="move them away first",
            )
        return None
    faults = bundle_faults(target, there)
    if faults:
        raise TargetExists(problems_text(f"the bundle at {target} is damaged", faults), hint="replace it with --force")
    differences = _differences(target, there, wanted, copies, texts)
    if differences:
        raise TargetExists(
            problems_text(f"{target} holds a bundle of something else", differences[:_SHOWN]),
            hint="choose another --out, or replace it with --force",
        )
    return there


def _differences(
    target: Path, there: Bundle, wanted: Bundle, copies: Sequence[FileCopy], texts: Mapping[str, str]
) -> list[str]:
    names = ("name", "family", "engine", "engine_version", "weights_dtype", "parallel", "limits", "kv", "trtllm")
    found = [
        f"{name} is {getattr(there, name)} there, {getattr(wanted, name)} was asked for"
        for name in names
        if getattr(there, name) != getattr(wanted, name)
    ]
    for name, text in texts.items():
        path = target / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            why = "the checkpoint, or how it is built, has changed" if name == BUILD_RECORD else "it differs"
            found.append(f"{name}: {why}")
    for copy in copies:
        known = there.files.get(copy.target)
        if known is None or known.size_bytes != copy.size_bytes or known.sha256 != sha256_of(copy.source):
            found.append(f"{copy.target} differs")
    return found


def _link(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, place)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, place)


def _sources(job: Job, args: Args) -> dict[str, str]:
    sources = dict(job.plan.sources)
    for name in job.wish.trtllm.build_flags:
        sources[f"engine.{name}"] = f"flag --build-flag {name}"
    sources |= {f"llm_args.{path}": source for path, source in args.sources.items()}
    return sources
