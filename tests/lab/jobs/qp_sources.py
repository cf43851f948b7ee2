#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three recorders side by side on each node: queue pairs from ib_core, from libibverbs, and from both to be compared. A transfer is in its
middle when they start, and stands still. Then come programs of each kind: ibv_create_qp_ex, ibv_create_qp, librdmacm, datagrams, and one that is killed."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from captured import count_records
from lab_job import Job, NODE, OPERATIONS, OUT, cm_listens, perftest, poll_until
from recording import Recorder

SOURCES = ("kernel", "verbs", "both")
# Of the programs below on each node: gated 2, extended 2, writes 1, datagrams 1, rping 1, dying 2.
QUEUE_PAIRS = 9


def work_requests(name, *options, server_options=()):
    def command(port, address):
        words = ["rdma_wr_post", "--device", "rxe0", "--gid-index", "1", "--json", os.path.join(OUT, f"{name}.json")]
        if address:
            return words + ["--connect", f"{address}:{port}", "--qps", "2", "--operations", OPERATIONS, *options]
        return words + ["--listen", str(port), *server_options]
    return command


def rping(port, address):
    if address:
        return ["rping", "-c", "-a", address, "-p", str(port), "-C", "20", "-S", "3000", "-v"]
    return ["rping", "-s", "-p", str(port), "-C", "20", "-S", "3000"]


def ended(recorder):
    return count_records("collwire", recorder.directory, "qp_destroy")


def main():
    job = Job()
    gate = os.path.join(OUT, "gated.go")
    gated = job.start("gated", 0, 1, work_requests("gated", "--go", gate, "--go-after", "4", "--rounds", "12"))
    if NODE == 1:
        poll_until(lambda: os.path.exists(f"{gate}.ready"), "the first transfer stands at its gate")
    job.barrier.wait()
    recorders = {name: Recorder(name, "--no-wire", "--posts=on", f"--qp-source={name}") for name in SOURCES}
    job.barrier.wait()
    with open(gate, "w", encoding="ascii"):
        pass
    job.finish(gated)
    job.pair("extended", 1, 0, work_requests("extended", "--api", "post", "--rounds", "4"))
    job.pair("writes", 1, 0, perftest("ib_write_bw", 1000, 100))
    job.pair("datagrams", 1, 0, perftest("ib_send_bw", 1000, 100, "-c", "UD"))
    job.pair("rping", 1, 0, rping, cm_listens)
    dying = job.start("dying", 1, 0, work_requests("dying", "--rounds", "8", "--die-after", "3", server_options=["--peer-may-die"]))
    job.finish(dying, expected=(-9,) if NODE == 0 else (0,))
    # The recorder that reads libibverbs learns at a sample that a process has exited.
    poll_until(lambda: ended(recorders["verbs"]) == ended(recorders["kernel"]) == QUEUE_PAIRS, "both recorders know the end of every queue pair")
    result = {name: {"status": recorder.stop(), "said": recorder.said()} for name, recorder in recorders.items()}
    for name, recorder in recorders.items():
        print(name, recorder.said(), flush=True)
    with open(os.path.join(OUT, "result.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    job.end()


if __name__ == "__main__":
    main()
