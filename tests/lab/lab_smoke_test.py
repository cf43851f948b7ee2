#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Four nodes, real RDMA from node 0 to a node on its own leaf and to one on the other: which links carry it, and do all counts agree?"""

import os
import sys

import lab_harness as harness

MTU_BYTES = 1500
PAYLOAD_BYTES = 65536 * 100


def check_links(out):
    """Counter == capture, for every link and direction. Returns the RoCE bytes by link and (source, destination)."""
    nodes = {harness.mac(node): node for node in range(4)}
    leaf = {0: "leaf0", 1: "leaf0", 2: "leaf1", 3: "leaf1"}
    roce = {}
    links = harness.load(out, "fabric", "links.json")
    assert [link["name"] for link in links] == ["tap0", "tap1", "tap2", "tap3", "leaf0-spine0", "leaf1-spine0"], links
    for i, link in enumerate(links):
        seen = {"a_to_b": [0, 0], "b_to_a": [0, 0]}
        capture = f"{link['name']}.pcap" if i < 4 else f"up{i - 4}.pcap"
        for source, destination, _, length, frame in harness.frames(os.path.join(out, "fabric", capture)):
            assert source in nodes, f"{link['name']}: a frame from {source.hex(':')}, which is no node"
            assert length <= MTU_BYTES + 14, f"{link['name']}: a frame of {length} B cannot be on a wire of MTU {MTU_BYTES}"
            outward = nodes[source] == i if i < 4 else leaf[nodes[source]] == link["a"]
            side = seen["a_to_b" if outward else "b_to_a"]
            side[0] += 1
            side[1] += length
            if harness.is_roce(frame):
                key = (link["name"], nodes[source], nodes[destination])
                roce[key] = roce.get(key, 0) + length
        for direction, (count, length) in seen.items():
            difference = (link[f"{direction}_pkts"] - count, link[f"{direction}_bytes"] - length)
            print(f"{link['name']:13} {direction}: {length} B in {count} frames, counter - capture {difference}")
            assert difference == (0, 0), f"{link['name']} {direction}"
    return roce, {link["name"]: link for link in links}


def main():
    harness.need_root()
    harness.need_programs()
    before = harness.interfaces()
    with harness.scratch() as scratch:
        out = os.path.join(scratch, "out")
        status, said = harness.run("--nodes", "4", "--kernel", "6.1", "--pcap", "--limit", "500", "--boot-limit", "300", "--out", out,
                                   "--job", os.path.join(harness.HERE, "jobs", "write_bw.py"))
        harness.print_logs(out)
        assert status == 0, said
        roce, links = check_links(out)
        assert roce[("tap0", 0, 1)] > PAYLOAD_BYTES and roce[("tap0", 0, 2)] > PAYLOAD_BYTES, roce
        for link in ("leaf0-spine0", "leaf1-spine0"):
            crossed = {key[1:] for key in roce if key[0] == link}
            assert crossed == {(0, 2), (2, 0)}, f"{link} carried {crossed}"
            assert roce[(link, 0, 2)] == roce[("tap0", 0, 2)] == roce[("tap2", 0, 2)], roce
            assert roce[(link, 2, 0)] == roce[("tap2", 2, 0)], roce
        # What is not RoCE on the uplink (ARP, TCP of the benchmark) is little: the counter itself tells the two transfers apart.
        assert PAYLOAD_BYTES < links["leaf0-spine0"]["a_to_b_bytes"] < PAYLOAD_BYTES * 1.2, links
        for node in range(4):
            with open(os.path.join(out, f"node{node}", "rc"), encoding="ascii") as source:
                assert source.read() == "0\n"
        topology = harness.load(out, "topology.json")
        assert [port["switch"] for port in topology["ports"]] == ["leaf0", "leaf0", "leaf1", "leaf1"], topology
        harness.expect_nothing_left(out, before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
