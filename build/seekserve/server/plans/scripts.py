"""Scripts of the run folder that start tritonserver where a launcher takes one command only.

Each writes who runs (host, pid) and how it ended beside itself, because the launchers above lose both. Every word that
comes from outside is quoted.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

__all__ = ["RANK_SCRIPT", "SERVE_SCRIPT", "rank_script", "serve_script"]

RANK_SCRIPT = "rank.sh"
SERVE_SCRIPT = "serve.sh"

# `wait` returns early when a signal arrives, hence the loop; the server may end just then, hence the last `wait`, which
# answers 127 when the status was had already.
_RUN = """\
here=$(dirname "$0")
run() {
  "$@" &
  server=$!
  trap 'kill -TERM "$server" 2>/dev/null' TERM INT HUP
  printf '%s %s\\n' "$(uname -n)" "$server" > "$here/rank-$rank.pid.new"
  mv "$here/rank-$rank.pid.new" "$here/rank-$rank.pid"
  while :; do
    wait "$server"
    status=$?
    kill -0 "$server" 2>/dev/null || break
  done
  wait "$server"
  last=$?
  [ "$last" = 127 ] || status=$last
  printf '%s\\n' "$status" > "$here/rank-$rank.status"
  exit "$status"
}
"""


def serve_script(argv: Sequence[str]) -> str:
    """The serving tritonserver, for trtllm-llmapi-launch."""
    return f"#!/bin/sh\nrank=0\n{_RUN}run {shlex.join(argv)}\n"


def rank_script(argvs: Sequence[Sequence[str]]) -> str:
    """One tritonserver for each rank, told apart by Slurm's number."""
    lines = ["#!/bin/sh", "rank=$SLURM_PROCID", _RUN + 'case "$rank" in']
    lines += [f"  {number}) run {shlex.join(argv)} ;;" for number, argv in enumerate(argvs)]
    lines += ["esac", 'echo "rank $rank is not of this launch" >&2', "exit 2", ""]
    return "\n".join(lines)
