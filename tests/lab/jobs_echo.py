#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Node 0 sends a numbered datagram to every other node each 40 ms until 23 s after its job began; they send it back. Each node writes what
its NIC saw."""

import json
import os
import select
import socket
import sys
import time

PORT = 5000
SECONDS = 23


def read(path):
    with open(path, encoding="ascii") as source:
        return int(source.read())


def age_s():
    """Time since this process began: a slow machine needs seconds to get to this line, and faults are timed from the start of the job."""
    with open("/proc/self/stat", encoding="ascii") as source:
        started = int(source.read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def nic():
    return {"carrier_changes": read("/sys/class/net/eth0/carrier_changes"), "carrier": read("/sys/class/net/eth0/carrier"),
            "link_downed": read("/sys/class/infiniband/rxe0/ports/1/hw_counters/link_downed")}


def ask(sock, peers):
    """{peer: [sent, came back]}; ends every peer in the end, however many datagrams that takes."""
    counts = {peer: [0, 0] for peer in peers}
    end = time.monotonic() + SECONDS - age_s()
    due = time.monotonic()
    while due < end:
        for peer in peers:
            sock.sendto(b"number %d" % counts[peer][0], (peer, PORT))
            counts[peer][0] += 1
        due += 0.04
        while select.select([sock], [], [], max(0, due - time.monotonic()))[0]:
            counts[sock.recvfrom(100)[1][0]][1] += 1
    waiting = set(peers)
    while waiting:
        for peer in waiting:
            sock.sendto(b"end", (peer, PORT))
        while select.select([sock], [], [], 0.2)[0]:
            data, (peer, _) = sock.recvfrom(100)
            if data == b"end":
                waiting.discard(peer)
            else:
                counts[peer][1] += 1
    return counts


def main():
    me, nodes = int(sys.argv[1]), int(os.environ["NODES"])
    peers = [os.environ[f"PEER_{node}"] for node in range(nodes)]
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((peers[me], PORT))
    before = nic()
    result = {}
    if me == 0:
        result["counts"] = ask(sock, peers[1:])
    else:
        ended = False
        # After the first "end" node 0 may ask again, when the answer was lost.
        while not ended or select.select([sock], [], [], 3)[0]:
            data, source = sock.recvfrom(100)
            sock.sendto(data, source)
            ended = ended or data == b"end"
    result.update(before=before, after=nic())
    with open(os.path.join(os.environ["OUT"], "echo.json"), "w", encoding="ascii") as out:
        json.dump(result, out)


main()
