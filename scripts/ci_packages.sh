#!/usr/bin/env bash
# Installs the Debian packages that tests marked `needs_debian` want, where they are missing and apt may be used.
# Never fails: without them those tests are skipped, each with its reason.
set -uo pipefail

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
