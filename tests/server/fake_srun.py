"""Stands in for srun: every task in a session of its own, labelled output, the others killed with the first that fails.

Standard library only; ends by itself after a minute.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO

words = sys.argv[1:]
options = dict(word.partition("=")[::2] for word in words if word.startswith("--"))
command = [word for word in words if not word.startswith("--")]
tasks: list[subprocess.Popen[bytes]] = []


def label(number: int, stream: IO[bytes]) -> None:
    for line in stream:
        print(f"{number}: {line.decode().rstrip()}", flush=True)


def on_term(_number: int, _frame: object) -> None:
    for task in tasks:
        task.terminate()


signal.signal(signal.SIGTERM, on_term)
for number in range(int(options["--ntasks"])):
    env = {**os.environ, "SLURM_PROCID": str(number)}
    task = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    tasks.append(task)
    threading.Thread(target=label, args=(number, task.stdout), daemon=True).start()
end_s = time.monotonic() + 60
while any(task.poll() is None for task in tasks) and time.monotonic() < end_s:
    time.sleep(0.05)
    bad = next((n for n, task in enumerate(tasks) if task.poll()), None)
    if bad is not None:
        status = tasks[bad].returncode
        how = "Killed" if status in (-9, 137) else f"Exited with exit code {status}"
        print(f"srun: error: {os.uname().nodename}: task {bad}: {how}", file=sys.stderr, flush=True)
        for task in tasks:
            if task.poll() is None:
                os.killpg(task.pid, signal.SIGKILL)
        sys.exit(137 if how == "Killed" else status)
