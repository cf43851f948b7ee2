#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Node 0 writes to node 1 and then to node 2; each prints its perftest line. Node 3 only watches.
set -u
options=(-d rxe0 -x 1 -s 65536 -n 100 -F --report_gbits)
case $1 in
0)
	for peer in "$PEER_1" "$PEER_2"; do
		for ((try = 1; ; try++)); do
			# Until the other end listens.
			ib_write_bw "${options[@]}" "$peer" && break
			((try < 40)) || exit 1
			sleep 0.5
		done
	done
	;;
1 | 2) timeout 120 ib_write_bw "${options[@]}" ;;
esac
