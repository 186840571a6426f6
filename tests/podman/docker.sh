#!/bin/sh
# docker, for the tests that run on podman and docker alike; each worker starts a daemon of its own. Where docker cannot
# be installed those tests are skipped, and say so.
set -eu
if ! command -v dockerd >/dev/null 2>&1; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "There is no dockerd: the tests on docker are skipped. As root on Debian or Ubuntu: apt-get install docker.io"
    exit 0
  fi
  echo "Installing docker …"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends docker.io >/dev/null
fi
dockerd --version
