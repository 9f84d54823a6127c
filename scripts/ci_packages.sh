#!/usr/bin/env bash
# Installs what some tests want beside pip's packages of this project, where it is missing and may be installed:
# Debian packages (tests marked `needs_debian`), and AIPerf in an environment of its own (marked `aiperf`), since it pins
# other versions than ours. Never fails: without them those tests are skipped, each with its reason.
set -uo pipefail

aiperf_version=0.13.0
aiperf="${XDG_CACHE_HOME:-$HOME/.cache}/seekserve/aiperf-$aiperf_version"
install_aiperf() {
  local python
  python=$("$(dirname "$0")/setup.sh" --which-python) && rm -rf "$aiperf" && "$python" -m venv "$aiperf" &&
    timeout 600 "$aiperf/bin/python" -m pip --disable-pip-version-check install "aiperf==$aiperf_version" &&
    touch "$aiperf/installed"
}
if [ ! -e "$aiperf/installed" ]; then
  if install_aiperf >/dev/null 2>&1; then
    echo "ci_packages: installed AIPerf $aiperf_version in $aiperf"
  else
    rm -rf "$aiperf"
    echo "ci_packages: AIPerf $aiperf_version cannot be installed: its test is skipped"
  fi
fi

wanted=()
command -v mpirun >/dev/null || wanted+=(openmpi-bin)
# Prometheus brings promtool. Neither is started by the installation where there is no init system.
command -v promtool >/dev/null || wanted+=(prometheus)
command -v prometheus-alertmanager >/dev/null || wanted+=(prometheus-alertmanager)
[ ${#wanted[@]} -gt 0 ] || exit 0
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "ci_packages: ${wanted[*]} missing, and no apt or not root: the tests that need them are skipped"
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
install() { timeout 300 apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null 2>&1; }
if install || { timeout 120 apt-get update -qq >/dev/null 2>&1 && install; }; then
  echo "ci_packages: installed ${wanted[*]}"
else
  echo "ci_packages: ${wanted[*]} cannot be installed: the tests that need them are skipped"
fi
exit 0
