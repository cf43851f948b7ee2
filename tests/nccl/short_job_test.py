#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job of a moment on this machine, over sockets, on the test double of CUDA: it replays a CUDA graph and ends before the recorder takes a sample. All
its bytes are measured, and equal those given to send().

short_job_test.py --collwire FILE --build DIRECTORY --version VERSION [--keep DIRECTORY]"""

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import busy_machine
import cases
import double_job
import identity_truth

RANKS = 2
# The recorder's first sample is its last one.
INTERVAL = "600s"
# TCP connections of others. The recorder searches for a socket among all of the machine: here too long to search for each one of the job.
OTHERS = 2000
# On a quiet machine. Each job is judged; one of them has to be short.
MOST_TRAFFIC_S = 1.0
REPLAYED = 15
CALLED = 2


@contextlib.contextmanager
def other_connections():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 3 * OTHERS), hard))
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=128))
        for _ in range(OTHERS):
            stack.enter_context(socket.create_connection(listener.getsockname()))
            stack.enter_context(listener.accept()[0])
        yield


def sockets_of(collwire, capture):
    """inode -> records of the sockets of connections."""
    dumped = subprocess.run([collwire, "dump", *(f"{capture}/{name}" for name in sorted(os.listdir(capture)))], stdout=subprocess.PIPE, check=True)
    records = [json.loads(line) for line in dumped.stdout.splitlines()]
    of_connections = {inode for record in records if record["kind"] == "nccl_connection" for inode in record["socket_inodes"]}
    found = {inode: [] for inode in of_connections}
    for record in records:
        if record["kind"] == "tcp_socket":
            found.setdefault(record["inode"], []).append(record)
    return found


def check(arguments, library, directory):
    """Runs and judges the job. Returns whether it was short."""
    job = double_job.Job(library, arguments.build, RANKS)
    plan = os.path.join(cases.JOBS, "short-graph.job")
    with other_connections():
        report, jobs, said = one_machine.record(arguments.collwire, job, directory, ["--plan", plan], "--interval", INTERVAL)
    messages, payload = identity_truth.messages_of([f"{directory}/sent.{rank}" for rank in range(RANKS)])
    sockets = sockets_of(arguments.collwire, f"{directory}/capture")
    called = [[line for line in log if line["event"] in ("call", "waited")] for log in jobs]
    traffic_s = max(log[-1]["at_ns"] for log in called) / 1e9 - min(log[0]["at_ns"] for log in called) / 1e9
    identity = report["identity"]
    replays = [collective for collective in report["collectives"] if collective["replay"] is not None]
    print(f"{arguments.version}: {messages} messages with {payload} B in {traffic_s:.3f} s over {len(sockets)} sockets, identity {identity}, "
          f"{len(replays)} operations from graphs")
    problems = []
    if tuple(identity[rung] or 0 for rung in ("exact", "inferred", "process")) != (payload, 0, 0):
        problems.append(f"identity {identity}: {payload} B were given to send()")
    if identity["by_source"] != {"derived": 0, "posted": 0, "wire": payload}:
        problems.append(f"measured and computed bytes: {identity['by_source']}")
    for collective in report["collectives"]:
        if (collective["rung"], collective["source"], collective["partial"]) != ("exact", "wire", False):
            problems.append(f"{collective['op']} {collective['seq']}, replay {collective['replay']}: {collective['rung']}, {collective['source']}")
    if (len(replays), len(report["collectives"]) - len(replays)) != (REPLAYED, CALLED):
        problems.append(f"{len(replays)} operations from graphs among {len(report['collectives'])}")
    for inode, records in sockets.items():
        if [record["flags_names"] for record in records] != [["gone", "ipv4", "final"]]:
            problems.append(f"socket {inode}: {[record['flags_names'] for record in records]}, not its last counters alone")
    if report["loss"]["entries"]:
        problems.append(f"lost: {report['loss']['entries']}")
    if "sockets:" in said:
        problems.append(said)
    assert payload and not problems, "\n".join(problems[:20])
    return busy_machine.is_within(traffic_s, MOST_TRAFFIC_S)


def run(arguments, library, directory):
    one_machine.judge_one(lambda place: check(arguments, library, place), directory, "none was short")


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__), run))
