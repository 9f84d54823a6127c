#!/usr/bin/env bash
# Sets everything up in .venv and runs the main job: a DeepSeek checkpoint served by the real tritonserver, on the CPU.
# Arguments are handed to `seekserve demo`.
set -euo pipefail
cd "$(dirname "$0")/.."
# An environment that already holds more than this needs is left as it is.
[ -x .venv/bin/seekserve ] && .venv/bin/python -c 'import torch, transformers, tritonclient.grpc' 2>/dev/null || scripts/setup.sh local
exec .venv/bin/seekserve demo "$@"
