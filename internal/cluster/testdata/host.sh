#!/bin/bash
# The first process of a host: host.sh FOLDER NAME. It has namespaces of its own, and
# ends when it is killed, with everything on the host. FOLDER is the same on all hosts.
set -eu
dir=$1 name=$2
mount -t proc proc /proc
echo "$name" >/proc/sys/kernel/hostname
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mkdir /run/sshd
# Slurm wants control groups to be mounted; the machine's own stay as they are.
mount -t tmpfs cgroup /sys/fs/cgroup 2>/dev/null || true
# A /tmp of its own, with the common folder in it.
exec 9<"$dir"
mount -t tmpfs -o mode=1777 tmp /tmp
mkdir -p "$dir"
mount -c --bind /proc/self/fd/9 "$dir"
exec 9<&-
mount --bind "$dir/etc/hosts" /etc/hosts
mount --bind "$dir/etc/ssh_config" /etc/ssh/ssh_config
/usr/sbin/sshd -D -f "$dir/etc/sshd_config" -E "$dir/$name.log" &
echo ready >"$dir/$name.up"
# Adopted processes are reaped by the shell while it waits.
while :; do sleep 3600 & wait $! || true; done
