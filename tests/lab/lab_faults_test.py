#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every kind of fault in one run of three nodes: what it does to the frames, and what the node it hits can see of it."""

import os
import struct
import sys

import lab_harness as harness

FAULTS = ("loss:1:30@T+0", "port:1@T+10+3", "silent:leaf0-spine0@T+15+4", "silent:tap2@T+20+1")


def times(out):
    """{(fault, event): seconds since the epoch}."""
    found = {}
    for record in harness.load(out, "fabric", "faults.json"):
        assert abs(record["at_s"] - record["asked_s"]) < 1, record
        assert "done_s" in record, record
        found[(record["fault"], record["event"])] = record["unix_ns"] / 1e9
    assert len(found) == 7, found
    return found


def stamps(path, source, destination):
    """Times of the IPv4 frames from one node to another."""
    with open(path, "rb") as file:
        data = file.read()
    at, found = 24, []
    while at < len(data):
        seconds, micros, kept = struct.unpack_from("<III", data, at)
        frame = data[at + 16:at + 16 + kept]
        if frame[:12] == harness.mac(destination) + harness.mac(source) and frame[12:14] == b"\x08\x00":
            found.append(seconds + micros / 1e6)
        at += 16 + kept
    return found


def between(found, start, end):
    return sum(start <= stamp < end for stamp in found)


def main():
    harness.need_root()
    before = harness.interfaces()
    with harness.scratch() as scratch:
        out = os.path.join(scratch, "out")
        arguments = ["--nodes", "3", "--pcap", "--limit", "500", "--boot-limit", "300", "--out", out, "--job", os.path.join(harness.HERE, "jobs_echo.py")]
        for fault in FAULTS:
            arguments += ["--fault", fault]
        status, said = harness.run(*arguments)
        assert status == 0, said
        at = times(out)
        echo = [harness.load(out, f"node{node}", "echo.json") for node in range(3)]
        fabric = os.path.join(out, "fabric")

        # A port flap is one edge down and one up, on the node that it hits and on no other.
        for node, edges in ((0, 0), (1, 2), (2, 0)):
            nic = echo[node]
            assert nic["after"]["carrier_changes"] - nic["before"]["carrier_changes"] == edges, (node, nic)
            assert nic["after"]["link_downed"] - nic["before"]["link_downed"] == edges // 2, (node, nic)
            assert nic["after"]["carrier"] == 1, (node, nic)
        down, up = at[(FAULTS[1], "start")], at[(FAULTS[1], "end")]
        answers = stamps(os.path.join(fabric, "tap1.pcap"), 1, 0)
        assert between(answers, down + 0.2, up) == 0, "node 1 sent while its port was down"
        assert between(answers, down - 2, down) > 10 and answers[-1] > up, "node 1 was not heard before or after the flap"

        # A cut uplink: the sender's frames go on into the fabric and come out nowhere.
        start, end = at[(FAULTS[2], "start")], at[(FAULTS[2], "end")]
        sent = stamps(os.path.join(fabric, "tap0.pcap"), 0, 2)
        arrived = stamps(os.path.join(fabric, "tap2.pcap"), 0, 2)
        assert between(sent, start + 0.2, end - 0.2) > 50, between(sent, start, end)
        assert between(arrived, start + 0.2, end - 0.2) == 0, between(arrived, start, end)
        assert between(arrived, end + 0.2, end + 1) > 10, "the uplink did not come back"
        # The same at a node's own link: its tap sees what it sends, nobody gets it.
        start, end = at[(FAULTS[3], "start")], at[(FAULTS[3], "end")]
        arrived = stamps(os.path.join(fabric, "tap2.pcap"), 0, 2)
        assert between(arrived, start + 0.1, end - 0.1) == 0 and arrived[-1] > end, "node 2 was not cut off"

        # Loss is behind the receiver's tap: the link carried the datagrams and the node did not get them.
        counts = echo[0]["counts"]
        asked = stamps(os.path.join(fabric, "tap1.pcap"), 0, 1)
        answered = len(answers)
        print(f"datagrams and echoes at node 0: {counts}; node 1's link: {len(asked)} in, {answered} out")
        expected = 0.7 * (len(asked) - between(asked, down, up))
        assert 0.8 * expected < answered < 1.2 * expected, (len(asked), answered, expected)
        harness.expect_nothing_left(out, before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
