"""What a person who was not there needs to understand a failure: gathered from a launch's files, its server and its
machine, with secrets and what clients wrote taken out. Reads only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from seekserve.errors import SeekserveError
from seekserve.output import json_text
from seekserve.server.heartbeat import read_heartbeats
from seekserve.server.httpget import call
from seekserve.server.record import LaunchRecord

from .archive import Part
from .diagnose import diagnose, diagnosis_text
from .failed_requests import failed_requests
from .machine_facts import COMMANDS, command_part, kernel_part, tail_part, versions_part
from .masking import Masker, known_secrets
from .process_facts import ProcessFacts, launch_processes, process_environments
from .reading import parse_text, scrape_of

__all__ = ["Subject", "gather_parts"]

_MOST_FILE_BYTES = 1 << 20
_BUNDLE_FILES = ("bundle.json", "*.yaml", "*.yml", "commands.txt", "engine/config.json", "weights/config.json")
_STATE_FILES = "*breaker*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whom the report is about; a machine alone where nothing is named."""

    record: LaunchRecord | None = None
    metrics_url: str | None = None
    http_url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    state_dir: Path | None = None
    """The toolkit's state folder, which outlives a launch."""
    interval_s: float = 5.0
    """Between the two scrapes, from which rates follow."""


def gather_parts(subject: Subject, *, sleep: Callable[[float], None] = time.sleep) -> list[Part]:
    """Every part, those that cannot be had with their reason; never raises for one of them."""
    processes = launch_processes(subject.record) if subject.record is not None else []
    masker = Masker(known_secrets(subject.env, *process_environments(processes)))
    parts = list(_metrics_parts(subject, masker, sleep))
    parts += _machine_parts(subject, masker)
    if subject.record is not None:
        parts += _launch_parts(subject.record, processes, masker)
        parts += _model_parts(subject.record, masker)
    if subject.state_dir is not None:
        parts += _files(subject.state_dir, sorted(subject.state_dir.rglob(_STATE_FILES)), "state", masker)
    return parts


def _metrics_parts(subject: Subject, masker: Masker, sleep: Callable[[float], None]) -> Iterator[Part]:
    url = subject.metrics_url or (subject.record.metrics_url if subject.record is not None else None)
    if url is None:
        yield Part(name="metrics/1.txt", note="no server is named, and no launch is recorded")
        return
    looks = []
    for number in (1, 2):
        if number == 2:
            sleep(subject.interval_s)
        answer = call(url)
        name = f"metrics/{number}.txt"
        if answer is None or answer[0] != 200:
            what = "nobody answers" if answer is None else f"HTTP {answer[0]}"
            yield Part(name=name, note=f"{url}: {what}")
            return
        # The first line says when: rates need the time between the two.
        time_s, text = time.time(), answer[1].decode("utf-8", "replace")
        looks.append((time_s, text))
        yield Part(name=name, text=masker.text(f"# scraped {url} at {time_s:.3f}\n{text}"))
    yield _diagnosis_part(url, looks)


def _diagnosis_part(url: str, looks: Sequence[tuple[float, str]]) -> Part:
    """What `diagnose` makes of the two."""
    name = "metrics/diagnosis.txt"
    try:
        scrapes = [scrape_of(parse_text(text), server=url, time_s=time_s) for time_s, text in looks]
        return Part(name=name, text=diagnosis_text(diagnose(scrapes)) + "\n")
    except SeekserveError as error:
        return Part(name=name, note=error.message)


def _machine_parts(subject: Subject, masker: Masker) -> Iterator[Part]:
    from seekserve.server.doctor import examine
    from seekserve.server.doctor.gather import gather

    machine = gather(subject.env)
    server = {} if machine.server is None else asdict(machine.server)
    yield _masked(versions_part(server), masker.text)
    findings = [finding.to_json() for finding in examine(machine)]
    yield Part(name="machine/doctor.json", text=json_text(masker.json(findings)) + "\n")
    for name, argv in COMMANDS.items():
        yield _masked(command_part(name, argv), masker.text)
    yield _masked(kernel_part(), masker.text)


def _launch_parts(record: LaunchRecord, processes: Sequence[ProcessFacts], masker: Masker) -> Iterator[Part]:
    yield Part(name="launch/record.json", text=json_text(masker.json(asdict(record))) + "\n")
    shown = [each.to_json(masker) for each in processes]
    if shown:
        yield Part(name="launch/processes.json", text=json_text(shown) + "\n")
    else:
        yield Part(name="launch/processes.json", note="no process of this launch is alive")
    log = tail_part("logs/server.log", Path(record.log_file))
    failed = [each.to_json() for each in failed_requests(log.text or "")]
    # Reasons are quoted from the log, so they are masked as it is.
    yield Part(name="launch/failed_requests.json", text=masker.text(json_text(failed)) + "\n")
    yield _masked(log, masker.text)
    run_dir = Path(record.run_dir)
    if not run_dir.is_dir():
        yield Part(name="launch/run", note=f"{run_dir}: the run folder is gone, as after every clean stop")
        return
    logs = sorted(path for path in run_dir.rglob("*.log") if path.is_file())
    for path in logs:
        yield _masked(tail_part(f"logs/{path.relative_to(run_dir).as_posix()}", path), masker.text)
    yield from _files(run_dir, sorted(run_dir.rglob("*.json")), "launch/run", masker)


def _model_parts(record: LaunchRecord, masker: Masker) -> Iterator[Part]:
    repository = Path(record.repository)
    bundles = {beat.bundle_dir for beat in read_heartbeats(Path(record.run_dir)) if beat.bundle_dir}
    for name in record.models:
        folder = repository / name
        found = [folder / "config.pbtxt", *sorted(folder.glob("*.json")), *sorted(folder.glob("[0-9]*/*.yaml"))]
        yield from _files(repository, found, "repository", masker)
        bundles |= _bundle_of(repository, name)
    for number, bundle in enumerate(sorted(bundles)):
        root = Path(bundle)
        found = sorted({path for pattern in _BUNDLE_FILES for path in root.glob(pattern)})
        yield from _files(root, found, f"bundles/{number}-{root.name}", masker)


def _bundle_of(repository: Path, model: str) -> set[str]:
    from seekserve.server.models import read_models

    models, _ = read_models(repository, only=[model])
    return {str(each.bundle_dir) for each in models if each.bundle_dir is not None}


def _files(root: Path, paths: Sequence[Path], folder: str, masker: Masker) -> Iterator[Part]:
    for path in paths:
        if not path.is_file():
            continue
        part = tail_part(f"{folder}/{path.relative_to(root).as_posix()}", path, most_bytes=_MOST_FILE_BYTES)
        mask = {".json": masker.json_text, ".pbtxt": masker.pbtxt}.get(path.suffix, masker.lines)
        yield _masked(part, masker.text if part.note and path.suffix == ".json" else mask)


def _masked(part: Part, mask: Callable[[str], str]) -> Part:
    return part if part.text is None else Part(name=part.name, text=mask(part.text), note=mask(part.note))
