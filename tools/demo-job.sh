#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The demo's job, run on every node: records the node while RDMA transfers cross one leaf (0 to 1, 3 to 2) and the spine (0 to 2, 3 to 1).
set -eu
node=$1

if [ "${2:-}" != traffic ]; then
    exec collwire record -o "$OUT" -- bash "$0" "$node" traffic
fi

# The responder of the transfer from node A listens on port 18600 + A. Requesters wait for it.
failed=0
pids=()
respond() {
    rdma_wr_post --listen $((18600 + $1)) --json "$OUT/from$1.json" &
    pids+=($!)
}
request() {
    local peer=PEER_$1
    shift
    rdma_wr_post --connect "${!peer}:$((18600 + node))" --json "$OUT/$peer.json" --qps 2 --duration 8 "$@" || failed=1
}
case $node in
0) request 1 --transport rc; request 2 --transport rc --api wr ;;
3) request 2 --transport rc; request 1 --transport uc ;;
*) respond 0; respond 3 ;;
esac
for pid in "${pids[@]}"; do
    wait "$pid" || failed=1
done
exit $failed
