#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job of official NCCL on the doubles of CUDA and CUPTI that was started without the guest library: `record --gpu --inject` loads it into both ranks in
the middle of the job. From then on each kernel is recorded and joined to its launch, against the double's own log.

inject_nccl_test.py --build DIRECTORY [--version VERSION] [--keep DIRECTORY]"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", directory) for directory in ("nccl", "cuda_double", "cupti_double")]

import one_machine # pylint: disable=wrong-import-position
from cupti_double_test import events # pylint: disable=wrong-import-position
from double_job import Job, fetched, lines_of, output_of, wait_for_traced, wait_until_running # pylint: disable=wrong-import-position

SKIPPED = 77
RANKS = 2
RECORDED_S, TRACED_KERNELS = 4, 40
TRIES = 3
CAME_BACK_LATE = "later than the limit of 100 ms"


class PlainJob(Job):
    """No guest: libcupti can be found, and the file that shows that a process uses CUDA is there."""

    def __init__(self, arguments, directory):
        super().__init__(arguments.nccl, os.path.join(arguments.build, "tests", "cuda_double"), ranks=RANKS)
        self.root = arguments.build

    def environment_of(self, rank, directory):
        environment = {name: value for name, value in super().environment_of(rank, directory).items() if not name.startswith("COLLWIRE_CUPTI")}
        environment.pop("CUDA_INJECTION64_PATH", None)
        environment.update({
            "LD_LIBRARY_PATH": f"{self.root}/tests/cupti_double/cuda13:{environment['LD_LIBRARY_PATH']}",
            "LD_PRELOAD": f"{environment['LD_PRELOAD']}:{self.root}/tests/inject/libcuda.so.1",
            "COLLWIRE_CUPTI_LOG": f"{directory}/cupti.{rank}",
        })
        return environment


def record(arguments, job, directory, processes):
    """The capture's folder, and how many ranks had the guest before this recording. On a machine that is so busy that an injection was cancelled, again."""
    pids = [process.pid for process in processes]
    for i in range(TRIES):
        capture = f"{directory}/capture{i}"
        # Injected already, by the try before.
        missing = [pid for pid in pids if not has_guest(pid)]
        words = ["--inject", ",".join(map(str, missing))] if missing else []
        begin_ns = time.monotonic_ns()
        try:
            with one_machine.Recorder(f"{arguments.build}/collwire", capture, "--nccl", arguments.nccl, "--gpu", "--network-times", "--local-launches",
                                      *words) as recorder:
                time.sleep(RECORDED_S) # the recorded part of the job
                wait_for_traced(job, directory, processes, TRACED_KERNELS, begin_ns)
        except AssertionError as problem:
            if CAME_BACK_LATE not in str(problem):
                raise
            continue
        assert recorder.status == 0, recorder.said()
        return capture, len(pids) - len(missing), re.findall(r"paused thread .*", recorder.said())
    raise AssertionError(f"each of {TRIES} injections was cancelled")


def has_guest(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        return "libcollwire_cupti.so" in maps.read()


def run(arguments, directory):
    job = PlainJob(arguments, directory)
    job.write_layout(directory)
    processes = [job.start(rank, directory, "job", ["--plan", "training", "--seconds", "600"]) for rank in range(RANKS)]
    try:
        wait_until_running(job, directory, processes)
        pids = [process.pid for process in processes]
        assert not any(has_guest(pid) for pid in pids)
        assert not any(os.path.exists(f"{directory}/cupti.{rank}") for rank in range(RANKS)), "CUPTI is loaded before the injection"
        capture, had_guest, said = record(arguments, job, directory, processes)
        assert all(has_guest(pid) for pid in pids)
        processes[-1].send_signal(signal.SIGTERM)
        for rank, process in enumerate(processes):
            assert process.wait(timeout=job.limit_s) == 0 and "all data right" in output_of(directory, rank), output_of(directory, rank)[-2000:]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    report = f"{directory}/report.json"
    subprocess.run([f"{arguments.build}/collwire", "report", capture, "--json", report], stdout=subprocess.DEVNULL, check=True)
    with open(report, encoding="utf-8") as file:
        gpu = json.load(file)["gpu"]
    devices = [device for process in gpu["processes"] if process["pid"] in pids for device in process["devices"]]
    sums = {key: sum(device[key] for device in devices)
            for key in ("kernels", "traced_launches", "exact", "by_time", "contradicted", "without_launch", "without_kernel")}
    # Where the guest was there, a thread may be in a launch when both the launches and the kernels begin to be recorded.
    assert 0 < sums["traced_launches"] == sums["exact"] and not sums["contradicted"] and sums["without_launch"] <= had_guest, sums
    dumped = subprocess.run([f"{arguments.build}/collwire", "dump", capture], stdout=subprocess.PIPE, text=True, check=True).stdout
    recorded = {pid: set() for pid in pids}
    for line in dumped.splitlines():
        if '"gpu_kernel"' in line:
            entry = json.loads(line)
            if entry["kind"] == "gpu_kernel":
                recorded[entry["tgid"]].add(entry["kernel"]["correlation"])
    for rank, pid in enumerate(pids):
        log = lines_of(f"{directory}/cupti.{rank}")
        summary, = events(log, "summary")
        assert summary["misuses"] == 0 and not summary["lacking"], summary
        delivered = {number for line in events(log, "delivered") for number in line["kernels"]}
        # A rank that an earlier try injected may have been traced then, too.
        armed_ns = max(call["begin_ns"] for call in events(log, "call") if call["function"] == "cuptiActivityEnable")
        wanted = {kernel["correlation"] for kernel in events(log, "kernel")
                  if kernel["nccl"] and kernel["id"] in delivered and kernel["record"] == "recorded" and kernel["decided_ns"] >= armed_ns}
        assert wanted and recorded[pid] == wanted, f"rank {rank}: {len(recorded[pid])} kernels recorded, {len(wanted)} in the double's log"
    return f"{sums}; {'; '.join(said)}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--version", default="2.28.9")
    parser.add_argument("--keep")
    arguments = parser.parse_args()
    arguments.build = os.path.realpath(arguments.build)
    try:
        arguments.nccl = os.path.realpath(fetched(arguments.version))
        with tempfile.TemporaryDirectory() as directory:
            if arguments.keep:
                directory = os.path.realpath(arguments.keep)
                os.makedirs(directory, exist_ok=True)
            print(run(arguments, directory))
    except (RuntimeError, one_machine.Skip) as problem:
        print(f"skip: {problem}")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
