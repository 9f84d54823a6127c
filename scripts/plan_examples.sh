#!/usr/bin/env bash
# Prints the plan of four deployments from the bundled test configs: DeepSeek-V3 on 8 x H200, on 16 x H100 (two hosts of
# eight) and on 8 x A100-80 (a clear no, exit 3), and DeepSeek-V4-Flash on 8 x B200. Further arguments go to every plan,
# e.g. --explain or --json.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
configs="$root/tests/checkpoint/configs"
python="${PYTHON:-python}"
[[ -n "${PYTHON:-}" || ! -x "$root/.venv/bin/python" ]] || python="$root/.venv/bin/python"

show() {
  local config=$1 status=0
  shift
  echo "\$ seekserve plan $config $*"
  "$python" -m seekserve plan "$configs/$config" "$@" || status=$?
  echo "(exit $status)"
  echo
  # 3 is an answer, everything else above 0 is a fault.
  [[ $status -eq 0 || $status -eq 3 ]]
}

show deepseek-v3.json --gpu h200_sxm --gpus 8 "$@"
show deepseek-v3.json --gpu h100_sxm --gpus 16 --nodes 2 "$@"
show deepseek-v3.json --gpu a100_sxm_80gb --gpus 8 "$@"
show deepseek-v4-flash.json --gpu b200_sxm --gpus 8 "$@"
