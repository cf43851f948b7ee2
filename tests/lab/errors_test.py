#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL fails on four nodes over kernel RDMA, for a reason that is known: the report of all captures names queue pairs, rank, peer,
communicator, operation and result in one line, and the first of them.

Of a port that goes down and comes up again the report names the process, the communicator and the operations that ran then.

errors_test.py [--kernel SERIES] [--nccl VERSION] [--failures link-cut,killed,destroyed,flap]"""

import argparse
import json
import os
import subprocess
import sys

import lab_harness as harness
import nccl_run

sys.path.insert(0, os.path.join(harness.ROOT, "tests", "nccl"))

from hangs import CULPRIT, RANKS  # noqa: E402
import identity_truth as truth  # noqa: E402

BOOT_S, FAILURE_S = 300, 240
# Clocks of nodes are set from the host's. An emulated node may be slow to see an edge.
CLOCK_NS, SLOW_NODE_NS = 1_000_000_000, 1_000_000_000
# As tests/lab/jobs/failing.py has it.
LARGE_BYTES = 1 << 20
NEVER_NS = 1 << 63
NEIGHBOURS = (CULPRIT - 1) % RANKS, (CULPRIT + 1) % RANKS
GAVE_UP = ("ncclRemoteError", "ncclSystemError", "ncclInternalError")


def report_of(out, name):
    captures = [os.path.join(out, f"node{node}", name, "capture") for node in range(RANKS)]
    path = os.path.join(out, f"{name}.json")
    done = subprocess.run([harness.COLLWIRE, "report", *captures, "--topology", f"{out}/topology.json", "--json", path], capture_output=True, text=True,
                          check=False)
    assert done.returncode in (0, harness.LOST), done.stderr
    text = done.stdout
    print(text[text.index("Errors (UTC)"):text.index("How sure collwire is")] if "Errors (UTC)" in text else "no errors", flush=True)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def failures_of(report):
    return [error for error in report["errors"] if error["kind"] != "warning"]


def expect_named(errors, ranks, peers):
    """One of these ranks gave up on a connection to one of these."""
    named = [error for error in errors if error["rank"] in ranks and error["peer_rank"] in peers and error["qps"] and error["result"] in GAVE_UP]
    assert named, errors
    for error in named:
        assert error["operation"] and error["operation"]["op"] == "AllReduce" and error["comm"] is not None, error
        assert all(qp["device"] == "rxe0" and qp["qpn"] for qp in error["qps"]), error
    return named


def link_cut(errors):
    for error in expect_named(errors, range(RANKS), range(RANKS)):
        assert CULPRIT in (error["rank"], error["peer_rank"]), error
        assert error["text"] and error["wc_status"] in ("IBV_WC_RETRY_EXC_ERR", None), error


def killed(errors):
    [ended] = [error for error in errors if error["kind"] == "process_ended"]
    assert ended["rank"] == CULPRIT and ended["order"] == "first" and ended["operation"]["op"] == "AllReduce", ended
    assert {qp["peer_rank"] for qp in ended["qps"]} == set(NEIGHBOURS), ended
    # Whoever has nothing unanswered on its way does not learn that its peer was killed.
    others = [error for error in errors if error is not ended]
    assert all(error["order"] == "follows" for error in others), others
    assert set(NEIGHBOURS) <= set(ended["waiting_ranks"]), ended
    if others:
        expect_named(others, NEIGHBOURS, (CULPRIT,))


def destroyed(errors):
    [of_culprit] = [error for error in errors if error["destroyed"]]
    assert of_culprit["rank"] == CULPRIT and of_culprit["operation"]["op"] == "AllReduce" and of_culprit["order"] == "first", of_culprit
    assert {qp["peer_rank"] for qp in of_culprit["qps"]} == set(NEIGHBOURS), of_culprit


JUDGES = {"link-cut": link_cut, "killed": killed, "destroyed": destroyed}


def fault_times_ns(out):
    """When the fabric took the port down, and up again, by the clock that the nodes have theirs from."""
    times = {record["event"]: record["unix_ns"] for record in harness.load(out, "fabric", "faults.json")}
    return times["start"], times["end"]


def large_operations(log):
    """By number: when the rank called the operation, and had waited for it, by its CLOCK_MONOTONIC. Small ones are waited for with the next large one."""
    calls, waited = {}, {}
    for line in log:
        if line["event"] == "call" and line["bytes"] >= LARGE_BYTES:
            calls[line["call"]] = line["at_ns"]
        elif line["event"] == "waited":
            waited[line["through_call"]] = line["at_ns"]
    return {call: (at_ns, waited.get(call, NEVER_NS)) for call, at_ns in calls.items()}


def flap(out, report):
    down_ns, up_ns = fault_times_ns(out)
    [incident] = [incident for incident in report["port_incidents"] if incident["times_down"]]
    assert (incident["host"], incident["device"], incident["port"]) == (f"node{CULPRIT}", "rxe0", 1), incident
    assert incident["times_down"] == 1 and not incident["down_at_end"] and incident["unplaced_connections"] == 0, incident
    for what, at_ns, fault_ns in (("down", incident["realtime_ns"], down_ns), ("up", incident["realtime_ns"] + incident["down_ns"], up_ns)):
        print(f"{what}: {(at_ns - fault_ns) / 1e6:+.0f} ms from the fault")
        assert -CLOCK_NS < at_ns - fault_ns < CLOCK_NS + SLOW_NODE_NS, (what, at_ns, fault_ns)
    log = truth.lines_of(os.path.join(out, f"node{CULPRIT}", "flap", f"job.{CULPRIT}"))
    assert [process["pid"] for process in incident["processes"]] == [log[0]["pid"]], incident
    [use] = incident["communicators"]
    assert use["ranks"] == [CULPRIT] and use["kind"] == "collective", use
    running = {operation["seq"] for operation in use["running_operations"]}
    perhaps = {operation["seq"] for operation in use["perhaps_running_operations"]}
    # By the CLOCK_MONOTONIC of both.
    edge_ns = {event["kind"]: event["time_ns"] for event in report["events"] if event["host"] == f"node{CULPRIT}"}
    large = large_operations(log)
    outlived = {call for call, (at_ns, waited_ns) in large.items() if at_ns < edge_ns["carrier_down"] and waited_ns > edge_ns["carrier_up"]}
    over = {call for call, (at_ns, waited_ns) in large.items() if waited_ns < edge_ns["carrier_down"]}
    print(f"{len(large)} large operations; ran then: {sorted(running)}, perhaps {sorted(perhaps)}; by the job's log {sorted(outlived)} outlived the flap and "
          f"{len(over)} were over; the longest took {use['longest']['least_duration_ns'] / 1e9:.1f} s, usually {use['usual_duration_ns'] / 1e9:.1f} s at most")
    assert outlived and outlived <= running and over and not over & (running | perhaps) and not running & perhaps, (outlived, over, running, perhaps)
    assert use["longest"]["seq"] in outlived and use["longest"]["least_duration_ns"] > up_ns - down_ns, use["longest"]


FAILURES = (*JUDGES, "flap")


def check(arguments, out):
    names = arguments.failures.split(",")
    library = nccl_run.library_of(arguments.nccl)
    harness.run_job(out, arguments.kernel, RANKS, "failing.py", "--env", f"NCCL_LIBRARY={library}", "--env", f"DOUBLE={nccl_run.DOUBLE}",
                    "--env", f"FAILURES={','.join(names)}", "--fault", f"port:{CULPRIT}@flap..flap-over", limit_s=BOOT_S + FAILURE_S * len(names))
    n_named = 0
    for name in names:
        report = report_of(out, name)
        try:
            if name == "flap":
                flap(out, report)
            else:
                JUDGES[name](failures_of(report))
            n_named += 1
            print(f"{name}: named", flush=True)
        except AssertionError as problem:
            print(f"{name}: NOT named: {problem}", flush=True)
    print(f"{n_named} of {len(names)} named")
    assert n_named == len(names)


def main():
    parser = argparse.ArgumentParser()
    harness.add_arguments(parser)
    parser.add_argument("--failures", default=",".join(FAILURES), metavar=",".join(FAILURES))
    arguments = parser.parse_args()
    harness.run_main(arguments, check)


if __name__ == "__main__":
    main()
