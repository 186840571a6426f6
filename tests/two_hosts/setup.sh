#!/bin/sh
# What two hosts on one machine need: sshd, iproute2, catatonit, rsync, iperf3, iptables, ping. No service of this machine need run.
set -eu
missing=$(for program in ip catatonit rsync iperf3 iptables ping /usr/sbin/sshd; do command -v "$program" >/dev/null || echo "$program"; done)
if [ -n "$missing" ]; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "The tests of two hosts need: apt-get install openssh-server openssh-client iproute2 catatonit rsync iperf3 iptables iputils-ping" >&2
    exit 1
  fi
  echo "Installing what two hosts need …"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends openssh-server openssh-client iproute2 catatonit procps rsync iperf3 iptables iputils-ping >/dev/null
fi
