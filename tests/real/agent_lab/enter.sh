#!/bin/sh
# First process of a ramdisk that is none: the real ironic-python-agent shall see scratch files and
# nothing else. Started by lab.py in network, mount and pid namespaces of its own, which end with it.
#   enter.sh STATE HERE ADDRESS GATEWAY READABLE:READABLE PYTHON [OPTION...]
set -eu
state=$1 here=$2 address=$3 gateway=$4 readable=$5 python=$6
shift 6

mount --make-rprivate /
: >"$state/ready"
until [ -e "$state/linked" ]; do sleep 0.02; done
ip link set lo up
ip address add "$address" peer "$gateway" dev eth0
ip link set eth0 up
# less than an image: what a killed daemon served is cut off, and does not wait in our own buffers
echo 4096 65536 131072 >/proc/sys/net/ipv4/tcp_rmem

stash=$(mktemp -d)
mount -t tmpfs -o mode=755 stash "$stash"
mkdir "$stash/dev" "$stash/state" "$stash/here"
for node in null zero random urandom; do
  touch "$stash/dev/$node"
  mount --bind "/dev/$node" "$stash/dev/$node"
done
mount --bind "$state" "$stash/state"
mount --bind "$here" "$stash/here"
# an interpreter below somebody's home stays readable, the rest of that home does not
old_ifs=$IFS
IFS=:
number=0
for path in $readable; do
  mkdir "$stash/$number"
  mount --bind "$path" "$stash/$number"
  number=$((number + 1))
done
for home in /root /home; do mount -t tmpfs -o mode=755 none "$home"; done
number=0
for path in $readable; do
  case $path in
  /root/* | /home/*)
    mkdir -p "$path"
    mount --bind "$stash/$number" "$path"
    ;;
  esac
  number=$((number + 1))
done
IFS=$old_ifs

mount -t tmpfs -o mode=755,uid=65534,gid=65534 none /run
mkdir /run/state /run/here
mount --bind "$stash/state" /run/state
mount --bind "$stash/here" /run/here
for folder in /sys/block /sys/dev/block /sys/class/block; do
  [ ! -d "$folder" ] || mount -t tmpfs none "$folder"
done
mount --rbind "$stash/dev" /dev
mount -o remount,bind,ro /proc 2>/dev/null || true

cd /run/state
# changing the user would clear "end when your parent ends": keep it
exec setpriv --pdeathsig keep --reuid 65534 --regid 65534 --clear-groups --no-new-privs \
  --bounding-set=-all --inh-caps=-all env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run/state TMPDIR=/run/state \
  PYTHONDONTWRITEBYTECODE=1 "$python" /run/here/agent_process.py "$@"
