#!/usr/bin/env bash
# Creates a virtual environment and installs the project, editable, with the extras asked for, at the tested versions.
#
#   scripts/setup.sh EXTRAS [VENV]        e.g.  scripts/setup.sh local,test,dev .venv
#
# PYTHON chooses the interpreter (default: the first of python3.11, python3.12, python3.10, python3 that is new enough).
# A second run does nothing unless pyproject.toml, the constraints or the extras changed.
set -euo pipefail
cd "$(dirname "$0")/.."
extras=${1:?usage: scripts/setup.sh EXTRAS [VENV]}
venv=${2:-.venv}

fail() { echo "setup: $*" >&2; exit 1; }

new_enough() { "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

python=${PYTHON:-}
if [ -n "$python" ]; then
  new_enough "$python" || fail "PYTHON=$python is not a Python 3.10 to 3.13 with the venv module"
else
  for candidate in python3.11 python3.12 python3.10 python3.13 python3; do
    if new_enough "$candidate"; then python=$candidate; break; fi
  done
  [ -n "$python" ] || fail "no Python 3.10 to 3.13 with the venv module found; install one (Debian: apt-get install python3-venv) or set PYTHON"
fi

case ",$extras," in
  *,local,*) [ "$(uname -m)" = x86_64 ] || fail "the local extra carries tritonserver for x86_64 only; this machine is $(uname -m)" ;;
esac

stamp="$venv/.seekserve-setup"
want="$("$python" -c 'import sys; print(sys.version_info[:2])') $extras $(cat pyproject.toml constraints/constraints.txt scripts/setup.sh | cksum)"
if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
  exit 0
fi

[ -x "$venv/bin/python" ] || { echo "setup: creating $venv with $($python --version)"; "$python" -m venv "$venv" || fail "could not create $venv"; }
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

case ",$extras," in
  *,local,*)
    # The CPU build, several GB smaller than the default one. First from the configured indexes, then from PyTorch's own.
    torch=$(grep '^torch==' constraints/constraints.txt)
    echo "setup: installing $torch"
    pip install "$torch" 2>/dev/null ||
      pip install "$torch" --extra-index-url https://download.pytorch.org/whl/cpu ||
      fail "could not install $torch"
    ;;
esac
echo "setup: installing seekserve[$extras]"
pip install --constraint constraints/constraints.txt --editable ".[$extras]" || fail "could not install seekserve[$extras]; the lines above say what pip missed"
echo "$want" > "$stamp"
