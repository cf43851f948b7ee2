#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Process 1 of a node, on the overlay root. Brings the node up, then obeys the lab. With LAB_SYSTEMD process 1 goes on as systemd, and this script obeys as
# a service of it. The lab's commands come on the second serial port, one line each:
#   TIME SECONDS | PING | GO | LOSS INTERFACE PERCENT | QUIET
# and answers in lines, too: UP, REACHED, DONE STATUS, LOSS-SET, QUIET-SET or FAIL TEXT. A job adds EVENT NAME. Settings are in /out/lab.env.
# shellcheck source=/dev/null
. /out/lab.env
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
stty -F /dev/ttyS1 raw -echo
exec 3<>/dev/ttyS1
say() { echo "$*" >&3; }
# For a node that cannot boot: the reason, then it waits for its end.
fail() { say "FAIL $*"; echo "lab: $*"; exec sleep infinity; }

bring_up() {
	mount -o remount,rw / 2>/dev/null
	mkdir -p /dev/shm /dev/pts /lib/modules
	mount -t tmpfs -o mode=1777 tmpfs /dev/shm
	mount -t devpts devpts /dev/pts
	mount -t tmpfs -o mode=755 tmpfs /run
	mount -t debugfs debugfs /sys/kernel/debug
	mount -t tracefs tracefs /sys/kernel/tracing
	mount -t bpf bpf /sys/fs/bpf
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
	mount -t securityfs securityfs /sys/kernel/security
	mount --bind "$LAB_MODULES" /lib/modules
	for link in fd:/proc/self/fd stdin:/proc/self/fd/0 stdout:/proc/self/fd/1 stderr:/proc/self/fd/2; do
		ln -sfn "${link#*:}" "/dev/${link%%:*}"
	done
	hostname "node$NODE"
	for ((i = 0; i < NODES; i++)); do
		peer=PEER_$i
		echo "${!peer} node$i"
	done >> /etc/hosts
	ip link set lo up
	# Two NICs share one link layer: each answers ARP for its own address alone.
	for key in arp_ignore=1 arp_announce=2 rp_filter=0; do
		echo "${key#*=}" > "/proc/sys/net/ipv4/conf/all/${key%%=*}"
	done
	modprobe -a -q crc32_generic crc32c_generic # not in newer kernels
	rdma="ib_uverbs ib_umad rdma_cm rdma_ucm rdma_rxe"
	# shellcheck disable=SC2086 # words
	modprobe -a $rdma || fail "one of the modules $rdma cannot be loaded"
	for ((nic = 0; nic < LAB_NICS; nic++)); do
		mac=$(printf '52:54:00:00:%02x:%02x' $nic $((NODE + 1)))
		name=
		for device in /sys/class/net/*; do
			[ "$(cat "$device/address")" != "$mac" ] || name=${device##*/}
		done
		[ "$name" = eth$nic ] || fail "the NIC with address $mac is called '$name', not eth$nic"
		ip link set eth$nic mtu "$LAB_MTU" txqueuelen 10000 up
		ip addr add "10.0.$nic.$((NODE + 1))/24" dev eth$nic || fail "eth$nic got no address"
		rdma link add rxe$nic type rxe netdev eth$nic || fail "rxe$nic cannot be made"
	done
	for ((nic = 0; nic < LAB_NICS; nic++)); do
		port=/sys/class/infiniband/rxe$nic/ports/1
		gid=$(printf '0000:0000:0000:0000:0000:ffff:0a00:%02x%02x' $nic $((NODE + 1)))
		for ((try = 0; try < 100; try++)); do
			if [[ $(cat $port/state) == *ACTIVE* && $(cat $port/gids/1) == "$gid" ]]; then
				break
			fi
			sleep 0.1
		done
		((try < 100)) || fail "rxe$nic: state '$(cat $port/state)', GID 1 '$(cat $port/gids/1)', wanted ACTIVE and $gid"
	done
}

# The host's own services are not this node's.
become_systemd() {
	rm -rf /etc/systemd/system /var/lib/systemd
	mkdir -p /etc/systemd/system/multi-user.target.wants
	ln -s /lib/systemd/system/multi-user.target /etc/systemd/system/default.target
	cat > /etc/systemd/system/lab.service <<-UNIT
		[Unit]
		Description=the lab
		[Service]
		ExecStart=$LAB_INIT
		TasksMax=infinity
		LimitMEMLOCK=infinity
	UNIT
	ln -s ../lab.service /etc/systemd/system/multi-user.target.wants/lab.service
	: > /etc/tmpfiles.d/tmp.conf # /tmp of the host is not emptied
	rm -f /etc/hostname && echo "node$NODE" > /etc/hostname
	exec 3>&-
	exec /lib/systemd/systemd
}

reach_peers() {
	local nic i peer try
	for ((nic = 0; nic < LAB_NICS; nic++)); do
		for ((i = 0; i < NODES; i++)); do
			((i != NODE)) || continue
			peer=10.0.$nic.$((i + 1))
			for ((try = 0; try < 15; try++)); do
				! /usr/bin/busybox ping -c 1 -W 2 -I eth$nic $peer > /dev/null 2>&1 || break
			done
			((try < 15)) || fail "$peer does not answer"
		done
	done
	say REACHED
}

run_job() {
	ulimit -l unlimited
	ulimit -c 0
	export OUT=/out NODE NODES PATH=$LAB_PATH:/usr/local/sbin:/usr/local/bin:$PATH
	cd /out || exit 1
	if [ -x "$LAB_JOB" ]; then
		setsid "$LAB_JOB" "$NODE" > /out/job.log 2>&1 < /dev/null 3<&-
	else
		setsid bash "$LAB_JOB" "$NODE" > /out/job.log 2>&1 < /dev/null 3<&-
	fi
	local rc=$?
	echo $rc > /out/rc
	say "DONE $rc"
}

# Drops frames that arrive, before rxe sees them and after the fabric's counters and captures did.
set_loss() {
	local dev=$1 percent=$2 ifb=loss-$1
	if [ ! -e "/sys/class/net/$ifb" ]; then
		modprobe ifb numifbs=0 && ip link add "$ifb" type ifb && ip link set "$ifb" up &&
			tc qdisc add dev "$ifb" root netem loss 0% limit 1000000 &&
			{ tc qdisc show dev "$dev" | grep -q -E 'ingress|clsact' || tc qdisc add dev "$dev" clsact; } &&
			tc filter add dev "$dev" ingress prio 1 matchall action mirred egress redirect dev "$ifb" || return 1
	fi
	tc qdisc change dev "$ifb" root netem loss "$percent%" limit 1000000
}

# Ends all sending, so that counters and captures can be read at rest; receiving goes on.
be_quiet() {
	local nic
	for ((nic = 0; nic < LAB_NICS; nic++)); do
		[ -e /sys/class/net/eth$nic ] || continue # a job may have removed it
		ip -s -j link show eth$nic > /out/eth$nic.json
		rdma -j statistic show link rxe$nic/1 > /out/rxe$nic.json 2>/dev/null
	done
	dmesg > /out/dmesg
	for ((nic = 0; nic < LAB_NICS; nic++)); do
		[ -e /sys/class/net/eth$nic ] || continue
		tc qdisc show dev eth$nic | grep -q clsact || tc qdisc replace dev eth$nic clsact
		tc filter add dev eth$nic egress prio 1 matchall action drop || fail "eth$nic cannot be silenced"
	done
	sync
	say QUIET-SET
}

if [ $$ = 1 ]; then
	bring_up
	[ "$LAB_SYSTEMD" = 0 ] || become_systemd
fi
say UP
while read -r command first second <&3; do
	case $command in
	TIME) date -s "@$first" > /dev/null ;;
	PING) reach_peers ;;
	GO) run_job & ;;
	LOSS) if set_loss "$first" "$second"; then say LOSS-SET; else say "FAIL loss on $first cannot be set"; fi ;;
	QUIET) be_quiet ;;
	esac
done
