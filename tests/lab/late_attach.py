# SPDX-License-Identifier: Apache-2.0
"""Judge of jobs/late_attach.py: recorders that start in the middle of transfers name every queue pair that is there, and count from a frame on
that they name. A process that dies in the middle of its transfer is counted to its end. Nobody is ptraced, and every transfer that lives verifies
its data."""

import ipaddress
import os

import lab_harness as harness

# Of the job, of its folder in each node's results, and of the event before it.
NAME = "late_attach"
CAPTURE = os.path.join(NAME, "capture")
REPORT = f"{NAME}.json"
NODES = 2
# The verifier gives up after 1,000,000. A program that is this far from it stays loadable with other compilers and kernels.
MOST_VERIFIED_INSTRUCTIONS = 100_000


def same_gid(one, other):
    return one is not None and ipaddress.IPv6Address(one) == ipaddress.IPv6Address(other)


def programs(out, name):
    """(host, JSON) of both sides of a transfer."""
    return [(f"node{node}", harness.load(out, f"node{node}", NAME, f"{name}.json")) for node in range(NODES)]


def check_existing(out, pairs):
    """Every queue pair of the transfers that started first, with both ends."""
    checked = 0
    for name in ("running", "gated"):
        for host, program in programs(out, name):
            assert program["verified"] and program.get("peer_verified", True), (name, host)
            for truth in program["qps"]:
                qp = pairs[(host, program["pid"], truth["qpn"])]
                assert qp["preexisting"], qp
                assert qp["remote_qpn"] == truth["remote_qpn"] and qp["pairing"] == "paired", qp
                assert same_gid(qp["remote_gid"], truth["remote_gid"]) and same_gid(qp["local_gid"], truth["local_gid"]), qp
                assert all("psn" in qp["wire"][direction]["first"] for direction in ("tx", "rx")), qp
                assert qp["destroyed_ns"] is not None, qp
                if name == "gated" and program["role"] == "requester":
                    check_gated(qp, truth)
                checked += 1
    print(f"{checked} queue pairs from before the recorder, both ends right")
    assert checked == 8, checked


def check_gated(qp, truth):
    """It stood still while the recorder started: what it posted after its gate is known, and is all that may be counted."""
    classes = truth["phases"]["after_go"]["classes"]
    sent = sum(of["bytes"] for name, of in classes.items() if name != "read")
    assert qp["tx_payload_bytes"] == qp["posted_tx_payload_bytes"] == sent, (qp, sent)
    assert qp["rx_payload_bytes"] == classes["read"]["bytes"], (qp, classes)


def check_dying(out, pairs):
    """Killed in the middle of its third round."""
    died, survived = (program for _, program in programs(out, "dying"))
    assert survived["peer_died"] and survived["verified"] and survived["rounds"] == 2, survived
    for host, program in (("node0", died), ("node1", survived)):
        for truth in program["qps"]:
            qp = pairs[(host, program["pid"], truth["qpn"])]
            assert not qp["preexisting"], qp
            assert qp["destroyed_ns"] is not None, f"{host} qp {qp['qpn']}: its end is missing"
            assert qp["tx_wire_bytes"] > 0, qp


def check_ports(report):
    """The port's sums start at its first sample: what stays unexplained is TCP, and traffic in bursts between two readings a few ms apart."""
    for port in report["ports"]:
        assert abs(port["unexplained_tx_bytes"]) <= port["uncertainty_bytes"] + port["tx_wire_bytes"] // 20, port
        print(f"{port['host']}: unexplained {port['unexplained_tx_bytes']} of {port['tx_wire_bytes']}, +- {port['uncertainty_bytes']}")


def check_results(out):
    for node in range(NODES):
        result = harness.load(out, f"node{node}", NAME, "result.json")
        assert result["status"] == 0, result
        most = max(result["verified_instructions"], default=0)
        print(f"node{node}: at most {most} instructions verified for a BPF program")
        assert most <= MOST_VERIFIED_INSTRUCTIONS, result["verified_instructions"]
        assert result["tracers"] and set(result["tracers"].values()) == {0}, f"node{node}: a process is ptraced: {result}"
    assert harness.load(out, "node0", NAME, "result.json")["dying"] == -9


def check(out, report):
    """All but what compare() holds against the packets."""
    print("--- late attach", flush=True)
    check_results(out)
    assert report["loss"]["records"] == 0, report["loss"]
    pairs = {(qp["host"], qp["pid"], qp["qpn"]): qp for qp in report["qps"]}
    check_existing(out, pairs)
    check_dying(out, pairs)
    check_ports(report)
