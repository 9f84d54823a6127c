"""`launch --detach`: a supervising process of its own, and a parent that waits until it says ready or failed.

The child is this module run with its options on standard input; the two talk through the launch record only, so the
parent may go at any time. What the child says goes into the server's log, between the server's own lines.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from seekserve.errors import SeekserveError, ServerError, StartFailed
from seekserve.output import os_error_text
from seekserve.server.cleanup import claim_record_path
from seekserve.server.events import Event
from seekserve.server.launch import Launch
from seekserve.server.options import LaunchOptions
from seekserve.server.preflight import new_launch_id, prepare
from seekserve.server.process import describe_status, tail
from seekserve.server.record import LaunchRecord, default_record_path

__all__ = ["launch_detached"]


def launch_detached(options: LaunchOptions, env: Mapping[str, str]) -> tuple[Path, LaunchRecord]:
    """Returns the record and its place once the server is ready; raises what the child failed with otherwise."""
    launch_id = new_launch_id()
    prepared = prepare(options, env, launch_id)  # says what is wrong here, where somebody reads it
    record_path = (options.pid_file or default_record_path(launch_id, env)).absolute()
    claim_record_path(record_path)
    ports = prepared.ports
    log_file = (options.log_file or default_record_path(launch_id, env).with_suffix(".log")).absolute()
    options = dataclasses.replace(
        options,
        repository=options.repository.absolute(),
        backend_dir=options.backend_dir.absolute(),
        tritonserver=prepared.server.binary.absolute(),
        http_port=ports.http,
        grpc_port=ports.grpc,
        metrics_port=ports.metrics,
        hostfile=options.hostfile and options.hostfile.absolute(),
        shared_dir=options.shared_dir and options.shared_dir.absolute(),
        pid_file=record_path,
        log_file=log_file,
    )
    child = _start_child(options, env, launch_id, log_file)
    try:
        return record_path, _await(child, record_path, log_file)
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        record = LaunchRecord.read_if_there(record_path)
        if record is not None:
            record.remove()
        raise


def _start_child(
    options: LaunchOptions, env: Mapping[str, str], launch_id: str, log_file: Path
) -> subprocess.Popen[bytes]:
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    assert child.stdin is not None
    with child.stdin as pipe:
        pipe.write(json.dumps({"id": launch_id, "options": options.to_json()}).encode())
    return child


def _await(child: subprocess.Popen[bytes], record_path: Path, log_file: Path) -> LaunchRecord:
    """The child's own deadlines hold; it always ends in `ready`, in `failed` or by ending."""
    while True:
        status = child.poll()
        record = LaunchRecord.read_if_there(record_path)
        if record is not None and record.state == "ready":
            return record
        if record is not None and record.state == "failed" and status is not None:
            record.remove()
            raise StartFailed(record.error or "no reason given", hint=f"the whole log is in {log_file}")
        if status is not None:
            extract = f"end of {log_file}:\n{tail(log_file, 12)}"
            raise ServerError(f"the supervising process ended with {describe_status(status)}; {extract}")
        time.sleep(0.1)


def _say(event: Event) -> None:
    print(f"seekserve {time.strftime('%Y-%m-%dT%H:%M:%S')} {event.kind}: {event.text}", flush=True)


def main() -> int:
    """The child: keeps a failed launch's record, since nobody may be there to read what it prints."""
    request = json.load(sys.stdin)
    options = LaunchOptions.from_json(request["options"])
    os.chdir("/")
    launch = Launch(options, say=_say, launch_id=request["id"], keeps_failed_record=True)
    try:
        return launch.run(ends_process=True)
    except SeekserveError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except OSError as error:
        print(f"error: {os_error_text(error)}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
