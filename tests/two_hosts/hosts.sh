#!/bin/bash
# hosts.sh up|down|status | run HOST CMD... | ssh CMD...      Hosts on one machine, a (NET.1), b (NET.2) and so on as HOSTS
# says, and one more place c (NET.254). Each host is a process tree in its own net, mount, pid, uts and ipc namespaces: own eth0, host
# name, machine-id, /root, /run, /dev/shm, podman storage, and sshd on port 22. c holds the switch (bridge br0); a client
# may sit there. Nothing is added to the machine's own network or /run. Needs root.
# DIR: state (a short path outside /root). KEEP: paths under /root that stay visible in both hosts, separated by spaces.
# NET: the first three bytes of the addresses; sets with different DIR and NET live side by side.
# RING=1: no switch. A cable from each host to the next (eth1 there, eth2 here) has a network of its own, 192.168.101.0/24
# and so on, and says 200 Gb/s; the far cables are reached over the neighbours. All hosts have one machine-id, as clones.
set -euo pipefail
DIR=${DIR:-/var/tmp/twohosts} KEEP=${KEEP:-} NET=${NET:-10.77.0} HOSTS=${HOSTS:-a b} RING=${RING:-}
PATH=$PATH:/usr/sbin:/sbin; self=$(readlink -f "$0")

enter() { local p; p=$(cat "$DIR/$1/pid"); shift; nsenter -t "$p" -m -u -i -n -p --wd=/ env -i HOME=/root USER=root LANG=C.UTF-8 \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin CONTAINERS_CONF="$DIR/containers.conf" "$@"; }

born() { cut -d' ' -f22 "/proc/$1/stat" 2>/dev/null; }         # start time: a pid alone may have been given to another process since

case ${1:-} in
init)   # runs as PID 1 of a host, in its namespaces: $2 = a|b|c
  h=$2; d=$DIR/$h; hostname "spark-$h"; mount --make-rprivate /
  i=0; for k in $KEEP; do i=$((i+1)); mkdir -p "$d/keep$i"; mount --bind "$k" "$d/keep$i"; done
  mkdir -p "$d/cgroup"; mount --rbind /sys/fs/cgroup "$d/cgroup"                # a fresh sysfs shows this host's eth0, and would hide the cgroups
  mount -t sysfs -o ro sysfs /sys; mount --rbind "$d/cgroup" /sys/fs/cgroup
  mount -t tmpfs -o mode=755 tmpfs /run; mount -t tmpfs -o size=2g tmpfs /dev/shm   # podman's lock file lies in /dev/shm
  mkdir -p /run/sshd /run/lock /var/lib/containers
  mount --bind "$d/containers" /var/lib/containers; mount --bind "$d/home" /root
  i=0; for k in $KEEP; do i=$((i+1)); mkdir -p "$k"; mount --rbind "$d/keep$i" "$k"; done
  for f in hostname hosts machine-id shadow; do [ -e "/etc/$f" ] && mount --bind "$d/$f" "/etc/$f"; done
  ip link set lo up; touch "$d/ready"
  exec catatonit -P;;
up)
  [ -e "$DIR/a/pid" ] && { echo "already up, or not cleaned: $DIR" >&2; exit 1; }
  mkdir -p "$DIR"; cp "$(dirname "$self")/containers.conf" "$DIR/containers.conf"
  for h in $HOSTS c; do
    d=$DIR/$h; rm -f "$d/ready"; mkdir -p "$d/home/.ssh" "$d/containers" "$d/log"; chmod 700 "$d/home" "$d/home/.ssh"
    echo 'root:*:19000:0:99999:7:::' >"$d/shadow"; chmod 600 "$d/shadow"     # sshd refuses a locked root ("!"), as many CI images have it
    echo "spark-$h" >"$d/hostname"; tr -d - </proc/sys/kernel/random/uuid >"$d/machine-id"
    printf '127.0.0.1 localhost\n' >"$d/hosts"; n=0; for o in $HOSTS; do n=$((n+1)); echo "$NET.$n spark-$o" >>"$d/hosts"; done
    DIR=$DIR KEEP=$KEEP NET=$NET HOSTS=$HOSTS RING=$RING setsid unshare --net --mount --pid --uts --ipc --fork --mount-proc --kill-child "$self" init "$h" </dev/null >"$d/log/init" 2>&1 &
    echo $! >"$d/unshare"
  done
  for h in $HOSTS c; do
    d=$DIR/$h; for _ in $(seq 100); do [ -e "$d/ready" ] && break; sleep .05; done; [ -e "$d/ready" ] || { cat "$d/log/init" >&2; exit 1; }
    cat "/proc/$(cat "$d/unshare")/task/$(cat "$d/unshare")/children" | tr -d ' ' >"$d/pid"       # PID 1 of the host as this machine counts it
    born "$(cat "$d/pid")" >"$d/born"
  done
  if [ -n "$RING" ]; then all=($HOSTS); count=${#all[@]}
    for h in $HOSTS; do cat "$DIR/a/machine-id" >"$DIR/$h/machine-id"; echo 200000 >"$DIR/$h/speed"; done
    for k in $(seq "$count"); do h=${all[k-1]} o=${all[k % count]}
      nsenter -t "$(cat "$DIR/$h/pid")" -n ip link add eth1 type veth peer name eth2 netns "$(cat "$DIR/$o/pid")"
      enter "$h" ip addr add "192.168.$((100+k)).1/24" dev eth1; enter "$h" ip link set eth1 up
      enter "$o" ip addr add "192.168.$((100+k)).2/24" dev eth2; enter "$o" ip link set eth2 up
    done
    for k in $(seq "$count"); do h=${all[k-1]} before=$(((k + count - 2) % count + 1))
      enter "$h" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward; echo 0 2147483647 >/proc/sys/net/ipv4/ping_group_range'   # as Ubuntu
      enter "$h" ip route add "192.168.$((100 + k % count + 1)).0/24" via "192.168.$((100+k)).2"
      enter "$h" ip route add "192.168.$((100 + (before + count - 2) % count + 1)).0/24" via "192.168.$((100+before)).1"
      for e in eth1 eth2; do enter "$h" mount --bind "$DIR/$h/speed" "/sys/class/net/$e/speed"; done
    done
  fi
  enter c ip link add br0 type bridge; enter c ip addr add "$NET.254/24" dev br0; enter c ip link set br0 up
  n=0; for h in $HOSTS; do n=$((n+1)); [ -z "$RING" ] || break
    enter c ip link add "v$h" type veth peer name "p$h"
    nsenter -t "$(cat "$DIR/c/pid")" -n ip link set "p$h" netns "$(cat "$DIR/$h/pid")"
    enter "$h" ip link set "p$h" name eth0; enter "$h" ip addr add "$NET.$n/24" dev eth0; enter "$h" ip link set eth0 up
    enter c ip link set "v$h" master br0 up
  done
  [ -e "$DIR/a/home/.ssh/id_ed25519" ] || ssh-keygen -q -t ed25519 -N '' -C spark-a -f "$DIR/a/home/.ssh/id_ed25519"
  n=0; : >"$DIR/a/home/.ssh/known_hosts"
  for h in $HOSTS; do n=$((n+1)); d=$DIR/$h; [ -e "$d/ssh_host" ] || ssh-keygen -q -t ed25519 -N '' -C "spark-$h" -f "$d/ssh_host"
    cp "$DIR/a/home/.ssh/id_ed25519.pub" "$d/home/.ssh/authorized_keys"
    printf '%s.%s,spark-%s %s\n' "$NET" "$n" "$h" "$(cut -d' ' -f1,2 "$d/ssh_host.pub")" >>"$DIR/a/home/.ssh/known_hosts"
    cat >"$d/sshd_config" <<E
Port 22
HostKey $d/ssh_host
PidFile /run/sshd.pid
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AuthorizedKeysFile /root/.ssh/authorized_keys
SetEnv CONTAINERS_CONF=$DIR/containers.conf LANG=C.UTF-8
LogLevel VERBOSE
E
    enter "$h" /usr/sbin/sshd -f "$d/sshd_config" -E "$d/log/sshd"
  done
  cat >"$DIR/a/home/.ssh/config" <<E
Host spark-*
  StrictHostKeyChecking yes
  BatchMode yes
  ConnectTimeout 3
  ServerAliveInterval 2
  ServerAliveCountMax 3
  ControlMaster auto
  ControlPath /run/ssh-%C
  ControlPersist 60
E
  for h in $HOSTS c; do echo "up: $h=$(cat "$DIR/$h/pid")"; done;;
down)   # the kernel kills all that lives in a pid namespace when its PID 1 dies; mounts, links and shared memory go with them
  for h in $HOSTS c; do d=$DIR/$h; [ -s "$d/born" ] && [ "$(born "$(cat "$d/pid")")" = "$(cat "$d/born")" ] && kill -9 "$(cat "$d/pid")"; rm -f "$d/pid" "$d/unshare" "$d/ready"; done || true
  [ -e "$DIR/containers.conf" ] || exit 0                       # nothing of ours here: remove nothing
  for i in "$DIR"/?/containers/storage/overlay-containers/*/; do i=$(basename "$i"); [ ${#i} = 64 ] || continue     # empty cgroups of containers that still ran
    find /sys/fs/cgroup -depth -type d -name "libpod-*$i*" -exec rmdir {} + 2>/dev/null || true; done
  for _ in $(seq 50); do rm -rf "$DIR" 2>/dev/null && break; sleep .1; done
  [ ! -e "$DIR" ] || { echo "left: $DIR" >&2; exit 1; };;
run)    shift; enter "$@";;
ssh)    shift; enter a ssh spark-b "$@";;
status) for h in $HOSTS c; do echo "$h $(cat "$DIR/$h/pid" 2>/dev/null)"; enter "$h" ip -br addr; done;;
*) sed -n 2,10p "$self"; exit 2;;
esac
