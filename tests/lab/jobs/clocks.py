#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job of official NCCL on nodes whose clocks are set apart, drift, and are set once more while the job runs. Beside it each node asks node 0 for
its clocks over UDP: $OUT/clocks.jsonl has an object for each answer (the truth, with its own bound: the time between question and answer).

The variables are those of jobs/nccl.py; CLOCK_APART_NS and CLOCK_DRIFT_PPM have a number for each node, separated by commas; CLOCK_STEP is
NODE:SECONDS:NS, seconds after the start of the job. clocks.py probe: the process that asks or answers."""

import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from lab_job import ADDRESS, Alarm, NODE, OUT

PORT = 7490
EACH_S = 0.1
PATIENCE_S = 1
ADJ_FREQUENCY = 2
PPM = 1 << 16 # of timex.freq


class Timex(ctypes.Structure):
    """struct timex: its first fields, and room for the others."""
    _fields_ = [("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("rest", ctypes.c_char * 256)]


def of_this_node(name):
    return float(os.environ[name].split(",")[NODE])


def run_faster(ppm):
    timex = Timex(modes=ADJ_FREQUENCY, freq=int(ppm * PPM))
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) < 0:
        raise OSError(ctypes.get_errno(), "adjtimex")


def step(by_ns):
    time.clock_settime_ns(time.CLOCK_REALTIME, time.clock_gettime_ns(time.CLOCK_REALTIME) + int(by_ns))


def clocks():
    """Monotonic and realtime, of one moment."""
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    realtime = time.clock_gettime_ns(time.CLOCK_REALTIME)
    return (before + time.clock_gettime_ns(time.CLOCK_MONOTONIC)) // 2, realtime


def answer():
    """On node 0: answers each request with its clocks."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.bind((ADDRESS[0], PORT))
        while True:
            asked, sender = link.recvfrom(64)
            link.sendto(asked + struct.pack("<QQ", *clocks()), sender)


def ask():
    number = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link, open(f"{OUT}/clocks.jsonl", "w", encoding="ascii") as log:
        link.settimeout(PATIENCE_S)
        while True:
            number += 1
            sent_ns, _ = clocks()
            link.sendto(struct.pack("<Q", number), (ADDRESS[0], PORT))
            answered_number = 0
            try:
                while answered_number != number: # late answers to questions before
                    answered_number, there_ns, there_realtime_ns = struct.unpack("<QQQ", link.recv(64))
                got_ns, realtime_ns = clocks()
            except TimeoutError:
                continue
            log.write(json.dumps({"sent_ns": sent_ns, "got_ns": got_ns, "realtime_ns": realtime_ns, "node0_ns": there_ns,
                                  "node0_realtime_ns": there_realtime_ns}) + "\n")
            log.flush()
            time.sleep(EACH_S)


def probe():
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10)) # ranks poll on the node's only CPU
    (answer if NODE == 0 else ask)()


def main():
    import nccl # the job: needs its variables

    step(of_this_node("CLOCK_APART_NS"))
    run_faster(of_this_node("CLOCK_DRIFT_PPM"))
    asking = subprocess.Popen([sys.executable, os.path.abspath(__file__), "probe"])
    barrier, alarm = nccl.prepare(), Alarm()
    node, after_s, by_ns = os.environ["CLOCK_STEP"].split(":")
    timer = threading.Timer(float(after_s), step, (float(by_ns),))
    if int(node) == NODE:
        timer.start()
    try:
        well = [nccl.run(cases, barrier, alarm, nccl.FIRST_PORT + nccl.TRIES * i)
                for i, cases in enumerate(nccl.jobs_of(os.environ["NCCL_CASES"]))]
    finally:
        timer.cancel()
        asking.send_signal(signal.SIGKILL)
        asking.wait()
    sys.exit(0 if all(well) else 1)


if __name__ == "__main__":
    probe() if sys.argv[1:] == ["probe"] else main()
