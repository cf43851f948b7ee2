#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash disable=SC1091,SC2015
# Process 1 until the node's real root is there: the host's root file system, read-only over 9p, under a tmpfs overlay.
B=/bin/busybox
die() {
	echo "lab: initramfs: $*"
	$B sync
	echo o > /proc/sysrq-trigger
	$B sleep 60
}
$B mount -t proc proc /proc && $B mount -t sysfs sys /sys && $B mount -t devtmpfs dev /dev || die "proc, sys or dev cannot be mounted"
while read -r module; do
	$B insmod "/modules/$module" || die "module $module cannot be loaded"
done < /modules.list
$B mkdir -p /ro /rw /new
p9=trans=virtio,version=9p2000.L,msize=524288
$B mount -t 9p -o "$p9,ro,cache=loose" host /ro || die "the host's root cannot be mounted over 9p"
$B mount -t tmpfs tmpfs /rw && $B mkdir -p /rw/u /rw/w
$B mount -t overlay overlay -o lowerdir=/ro,upperdir=/rw/u,workdir=/rw/w /new || die "the overlay cannot be mounted"
$B mkdir -p /new/out /new/proc /new/sys /new/dev
$B mount -t 9p -o "$p9" out /new/out || die "the output directory cannot be mounted over 9p"
for d in proc sys dev; do
	$B mount --move /$d /new/$d
done
. /new/out/lab.env
exec $B switch_root /new "$LAB_INIT"
