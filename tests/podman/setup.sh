#!/bin/sh
# podman, and what a small machine needs beside it. Installs through apt when it may.
set -eu
if ! command -v podman >/dev/null 2>&1 || ! command -v runc >/dev/null 2>&1; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "The tests need podman and runc. As root on Debian or Ubuntu:" >&2
    echo "  apt-get install podman runc netavark aardvark-dns iptables uidmap catatonit" >&2
    exit 1
  fi
  echo "Installing podman …"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends \
    podman runc netavark aardvark-dns iptables uidmap catatonit busybox-static >/dev/null
fi
podman --version
