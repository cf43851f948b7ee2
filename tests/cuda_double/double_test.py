#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL libraries under the test double of CUDA, on loopback, over sockets, shared memory and P2P. Every element is checked; the bytes that NCCL gave
to send() equal the double's log plus 4 for every message (net_socket's size header); the work in the double's log equals the calls in the job's log.

double_test.py --build DIRECTORY [--nccl libnccl.so.2 ...] [--version VERSION ...] [--quick] [--peers] [--only-full]

--peers: only what ranks of one node do over P2P.
Without --nccl tools/fetch-nccl fetches the versions."""

import argparse
import os
import sys
import tempfile
import time

from double_job import Job, counted_bytes, fetched, run_job, run_late_load, version_of
from double_logs import check_logs
from double_peers import check_peers

SKIPPED = 77
VERSIONS = ["2.18.3", "2.20.5", "2.22.3", "2.24.3", "2.26.5", "2.27.7", "2.28.9", "2.29.7", "2.30.7", "2.31.2", "2.32.3"]
FIRST_WITH_PAT = (2, 24)
# The double cannot run the kernels of earlier versions.
FIRST_WITH_KERNELS = (2, 20)
SEND_HEADER_BYTES = 4
COUNTED_BYTES = 300004
RING_OPERATIONS = ["allreduce", "inplace", "max", "avg", "allgather", "reducescatter", "broadcast", "reduce", "sendrecv", "alltoall",
                   "group", "bcastgroup", "capture", "types", "split"]
TREE_OPERATIONS = ["allreduce", "inplace", "max", "avg", "capture", "types"]
PAT_OPERATIONS = ["allgather", "reducescatter"]
OPERATIONS = {"Ring": RING_OPERATIONS, "Tree": TREE_OPERATIONS, "PAT": PAT_OPERATIONS}
COUNTED_OPERATIONS = {"Ring": ["allreduce", "allgather", "reducescatter", "broadcast", "reduce", "alltoall"], "Tree": ["allreduce"],
                      "PAT": PAT_OPERATIONS}


def check_data(job, operations, largest_bytes):
    with tempfile.TemporaryDirectory() as directory:
        run_job(job, directory, "collectives", ["--operations", ",".join(operations), "--from", "4", "--to", str(largest_bytes),
                                                "--factor", "31", "--iterations", "2"])


def check_sent_bytes(job, operations):
    """Compares the difference of two runs, without what the set-up sends. Every rank is root equally often."""
    few, many = (counted_bytes(job, ["--operations", ",".join(operations), "--from", str(COUNTED_BYTES), "--to", str(COUNTED_BYTES),
                                     "--iterations", str(iterations)]) for iterations in (job.ranks, 3 * job.ranks))
    for rank, (before, after) in enumerate(zip(few, many)):
        in_log, posts, sent = (b - a for a, b in zip(before, after))
        assert sent == in_log + SEND_HEADER_BYTES * posts, f"{job} {operations} rank {rank}: log {in_log} in {posts} posts, send() {sent}"


def check_algorithms(library, build, quick):
    pairs = [("Ring", "Simple"), ("Ring", "LL"), ("Ring", "LL128"), ("Tree", "Simple")]
    if not quick:
        pairs += [("Tree", "LL"), ("Tree", "LL128")]
    if version_of(library) >= FIRST_WITH_PAT:
        pairs.append(("PAT", "Simple"))
    for ranks in (2, 4):
        for algorithm, protocol in pairs:
            if quick and ranks > 2 and protocol != "Simple":
                continue
            job = Job(library, build, ranks=ranks, environment={"NCCL_ALGO": algorithm, "NCCL_PROTO": protocol})
            check_data(job, OPERATIONS[algorithm], 100_000 if quick else 1_000_000)
            counted = [] if quick and ranks > 2 and algorithm == "Tree" else COUNTED_OPERATIONS[algorithm]
            if counted:
                check_sent_bytes(job, counted)
            yield f"{ranks} ranks {algorithm} {protocol}: {len(OPERATIONS[algorithm])} operations, bytes of {len(counted)} equal send()'s"


def check_plan(job, *arguments, end_after_s=None):
    with tempfile.TemporaryDirectory() as directory:
        run_job(job, directory, "job", list(arguments), end_after_s)
        return check_logs(directory, job.ranks)


def check_plans(library, build, quick):
    shapes = [(4, 1), (4, 2)] if quick else [(2, 1), (3, 1), (4, 1), (4, 2), (4, 4)]
    for ranks, ranks_per_node in shapes:
        job = Job(library, build, ranks=ranks, ranks_per_node=ranks_per_node)
        calls = check_plan(job, "--plan", "everything")
        yield f"{ranks} ranks, {ranks_per_node} a node, plan everything: {calls} calls right, and in the log"
    for ranks in (4,) if quick else (4, 8):
        calls = check_plan(Job(library, build, ranks=ranks), "--plan", "training", "--count", "3")
        yield f"{ranks} ranks, plan training: {calls} calls right, and in the log"
    job = Job(library, build, ranks=2, id_place=f"tcp:127.0.0.1:{20_000 + os.getpid() % 10_000}") # other versions run at once
    calls = check_plan(job, "--plan", "training", "--seconds", "600", "--stall-rank", "1", "--stall-at", "5", "--stall-ms", "300",
                       end_after_s=1)
    yield f"2 ranks, --id tcp, a stall, SIGTERM: {calls} calls right, and in the log"
    if version_of(library) != (2, 24, 3): # its proxy thread does not exit if the peer aborted first
        check_plan(Job(library, build, ranks=2), "--plan", "abort")
        yield "2 ranks, plan abort: right"


def check_late_load(library, build):
    run_late_load(Job(library, build, ranks=2, ranks_per_node=2))
    yield "loaded late by Python, 2 devices in a process: right"


def check_init(library, build):
    with tempfile.TemporaryDirectory() as directory:
        plan = os.path.join(directory, "plan")
        with open(plan, "w", encoding="utf-8") as file:
            file.write("communicator half block 2\n")
        run_job(Job(library, build, ranks=4), directory, "job", ["--plan", plan])
    yield "4 ranks initialise and connect, split, and end: right"


def check_library(library, build, quick, peers):
    checks = [check_peers(library, build, quick)] if peers else [check_init(library, build)]
    if version_of(library) >= FIRST_WITH_KERNELS and not peers:
        checks += [check_algorithms(library, build, quick), check_plans(library, build, quick), check_late_load(library, build),
                   check_peers(library, build, quick)]
    for check in checks:
        begin = time.monotonic()
        for line in check:
            print(f"{'.'.join(map(str, version_of(library)))}: {line} ({time.monotonic() - begin:.0f} s)", flush=True)
            begin = time.monotonic()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, help="where the double and its programs were built")
    parser.add_argument("--nccl", action="append", default=[])
    parser.add_argument("--version", action="append", default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only-full", action="store_true", help="skip unless COLLWIRE_FULL=1")
    arguments = parser.parse_args()
    if arguments.only_full and os.environ.get("COLLWIRE_FULL") != "1":
        print("skip: runs with COLLWIRE_FULL=1")
        return SKIPPED
    versions = arguments.version or ([] if arguments.nccl else VERSIONS)
    try:
        libraries = arguments.nccl + [fetched(version) for version in versions]
    except RuntimeError as problem:
        print(f"skip: {problem}")
        return SKIPPED
    for library in libraries:
        check_library(os.path.realpath(library), os.path.realpath(arguments.build), arguments.quick, arguments.peers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
