#!/usr/bin/env bash
# Sets up what the tests need (pip packages alone) and passes them: linter, type checker, then pytest with coverage.
#
#   scripts/test.sh                    everything, in .venv
#   scripts/test.sh --toolkit-only     without the `local` extra (no torch, no tritonserver), in .venv-toolkit-X.Y
#   scripts/test.sh [...] -- ARGS      ARGS go to pytest
#
# PYTHON chooses the interpreter, as in scripts/setup.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
extras=local,test,dev
venv=.venv
while [ $# -gt 0 ]; do
  case "$1" in
    --toolkit-only)
      extras=test,dev
      venv=.venv-toolkit-$("$(scripts/setup.sh --which-python)" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
      ;;
    --) shift; break ;;
    *) echo "test.sh: unknown argument $1; use -- before pytest's own" >&2; exit 2 ;;
  esac
  shift
done
scripts/setup.sh "$extras" "$venv"
run="$venv/bin/python -m"
$run ruff check .
$run ruff format --check --quiet .
# The types are those of the full environment: without torch and transformers half of them would be unknown.
case "$extras" in local,*) $run mypy ;; esac
case "$extras" in
  local,*)
    $run coverage run --data-file="$venv/.coverage" -m pytest "$@"
    echo "coverage: $($run coverage report --data-file="$venv/.coverage" --format=total) %"
    ;;
  *) $run pytest "$@" ;; # a part of the whole: its coverage says nothing, and costs time
esac
