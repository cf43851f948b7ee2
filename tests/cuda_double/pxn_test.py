#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL with GPUDirect RDMA and PXN under the test double of CUDA: ranks send through the NICs of other ranks of their node. Every element is
checked. The messages that each process gave to send() are those of the double's log for the ranks that NCCL says the process sends for.

pxn_test.py --build DIRECTORY --version VERSION [--only-full]

Needs root: the NICs are in a network namespace of the test."""

import argparse
import collections
import os
import re
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
sys.dont_write_bytecode = True  # it runs as root

import own_network  # noqa: E402  (the path has to be set first)
from double_job import Job, fetched, lines_of, run_job  # noqa: E402

SKIPPED = 77
# (nodes, ranks of a node)
SHAPES = [(2, 2), (2, 4), (3, 3)]
QUICK_SHAPES = [(2, 3)]
PROTOCOLS = ["", "Simple", "LL", "LL128"]
SCRIPT = """
world sendrecv 100KiB
world allpairs 40KiB
world alltoall 16KiB
world allreduce 1MiB
world allreduce 4KiB
world broadcast 100KiB
capture world 2
    world allpairs 200KiB
end
"""
# The number in brackets is the rank that sends.
SEND = re.compile(r"Channel (\d+)/(\d+) : (\d+)\[\w+\] -> (\d+)\[\w+\] \[send\] via NET/Socket/\d+(?:\((\d+)\))?(/GDRDMA)?")


def job_of(library, build, nodes, ranks_per_node, protocol, directory):
    return Job(library, build, ranks=nodes * ranks_per_node, ranks_per_node=ranks_per_node, environment={
        "COLLWIRE_CUDA_GDR": "1", "COLLWIRE_CUDA_P2P": "nvlink", "NCCL_P2P_DISABLE": "0", "NCCL_TOPO_FILE": f"{HERE}/own_nics.xml",
        "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "NCCL_DEBUG_FILE": f"{directory}/nccl.%p.log",
        **({"NCCL_PROTO": protocol} if protocol else {})})


def senders_of(directory):
    """(channel, connection, source, destination) -> the rank that sends."""
    senders = {}
    for name in os.listdir(directory):
        if name.startswith("nccl."):
            with open(f"{directory}/{name}", encoding="utf-8") as log:
                for channel, connection, source, destination, sender, is_direct in SEND.findall(log.read()):
                    assert is_direct, f"{source} -> {destination}: not from device memory"
                    senders[tuple(map(int, (channel, connection, source, destination)))] = int(sender or source)
    return senders


def check(library, build, nodes, ranks_per_node, protocol):
    """(bytes through other ranks, all bytes, messages)"""
    with tempfile.TemporaryDirectory() as directory, own_network.of_devices(ranks_per_node):
        job = job_of(library, build, nodes, ranks_per_node, protocol, directory)
        with open(f"{directory}/script", "w", encoding="utf-8") as script:
            script.write(SCRIPT)
        run_job(job, directory, "job", ["--plan", f"{directory}/script"])
        senders = senders_of(directory)
        sent, through_others = collections.defaultdict(lambda: [0, 0]), 0
        for rank in range(job.ranks):
            for kernel in lines_of(f"{directory}/truth.{rank}"):
                for send in kernel["connections"]:
                    if send["direction"] != "send" or send["transport"] != "net":
                        continue
                    sender = senders[send["channel"], send["connection"], rank, send["peer"]]
                    sent[sender][0] += send["posts"]
                    sent[sender][1] += send["bytes"]
                    through_others += send["bytes"] if sender != rank else 0
        for rank in range(job.ranks):
            with open(f"{directory}/sent.{rank}", encoding="utf-8") as file:
                counted = next([int(word) for word in line.split()[1:3]] for line in file if line.startswith("messages "))
            assert counted == sent[rank], f"{nodes} x {ranks_per_node} ranks, process of rank {rank}: messages and bytes {sent[rank]}, send() {counted}"
        assert through_others > 0, f"{nodes} x {ranks_per_node} ranks: no PXN"
        return through_others, sum(carried for _, carried in sent.values()), sum(posts for posts, _ in sent.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, help="where the double and its programs were built")
    parser.add_argument("--version", required=True)
    parser.add_argument("--only-full", action="store_true", help="skip unless COLLWIRE_FULL=1")
    arguments = parser.parse_args()
    is_full = os.environ.get("COLLWIRE_FULL") == "1"
    if os.geteuid() != 0 or (arguments.only_full and not is_full):
        print("skip: needs root" if os.geteuid() != 0 else "skip: runs with COLLWIRE_FULL=1")
        return SKIPPED
    try:
        library = fetched(arguments.version)
    except RuntimeError as problem:
        print(f"skip: {problem}")
        return SKIPPED
    for nodes, ranks_per_node in SHAPES if is_full else QUICK_SHAPES:
        for protocol in PROTOCOLS if is_full else PROTOCOLS[:1]:
            begin = time.monotonic()
            through_others, carried, messages = check(library, os.path.realpath(arguments.build), nodes, ranks_per_node, protocol)
            print(f"{arguments.version}: {nodes} x {ranks_per_node} ranks, {protocol or 'any protocol'}: {messages} messages of {carried} bytes as the log "
                  f"has them, {through_others} bytes through another rank ({time.monotonic() - begin:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
