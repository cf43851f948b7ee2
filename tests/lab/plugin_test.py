#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL through a network plugin on four nodes over kernel RDMA: the report names it, and joins its bytes with operations, none of them
exact. Against the log of the test double of CUDA (bytes of each operation on each connection) and that of the plugin (whose each queue pair is).

plugin_test.py [--kernel SERIES] [--nccl VERSION] [--cases CASE,...]"""

import argparse
import collections
import glob
import json
import os
import subprocess
import sys

import lab_harness as harness
import nccl_test

sys.path[:0] = [os.path.join(harness.ROOT, "tests", "nccl"), os.path.join(harness.HERE, "truth")]

import cases  # noqa: E402
import identity_truth as truth  # noqa: E402
import inferred_truth  # noqa: E402
import late_truth  # noqa: E402

NAME, FILE = "collwire-double", "libnccl-net-collwire-double.so"


def network_logs(out, case):
    """By host and process: the queue pair of each connection, by the address by which NCCL knows it."""
    logs = {}
    for path in sorted(glob.glob(os.path.join(out, "node*", case.name, "network.*"))):
        host, rank = os.path.relpath(path, out).split(os.sep)[0], path.rsplit(".", 1)[1]
        pid = truth.lines_of(os.path.join(os.path.dirname(path), f"job.{rank}"))[0]["pid"]
        logs[(host, pid)] = {line["net_comm"]: (line["qpn"], line["sends"]) for line in truth.lines_of(path)}
    return logs


def connections_of(captures):
    """(host, process, net_comm): rank, peer, channel, whether it sends; as NCCL's own memory says."""
    connections = {}
    for host, capture in captures.items():
        dumped = subprocess.run([harness.COLLWIRE, "dump", "--kind", "nccl_connection", capture], capture_output=True, text=True, check=True).stdout
        for record in map(json.loads, dumped.splitlines()):
            if record.get("kind") == "nccl_connection":
                connections[(host, record["tgid"], record["net_comm"])] = record
    return connections


def check_queue_pairs(report, logs, connections):
    """What the report says of each queue pair, against the plugin's log."""
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
            wrong.append(f"{key}: {qp['role']} {qp['rank']} -> {qp['peer_rank']} channel {qp['channel']}, it is {expected[key]}")
    for role, n in collections.Counter(role for role, *_ in expected.values()).items():
        if told[role] < inferred_truth.FEWEST_JOINED * n:
            wrong.append(f"{told[role]} of {n} queue pairs are told that are {role}")
    return sum(told.values()), len(expected), wrong


def check_inspections(case, out, logs, connections):
    """What `inspect` says in the middle of the job: the plugin, and the queue pairs of what is under way."""
    problems, checked = [], 0
    own = {(host, pid, int(str(record["connection"]), 0)): net_comm for (host, pid, net_comm), record in connections.items()}
    for node in range(nccl_test.NODES):
        for process in harness.load(out, f"node{node}", case.name, "inspect.json")["processes"]:
            networks = process["networks"]
            if [(one["plugin"], os.path.basename(one["file"] or "")) for one in networks] != [(NAME, FILE)] or not networks[0]["connections"]:
                problems.append(f"inspect, node{node}: {networks}")
            for transfer in (transfer for proxy in process["proxies"] for operation in proxy["operations"] for transfer in operation["transfers"]):
                net_comm = own.get((f"node{node}", process["pid"], int(transfer["connection"], 0)))
                for endpoint in transfer["endpoints"] if net_comm is not None else ():
                    checked += 1
                    if endpoint["qpn"] != logs[(f"node{node}", process["pid"])][int(str(net_comm), 0)][0]:
                        problems.append(f"inspect, node{node}: {transfer['connection']} has queue pair {endpoint['qpn']}")
    print(f"{case.name}: inspect names the plugin, and {checked} queue pairs of what is under way", flush=True)
    return problems if checked else [*problems, "inspect names no queue pair"]


def check_case(case, out):
    captures = sorted(glob.glob(os.path.join(out, "node*", case.name, "capture")))
    report = harness.report_of(captures, os.path.join(out, f"{case.name}.json"), "--topology", os.path.join(out, "topology.json"), "--detail",
                               quiet=True, expected=(0, harness.LOST))
    jobs = [truth.lines_of(path) for path in sorted(glob.glob(os.path.join(out, "node*", case.name, "job.*")))]
    doubles = [truth.lines_of(path) for path in sorted(glob.glob(os.path.join(out, "node*", case.name, "double.*")))]
    is_local = truth.same_node(jobs, case.ranks_per_node)
    double = truth.Truth(doubles, is_local)
    problems = []
    used = [network for network in report["networks"] if network["plugin"] == NAME and os.path.basename(network["file"] or "") == FILE]
    if len(used) != nccl_test.NODES or any(network["connections"] == 0 for network in used):
        problems.append(f"networks {report['networks']}")
    [finding] = [finding for finding in report["findings"] if finding["kind"] == "network_plugin"]
    if NAME not in finding["what"] or FILE not in finding["what"]:
        problems.append(finding["what"])
    logs, connections = network_logs(out, case), connections_of({os.path.relpath(path, out).split(os.sep)[0]: path for path in captures})
    told, all_of_them, wrong = check_queue_pairs(report, logs, connections)
    problems += wrong
    if case.late_s:
        problems += check_inspections(case, out, logs, connections)
    # What the double's log bears out is what the report is sure of, or more; but for queue pairs that were chosen by their bytes.
    ready_ns = nccl_test.ready_ns_of(case, out) if case.late_s else None
    under_way = late_truth.most_under_way(doubles, ready_ns, is_local) if ready_ns else None
    is_by_bytes = case.environment == cases.HIDDEN
    line, of_bytes = inferred_truth.judge(report, double, under_way, 0 if ready_ns or is_by_bytes else inferred_truth.FEWEST_JOINED)
    if is_by_bytes and report["identity"]["inferred_confirmed"]:
        problems.append("what queue pairs were chosen by confirms them")
    if any(operation["rung"] == "exact" for kind in ("collectives", "p2p") for operation in report[kind] if operation["tx_payload_bytes"]):
        problems.append("an operation through the plugin is exact")
    problems += of_bytes
    print(f"{case.name}: {told} of {all_of_them} queue pairs named, {len(wrong)} wrong; {line}", flush=True)
    return [f"{case.name}: {problem}" for problem in problems]


def judge(wanted, out):
    problems = [problem for case in wanted for problem in check_case(case, out)]
    assert not problems, "\n".join(problems[:40])


def check(arguments, out):
    wanted = [cases.CASES[name] for name in arguments.cases.split(",")]
    harness.run_job(out, arguments.kernel, nccl_test.NODES, "nccl.py", "--env", f"NCCL_LIBRARY={nccl_test.library_of(arguments.nccl)}",
                    "--env", f"DOUBLE={nccl_test.DOUBLE}", "--env", f"NCCL_CASES={','.join(case.name for case in wanted)}",
                    limit_s=nccl_test.BOOT_S + nccl_test.CASE_S * len(wanted))
    judge(wanted, out)


def main():
    parser = argparse.ArgumentParser()
    harness.add_arguments(parser)
    parser.add_argument("--cases", default=",".join(cases.PLUGIN), metavar=",".join(cases.PLUGIN))
    parser.add_argument("--judge", metavar="DIR", help="judge what is in DIR, and run nothing")
    arguments = parser.parse_args()
    if arguments.judge:
        judge([cases.CASES[name] for name in arguments.cases.split(",")], arguments.judge)
        return
    harness.run_main(arguments, check)


if __name__ == "__main__":
    main()
