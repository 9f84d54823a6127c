#!/usr/bin/env bash
# Sets everything up in .venv and runs the main job: a DeepSeek checkpoint served by the real tritonserver, on the CPU.
# Arguments are handed to `seekserve demo`.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh local
exec .venv/bin/seekserve demo "$@"
