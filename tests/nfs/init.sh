#!/bin/sh
# The first process of the guest: init.sh FOLDER runs FOLDER/command with what a small Linux needs
# around it, and ends the guest. FOLDER is the host's; there are FOLDER/said and FOLDER/code, then.
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/run/tmp HOME=/run PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
mkdir /run/tmp /run/host
mount -t hostfs -o "$1" host /run/host

# No modprobe: the host need not have it, nor /lib/modules. Each comes with what it needs behind it.
modules=$(echo /usr/lib/uml/modules/*)
for name in fuse overlay ipv6 nfsv3 nfsv4; do
  files=
  # shellcheck disable=SC2013 # words are wanted: the line has a name and those that it needs
  for file in $(sed -n "s|^\(kernel/.*/$name\.ko\):|\1 |p" "$modules/modules.dep"); do
    files="$file $files"
  done
  for file in $files; do
    busybox insmod "$modules/$file" 2>/dev/null
  done
done
ip link set lo up

sh /run/host/command >/run/host/said 2>&1 </dev/null
echo $? >/run/host/code
busybox poweroff -f
