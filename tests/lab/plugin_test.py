#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL through a network plugin on four nodes over kernel RDMA: the report names the plugin, and joins its bytes with operations, none of them
exact. The truth is the log of the test double of CUDA (bytes of each operation on each connection) and the plugin's own (the connection of each QP).

plugin_test.py [--kernel SERIES] [--nccl VERSION] [--cases CASE,CASE+CASE,...]"""

import collections
import json
import os
import subprocess
import sys

import lab_harness as harness
import nccl_run

sys.path[:0] = [os.path.join(harness.ROOT, "tests", "nccl")]

import cases  # noqa: E402
import identity_truth as truth  # noqa: E402
import inferred_truth  # noqa: E402
import late_truth  # noqa: E402

NAME, FILE = "collwire-double", "libnccl-net-collwire-double.so"


def network_logs(recorded):
    """(host, pid) -> the plugin's log: the address by which NCCL knows a connection -> (QP number, whether it sends)."""
    return {process: {line["net_comm"]: (line["qpn"], line["sends"]) for line in truth.lines_of(path)}
            for process, path in recorded.of_processes("network.*").items()}


def connections_of(captures):
    """(host, pid, net_comm) -> rank, peer, channel and direction, as NCCL's memory has them."""
    connections = {}
    for capture in captures:
        host = os.path.basename(os.path.dirname(os.path.dirname(capture)))
        dumped = subprocess.run([harness.COLLWIRE, "dump", "--kind", "nccl_connection", capture], capture_output=True, text=True, check=True).stdout
        for record in map(json.loads, dumped.splitlines()):
            if record.get("kind") == "nccl_connection":
                connections[(host, record["tgid"], record["net_comm"])] = record
    return connections


def check_queue_pairs(report, logs, connections):
    """Role, ranks and channel of each queue pair in the report, against the plugin's log. Returns (how many agree, of how many, problems)."""
    expected = {}
    for (host, pid, net_comm), record in connections.items():
        qpn, sends = logs[(host, pid)][int(str(net_comm), 0)]
        expected[(host, pid, qpn)] = ("data" if sends else "clear_to_send", record["rank"], record["peer"], record["channel"])
    wrong, told = [], collections.Counter()
    for qp in report["qps"]:
        key = (qp["host"], qp["pid"], qp["qpn"])
        if key not in expected or qp["role"] not in ("data", "clear_to_send"):
            continue
        told[qp["role"]] += 1
        if (qp["role"], qp["rank"], qp["peer_rank"], qp["channel"]) != expected[key]:
            wrong.append(f"{key}: {qp['role']} {qp['rank']} -> {qp['peer_rank']} channel {qp['channel']}, the plugin has {expected[key]}")
    for role, n in collections.Counter(role for role, *_ in expected.values()).items():
        if told[role] < inferred_truth.FEWEST_JOINED * n:
            wrong.append(f"the report has {told[role]} of {n} queue pairs that are {role}")
    return sum(told.values()), len(expected), wrong


def check_inspections(case, out, logs, connections):
    """`inspect` in the running job names the plugin, and the queue pairs of what is in flight."""
    problems, checked = [], 0
    own = {(host, pid, int(str(record["connection"]), 0)): net_comm for (host, pid, net_comm), record in connections.items()}
    for node in range(nccl_run.NODES):
        for process in harness.load(out, f"node{node}", case.job_name, "inspect.json")["processes"]:
            networks = process["networks"]
            if [(one["plugin"], os.path.basename(one["file"] or "")) for one in networks] != [(NAME, FILE)] or not networks[0]["connections"]:
                problems.append(f"inspect, node{node}: {networks}")
            for transfer in (transfer for proxy in process["proxies"] for operation in proxy["operations"] for transfer in operation["transfers"]):
                net_comm = own.get((f"node{node}", process["pid"], int(transfer["connection"], 0)))
                for endpoint in transfer["endpoints"] if net_comm is not None else ():
                    checked += 1
                    if endpoint["qpn"] != logs[(f"node{node}", process["pid"])][int(str(net_comm), 0)][0]:
                        problems.append(f"inspect, node{node}: {transfer['connection']} has queue pair {endpoint['qpn']}")
    print(f"{case.name}: inspect names the plugin, and {checked} queue pairs of what is in flight", flush=True)
    return problems if checked else [*problems, "inspect names no queue pair"]


def judge(recorded):
    """Problems of a case."""
    case, report = recorded.case, recorded.report
    double, problems = truth.Truth(recorded.doubles, recorded.is_local), []
    used = [network for network in report["networks"] if network["plugin"] == NAME and os.path.basename(network["file"] or "") == FILE]
    if len(used) != nccl_run.NODES or any(network["connections"] == 0 for network in used):
        problems.append(f"networks {report['networks']}")
    [finding] = [finding for finding in report["findings"] if finding["kind"] == "network_plugin"]
    if NAME not in finding["what"] or FILE not in finding["what"]:
        problems.append(finding["what"])
    logs, connections = network_logs(recorded), connections_of(recorded.captures)
    named, all_of_them, wrong = check_queue_pairs(report, logs, connections)
    problems += wrong
    if case.late_s:
        problems += check_inspections(case, recorded.out, logs, connections)
    # A report confirms what the double's log agrees with, except on queue pairs that it chose by their bytes.
    in_flight = late_truth.most_under_way(recorded.doubles, recorded.ready_ns, recorded.is_local) if case.late_s else None
    is_by_bytes = case.environment == cases.HIDDEN
    line, of_bytes = inferred_truth.judge(report, double, in_flight, 0 if case.late_s or is_by_bytes else inferred_truth.FEWEST_JOINED)
    if is_by_bytes and report["identity"]["inferred_confirmed"]:
        problems.append("bytes are confirmed by the queue pairs that were chosen by these bytes")
    if any(operation["rung"] == "exact" for kind in ("collectives", "p2p") for operation in report[kind] if operation["tx_payload_bytes"]):
        problems.append("an operation through the plugin is exact")
    print(f"{case.name}: {named} of {all_of_them} queue pairs named, {len(wrong)} wrong; {line}", flush=True)
    return problems + of_bytes


if __name__ == "__main__":
    nccl_run.main(judge, ",".join(cases.PLUGIN))
