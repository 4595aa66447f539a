#!/bin/sh
# walk.sh PROGRAM FOLDER: from a package to a rehearsed site, as somebody who is not root and has
# no checkout. The site is simulated, with factory passwords; the commands are those of
# docs/first-rack.md. Each ends with 0, or this script ends with its words.
set -eu
program=$1
cd "$2"
[ "$(id -u)" != 0 ]
unset PYTHONPATH
export HOME="$PWD" COLUMNS=200
export FACTORY_SUPERMICRO=ADMIN-of-this-order-1 FACTORY_NVIDIA_OPENBMC=0penBmc
export SWITCH_PASSWORD=Cumulus-of-this-site-1
site="--range 127.0.83.0/27 --port 18443"

walk() {
  "$program" "$@" >said 2>&1 </dev/null || {
    echo "ended with $?: provisioner $*"
    cat said
    exit 1
  }
  echo "ended with 0: $1"
}

walk --help
walk help first-rack
grep -q "Take in your first rack" said
walk matrix export firmware_matrix.yaml
[ -s firmware_matrix.yaml ]

"$program" sim serve --nodes 1 --listen 127.0.83.1 --port 18443 --speed 300 >sim 2>&1 &
trap 'kill -INT $! 2>/dev/null || true' EXIT
for second in $(seq 60); do grep -qs Ctrl-C sim && break; sleep 1; done
grep -q Ctrl-C sim || { cat sim; exit 1; }
mkdir artifacts
# shellcheck disable=SC2086 # two options
walk init $site --switches 127.0.83.0/27 --switch-port 18443
walk matrix check --matrix site.yaml
walk matrix check --matrix firmware_matrix.yaml --matrix site.yaml
# shellcheck disable=SC2086
walk doctor --file expected.yaml $site --matrix site.yaml --artifacts artifacts --lab
walk rehearse --file expected.yaml --matrix site.yaml --inventories nodes --lab
echo walked
