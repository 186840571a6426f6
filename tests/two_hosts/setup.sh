#!/bin/sh
# What two hosts on one machine need: sshd, iproute2, catatonit. No service of this machine need run.
set -eu
if [ ! -x /usr/sbin/sshd ] || ! command -v ip >/dev/null 2>&1 || ! command -v catatonit >/dev/null 2>&1; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "The tests of two hosts need: apt-get install openssh-server openssh-client iproute2 catatonit" >&2
    exit 1
  fi
  echo "Installing sshd for two hosts …"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends openssh-server openssh-client iproute2 catatonit procps >/dev/null
fi
