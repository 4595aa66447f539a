#!/bin/sh
# Keeps one throw-away host "powered": runs it, and runs it again after a reboot. Started by
# hosts.py in a network and a mount namespace of its own, which end with it.
#   host_supervisor.sh FOLDER NAME ADDRESS GATEWAY DISK_MIB BOOT_S
set -eu
folder=$1 name=$2 address=$3 gateway=$4 disk_mib=$5 boot_s=$6

mount --make-rprivate /
mkdir -p "$folder/disk" "$folder/root"
mount -t tmpfs -o "size=${disk_mib}m,mode=0755" disk "$folder/disk" # what survives a reboot
mkdir "$folder/disk/upper" "$folder/disk/work"
: >"$folder/ready"
until [ -e "$folder/linked" ]; do sleep 0.02; done
ip link set lo up
ip address add "$address" peer "$gateway" dev eth0
ip link set eth0 up

: >"$folder/cold"
while :; do
  while [ -e "$folder/off" ]; do sleep 0.05; done
  cold=0
  [ ! -e "$folder/cold" ] || cold=1
  rm -f "$folder/cold"
  cat /proc/sys/kernel/random/uuid >"$folder/boot_id"
  # the host's processes end with its first one, and that with this script
  HOST_COLD=$cold setpriv --pdeathsig KILL unshare --mount --uts --pid --fork --kill-child \
    sh "$(dirname "$0")/host_init.sh" "$folder" "$name" </dev/null || true
  rm -f "$folder/pid"
  sleep "$boot_s"
done
