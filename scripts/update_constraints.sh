#!/usr/bin/env bash
# Rewrites constraints/constraints.txt from what is installed in .venv now (after the tests passed with it).
set -euo pipefail
cd "$(dirname "$0")/.."
{
  sed -n '/^#/p' constraints/constraints.txt
  .venv/bin/python -m pip freeze --exclude-editable
} > constraints/constraints.txt.new
mv constraints/constraints.txt.new constraints/constraints.txt
