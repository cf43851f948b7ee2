#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of official NCCL on the test double of CUDA, over kernel RDMA, a rank on each node, that fail under a recorder on each. NCCL_LIBRARY,
DOUBLE: as in nccl.py; FAILURES, with commas: link-cut (no frame gets to or from the culprit's node until retries are over), killed (the
culprit's process), destroyed (its queue pairs, under it), flap (the culprit's port goes down and comes up again, and the job goes on). A node's files
of one are in $OUT/FAILURE."""

import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "nccl")]

import cases
import hanging
import nccl
import queue_pairs
from hangs import CULPRIT, has_failed
from lab_job import NODE, NODES, OUT, announce, poll_until, read_growing
from recording import Recorder

FIRST_PORT = 20471
PATIENCE_S = 120
CALLS = 4
# 4.096 us * 2^n, and the number of retries. A device takes longer than it says.
IB_TIMEOUT, IB_RETRIES = "17", "2"
# They outlast a flap.
IB_LONG_TIMEOUT, IB_LONG_RETRIES = "19", "7"
# Connections are sampled once a second.
FLAP_S = 3
LARGE_BYTES = 1 << 20
# A rank that stays in its operation for 2 s after another one ended waits for it (correlate/nccl/find_errors.cpp); counters are sampled once a
# second, on both nodes.
WAITS_S = 5
# enum ib_qp_state
QP_STATE_ERR = 6


def case_of(name):
    timeout, retries = (IB_LONG_TIMEOUT, IB_LONG_RETRIES) if name == "flap" else (IB_TIMEOUT, IB_RETRIES)
    return cases.Case(name, "hang", {"NCCL_RAS_ENABLE": "0", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "NCCL_MAX_NCHANNELS": "2",
                                     "NCCL_IB_TIMEOUT": timeout, "NCCL_IB_RETRY_CNT": retries, "COLLWIRE_CUDA_HANG_S": "3600"},
                      job_options=("--count", "0"))


def read_nic(name):
    with open(f"/sys/class/net/eth0/{name}", encoding="ascii") as file:
        return int(file.read())


def is_in_large_operation(log):
    """It has called an AllReduce of 16 MiB, which takes long here, and has not waited for it."""
    lines = [line for line in read_growing(log).splitlines() if line.endswith("}")]
    last = json.loads(lines[-1])
    return last["event"] == "call" and last["bytes"] >= LARGE_BYTES


def flap(log):
    poll_until(lambda: is_in_large_operation(log), "a large operation")
    changes, began_s = read_nic("carrier_changes"), time.monotonic()
    announce("flap")
    poll_until(lambda: read_nic("carrier_changes") > changes, "the carrier goes off")
    poll_until(lambda: time.monotonic() > began_s + FLAP_S, "the flap lasts")
    announce("flap-over")
    poll_until(lambda: read_nic("carrier") == 1, "the carrier is back")


def make_fail(name, process, log):
    if name == "link-cut":
        hanging.cut()
    elif NODE == CULPRIT and name == "flap":
        flap(log)
    elif NODE == CULPRIT and name == "killed":
        process.kill()
        process.wait()
    elif NODE == CULPRIT and name == "destroyed":
        print(f"destroyed {queue_pairs.destroy_all(process.pid)} queue pairs", flush=True)


def failed(name, process, path):
    """Whether this node's NCCL reports an error, or its process has ended."""
    seen = hanging.inspect(process, path)
    return seen is None or has_failed(seen)


def qps_in_error():
    """Numbers of this node's queue pairs in error, by the kernel's own list."""
    listing = subprocess.run(["rdma", "-j", "resource", "show", "qp"], capture_output=True, text=True, check=True).stdout
    return {qp["lqpn"] for qp in json.loads(listing) if qp["state"] == "ERR"}


def recorded_in_error(directory):
    """Those of which the recorder has said so."""
    dump = subprocess.run(["collwire", "dump", directory, "--kind", "qp_state"], capture_output=True, text=True, check=False).stdout
    return {record["key"]["qpn"] for record in map(json.loads, dump.splitlines()) if record["new_state"] == QP_STATE_ERR}


def run(name, barrier, port):
    directory = os.path.join(OUT, name)
    os.mkdir(directory)
    recorder = Recorder(f"{name}.record", "--warnings", "--nccl", os.environ["NCCL_LIBRARY"], directory=f"{directory}/capture")
    ranks = nccl.Ranks(case_of(name), directory, port)
    process, log = ranks.processes[0], f"{directory}/job.{NODE}"
    try:
        poll_until(lambda: process.poll() is not None or (os.path.exists(log) and read_growing(log).count('"event":"call"') >= CALLS),
                   f"{name}: {CALLS} calls")
        assert process.poll() is None, f"{name}: the job has ended: {read_growing(f'{directory}/output.{NODE}')[-2000:]}"
        barrier.wait()
        make_fail(name, process, log)
        failed_s = time.monotonic()
        end_s = time.monotonic() + PATIENCE_S
        # Over RDMA no rank has to learn that the culprit was killed.
        is_seen_here = NODE == CULPRIT if name == "killed" else NODE in ((CULPRIT + 1) % NODES, (CULPRIT - 1) % NODES)
        if name == "flap":
            barrier.wait()
            calls = read_growing(log).count('"event":"waited"')
            poll_until(lambda: read_growing(log).count('"event":"waited"') >= calls + 2, "the job goes on after the flap")
        while name != "flap" and not barrier.any(is_seen_here and failed(name, process, f"{directory}/inspect.json")):
            assert not barrier.any(time.monotonic() > end_s), f"{name}: nothing failed within {PATIENCE_S} s"
        poll_until(lambda: qps_in_error() <= recorded_in_error(f"{directory}/capture"), f"{name}: the recorder samples the queue pairs in error")
        if name == "killed":
            poll_until(lambda: time.monotonic() > failed_s + WAITS_S, f"{name}: the other ranks wait")
        # Up to 2.24 a proxy may warn in a loop; the recorder limits their number.
        assert recorder.stop() in (0, nccl.LOST), recorder.said()
        if name == "link-cut":
            hanging.mend()
    finally:
        process.kill()
        process.wait()
    barrier.wait()
    print(f"{name}: recorded", flush=True)


if __name__ == "__main__":
    nccl.run_each(os.environ["FAILURES"], FIRST_PORT, run)
