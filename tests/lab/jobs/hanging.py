#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of official NCCL on the test double of CUDA that hang, a rank on each node, and `collwire inspect` of each rank on its own node. A recorder on each
node sees the job until all ranks are killed. NCCL_LIBRARY, DOUBLE: as in nccl.py; HANGS: HANG/PROTOCOL/ib or sockets, with commas, of tests/nccl/hangs.py. A
node's results are $OUT/HANG-PROTOCOL-TRANSPORT/inspect.json, if its process still runs, and capture/ there."""

import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "nccl")]

import cases
import nccl
from hangs import CULPRIT, HANGS
from lab_job import ADDRESS, BARRIER_PORT, NODE, OUT, poll_until, read_growing
from recording import Recorder

FIRST_PORT = 20371
PATIENCE_S = 240
# 4.096 us * 2^n, seven times: inspect samples a job that hangs before NCCL gives up.
IB_TIMEOUT = "22"
# Captures show a wait that lasts a second or longer; they sample connections each second.
HUNG_S = 3


def case_of(name, hang, protocol, transport):
    environment = {"NCCL_RAS_ENABLE": "1", "NCCL_ALGO": "Ring", "NCCL_PROTO": protocol, "NCCL_MAX_NCHANNELS": "2", "NCCL_IB_TIMEOUT": IB_TIMEOUT,
                   "COLLWIRE_CUDA_HANG_S": "3600"}
    return cases.Case(name, hang.plan.removesuffix(".job"), environment, job_options=("--count", "0", *hang.job_options),
                      over_sockets=transport == "sockets")


def cut():
    """No frame but those of the job's own barrier gets to or from the culprit's node."""
    def tc(*words):
        subprocess.run(["tc", *words], check=True)
    if "clsact" not in subprocess.run(["tc", "qdisc", "show", "dev", "eth0"], capture_output=True, text=True, check=True).stdout:
        tc("qdisc", "add", "dev", "eth0", "clsact")
    add = ("filter", "add", "dev", "eth0", "ingress")
    for side in ("sport", "dport"):
        tc(*add, "prio", "1", "protocol", "ip", "u32", "match", "ip", "protocol", "6", "0xff", "match", "ip", side, str(BARRIER_PORT), "0xffff",
           "action", "pass")
    source = "0.0.0.0/0" if NODE == CULPRIT else f"{ADDRESS[CULPRIT]}/32"
    tc(*add, "prio", "2", "protocol", "ip", "u32", "match", "ip", "src", source, "action", "drop")


def mend():
    subprocess.run(["tc", "filter", "del", "dev", "eth0", "ingress"], check=True)


def inspect(process, path):
    """The process in inspect's JSON; None: it has exited."""
    with open(path, "w", encoding="utf-8") as file:
        done = subprocess.run(["collwire", "inspect", str(process.pid), "--json"], stdout=file, stderr=subprocess.PIPE, text=True, check=False)
    if process.poll() is not None:
        os.unlink(path)
        return None
    assert done.returncode == 0, done.stderr
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    [process] = document["processes"]
    return process


def look_until_settled(hang, process, path, barrier):
    end_s = time.monotonic() + PATIENCE_S
    while True:
        seen = inspect(process, path)
        if not barrier.any(not hang.is_settled(NODE, seen)):
            return
        if barrier.any(time.monotonic() > end_s):
            print(f"{hang.name}: not settled: {seen and [(proxy['verdict'], proxy['verdict_text']) for proxy in seen['proxies']]}", flush=True)
            return


def run(name, barrier, port):
    hang, protocol, transport = name.split("/")
    hang = HANGS[hang]
    directory = os.path.join(OUT, name.replace("/", "-"))
    os.mkdir(directory)
    stuck, log = f"{directory}/stuck", f"{directory}/job.{NODE}"
    if NODE == CULPRIT:
        os.environ["COLLWIRE_CUDA_STUCK"] = stuck
    recorder = Recorder(f"{os.path.basename(directory)}/capture", "--nccl", os.environ["NCCL_LIBRARY"])
    barrier.wait()
    ranks = nccl.Ranks(case_of(name, hang, protocol, transport), directory, port)
    process = ranks.processes[0]
    try:
        poll_until(lambda: process.poll() is not None or "running" in read_growing(f"{directory}/output.{NODE}"), f"{name}: the job runs")
        poll_until(lambda: process.poll() is not None or (os.path.exists(log) and read_growing(log).count('"event":"call"') >= hang.calls),
                   f"{name}: {hang.calls} calls")
        assert process.poll() is None, f"{name}: the job has ended: {read_growing(f'{directory}/output.{NODE}')[-2000:]}"
        barrier.wait()
        if NODE == CULPRIT:
            hang.hold_up(process, stuck, lambda: inspect(process, f"{directory}/inspect.json"))
        if hang.name == "link-cut":
            cut()
        barrier.wait()
        look_until_settled(hang, process, f"{directory}/inspect.json", barrier)
        time.sleep(HUNG_S) # the least length of the hang, not a wait for an event
        barrier.wait()
        if hang.name == "link-cut":
            mend()
    finally:
        process.kill()
        process.wait()
        status = recorder.stop()
    barrier.wait()
    print(f"{name}: inspected, recorder {status}", flush=True)
    assert status == 0, recorder.said()


if __name__ == "__main__":
    nccl.run_each(os.environ["HANGS"], FIRST_PORT, run)
