#!/usr/bin/env bash
# Creates a virtual environment and installs the project, editable, with the extras asked for, at the tested versions.
#
#   scripts/setup.sh EXTRAS [VENV]        e.g.  scripts/setup.sh local,test,dev .venv
#   scripts/setup.sh --which-python       prints the interpreter that it would use
#
# PYTHON chooses the interpreter (default: the first of python3.11, python3.12, python3.10, python3 that fits).
# A second run does nothing while pyproject.toml and the constraints are unchanged and the extras are there; extras that
# are there already are kept.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "setup: $*" >&2; exit 1; }

fits() { "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; }

python=${PYTHON:-}
if [ -n "$python" ]; then
  fits "$python" || fail "PYTHON=$python is not a Python 3.10 to 3.12 with the venv module"
else
  for candidate in python3.11 python3.12 python3.10 python3; do
    if fits "$candidate"; then python=$candidate; break; fi
  done
  [ -n "$python" ] || fail "no Python 3.10 to 3.12 with the venv module found; install one (Debian: apt-get install python3-venv) or set PYTHON"
fi
if [ "${1:-}" = --which-python ]; then echo "$python"; exit 0; fi

extras=${1:?usage: scripts/setup.sh EXTRAS [VENV]}
venv=${2:-.venv}
stamp="$venv/.seekserve-setup" # two lines: what it was made from, and the extras
basis="$(cat pyproject.toml constraints/constraints.txt scripts/setup.sh | cksum) $PWD"
installed=$(sed -n 2p "$stamp" 2>/dev/null || true)

missing=
for extra in ${extras//,/ }; do
  case ",$installed," in *",$extra,"*) ;; *) missing=yes ;; esac
done
if [ -x "$venv/bin/python" ] && [ -z "$missing" ] && [ "$(sed -n 1p "$stamp" 2>/dev/null)" = "$basis" ]; then
  exit 0
fi
extras=$(echo "$extras,$installed" | tr ',' '\n' | sed '/^$/d' | sort -u | paste -sd,)

case ",$extras," in
  *,local,*) [ "$(uname -m)" = x86_64 ] || fail "the local extra carries tritonserver for x86_64 only; this machine is $(uname -m)" ;;
esac
if [ ! -x "$venv/bin/python" ]; then
  echo "setup: creating $venv with $("$python" --version)"
  "$python" -m venv "$venv" || fail "could not create $venv"
fi
rm -f "$stamp"
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
pip install --constraint constraints/constraints.txt --editable ".[$extras]" ||
  fail "could not install seekserve[$extras]; the lines above say what pip missed"
printf '%s\n%s\n' "$basis" "$extras" > "$stamp"
