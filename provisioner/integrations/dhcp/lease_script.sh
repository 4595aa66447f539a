#!/bin/sh
# Notes each lease that dnsmasq grants, repeats or ends, one line each, for
# `provisioner discover leases FILE`. dnsmasq runs it, one at a time:
#
#   dhcp-script=/usr/local/sbin/note-lease
#   dhcp-scriptuser=dnsmasq
#
# The folder of the notes belongs to that user: install -d -o dnsmasq /var/lib/provisioner-leases.
# The notes grow to 4 MiB, then become FILE.1. Names and classes are the client's own words: each is
# cut, and loses all but printable ASCII, so that it can begin no line and no field.
set -u
umask 027
LC_ALL=C
export LC_ALL
file=${LEASE_NOTES:-/var/lib/provisioner-leases/notes}
limit=4194304

case "${1:-}" in
add | old | del) ;;
*) exit 0 ;; # other actions of dnsmasq: init, tftp, arp-add, ...
esac
[ "$#" -ge 3 ] || exit 0

clean() {
  printf '%s' "$1" | head -c 255 | tr -cd '\040-\176'
}

number() {
  case "$1" in
  '' | *[!0-9]*) printf 0 ;;
  *) printf '%s' "$1" | head -c 12 ;;
  esac
}

size=$(wc -c <"$file" 2>/dev/null) || size=0
[ "$size" -lt "$limit" ] || mv -f -- "$file" "$file.1"

printf 'note1\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' \
  "$(date +%s)" "$1" "$(clean "$2")" "$(clean "$3")" \
  "$(number "${DNSMASQ_LEASE_EXPIRES:-}")" \
  "$(clean "${4:-}")" \
  "$(clean "${DNSMASQ_VENDOR_CLASS:-}")" \
  "$(clean "${DNSMASQ_CIRCUIT_ID:-}")" \
  "$(clean "${DNSMASQ_REMOTE_ID:-}")" \
  >>"$file"
