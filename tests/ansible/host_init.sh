#!/bin/sh
# First process of a throw-away host: its own root (the machine's, seen through an overlay), its
# own /dev without any disk, an empty /sys, then a real sshd.
#   host_init.sh FOLDER NAME     HOST_COLD=1: the power was off before
set -eu
folder=$1 name=$2 root=$1/root
read -r outside _ </proc/self/stat # this /proc is still the machine's: the pid that it knows
echo "$outside" >"$folder/pid"

mount --make-rprivate /
mount -t overlay host -o "lowerdir=/,upperdir=$folder/disk/upper,workdir=$folder/disk/work" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=0755 dev "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$root/dev/pts"
mknod -m 0666 "$root/dev/null" c 1 3
mknod -m 0666 "$root/dev/zero" c 1 5
mknod -m 0666 "$root/dev/random" c 1 8
mknod -m 0666 "$root/dev/urandom" c 1 9
mknod -m 0666 "$root/dev/tty" c 5 0
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o mode=0755 run "$root/run"
mkdir "$root/run/sshd" "$root/run/lock" "$root/run/boot"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
cp "$folder/boot_id" "$root/run/boot/id"
mount --bind "$root/run/boot/id" "$root/proc/sys/kernel/random/boot_id"
hostname "$name"

mkdir -p "$root/etc/provisioner-test"
cp "$folder/sshd_config" "$folder/host_key" "$folder/authorized" "$root/etc/provisioner-test/"
chmod 0600 "$root/etc/provisioner-test/host_key"
# ansible.builtin.reboot takes it by its absolute path; here it is a link to systemctl
rm -f "$root/usr/sbin/shutdown"
cat >"$root/usr/sbin/shutdown" <<'FAKE'
#!/bin/sh
trap '' HUP
setsid sh -c 'sleep 0.3; kill -TERM 1' </dev/null >/dev/null 2>&1 &
FAKE
chmod 0755 "$root/usr/sbin/shutdown"
: >"$root/root/.bashrc" # a person's start-up files would run at every login

cd "$root"
mkdir -p old
pivot_root . old
umount -l /old
rmdir /old 2>/dev/null || true
[ ! -x /usr/local/lib/standins/boot ] || /usr/local/lib/standins/boot

exec /usr/sbin/sshd -D -e -f /etc/provisioner-test/sshd_config
