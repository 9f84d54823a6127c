#!/usr/bin/env bash
# Prints what differs between constraints/constraints.txt and what is installed in .venv now. Take lines over by hand after
# the tests passed with them: some are pinned apart for Python 3.10.
set -euo pipefail
cd "$(dirname "$0")/.."
diff <(sed '/^#/d; /;/d' constraints/constraints.txt | sort) <(.venv/bin/python -m pip freeze --exclude-editable | sort) &&
  echo "no difference"
