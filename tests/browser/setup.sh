#!/bin/sh
# A real browser for tests/browser: Debian's chromium, and playwright in the environment of the Python that is named.
# Where chromium cannot be installed those tests are skipped, and say so.
set -eu
if ! command -v chromium >/dev/null 2>&1; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "There is no chromium: the tests in a browser are skipped. As root on Debian: apt-get install chromium"
    exit 0
  fi
  echo "Installing chromium …"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends chromium >/dev/null
fi
"$1" -m pip install -qq --disable-pip-version-check playwright==1.65.2
