#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The guest library in ranks of official NCCL on the doubles of CUDA and CUPTI: what it hands over, against the double's own log of kernels.

guest_test.py --build DIRECTORY [--version VERSION] [--cases NAME,...] [--only-full] [--keep DIRECTORY]"""

import argparse
import collections
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cuda_double"), os.path.join(HERE, "..", "cupti_double")]

from double_job import Job, fetched, lines_of, lines_so_far, run_job, signals_held # pylint: disable=wrong-import-position
from cupti_double_test import check_nccl_kernels, events, wait_for # pylint: disable=wrong-import-position

SKIPPED = 77
RANKS = 2
OTHER_KERNELS = 3
ARMED, DISARMED, YIELDED, FAILED, EXITING = 1, 2, 3, 5, 6
# From the double's clock pairs to the guest's: both read the same clocks.
CLOCK_ERROR_NS = 100_000
FLIPS = 1000
# After it a window is handed over.
WINDOW_DELAY_NS = 1_500_000_000


class GuestJob(Job):
    """A job whose ranks have the guest and the receiver in the recorder's place."""

    def __init__(self, arguments, directory, major=13, **settings):
        super().__init__(arguments.nccl, os.path.join(arguments.build, "tests", "cuda_double"), ranks=RANKS)
        self.root, self.major, self.directory, self.settings = arguments.build, major, directory, settings

    def environment_of(self, rank, directory):
        environment = super().environment_of(rank, directory)
        environment = {name: value for name, value in environment.items() if not name.startswith("COLLWIRE_CUPTI_")}
        environment.update({
            "LD_LIBRARY_PATH": f"{self.root}/tests/cupti_double/cuda{self.major}:{environment['LD_LIBRARY_PATH']}",
            "LD_PRELOAD": f"{environment['LD_PRELOAD']}:{self.root}/tests/cupti/libgpu_receiver.so",
            "CUDA_INJECTION64_PATH": f"{self.root}/libcollwire_cupti.so",
            "COLLWIRE_CUPTI_LOG": f"{directory}/cupti.{rank}",
            "COLLWIRE_RECEIVED": f"{directory}/items.{rank}",
            "COLLWIRE_CUPTI_OTHER_KERNELS": str(OTHER_KERNELS),
            **self.settings,
        })
        return environment


def items_of(directory, rank):
    paths = [name for name in os.listdir(directory) if name.startswith(f"items.{rank}.")]
    assert len(paths) == 1, paths
    return lines_of(os.path.join(directory, paths[0]))


def of_item(items, name):
    return [line for line in items if line["item"] == name]


def check_times(items):
    total, = of_item(items, "sum")
    for bad in ("backwards", "in_future", "bad_batches"):
        assert total[bad] == 0, total
    return total


def compare(directory, rank):
    """Each kernel of NCCL that the double delivered was handed over once, unchanged, in CLOCK_MONOTONIC. Returns the states and kernels."""
    log, items = lines_of(f"{directory}/cupti.{rank}"), items_of(directory, rank)
    total = check_times(items)
    assert total["callbacks"] > 0, total
    assert total["callback_allocations"] == total["callback_locks"] == total["callback_system_calls"] == 0, f"in CUPTI's callbacks: {total}"
    summary, = events(log, "summary")
    assert summary["misuses"] == 0 and not summary["lacking"], summary
    assert "cuptiActivityRegisterTimestampCallback" not in summary["calls"], "the time callback is the process's"
    delivered = {number for line in events(log, "delivered") for number in line["kernels"]}
    kernels = {(kernel["correlation"], kernel["graph_node"]): kernel for kernel in events(log, "kernel")
               if kernel["id"] in delivered and kernel["record"] == "recorded"}
    wanted = {key: kernel for key, kernel in kernels.items() if kernel["nccl"]}
    names = {line["name"]: line["text"] for line in of_item(items, "name")}
    handed = {(line["correlation"], line["node"]): line for line in of_item(items, "kernel")}
    assert len(handed) == len(of_item(items, "kernel")), "a kernel was handed over twice"
    assert set(handed) == set(wanted), f"missing {set(wanted) - set(handed)}, not expected {set(handed) - set(wanted)}"
    for key, kernel in wanted.items():
        line = handed[key]
        assert kernel["name"].startswith(names[line["name"]]), f"{kernel} {line}"
        assert (line["blocks"], line["stream"], line["graph"], line["device"]) == (kernel["grid"][0], kernel["stream"], kernel["graph"], kernel["device"])
        assert abs(line["start_ns"] - kernel["start_ns"]) < CLOCK_ERROR_NS and abs(line["end_ns"] - kernel["end_ns"]) < CLOCK_ERROR_NS, f"{line} {kernel}"
    states = of_item(items, "state")
    others = sum(not kernel["nccl"] for kernel in kernels.values())
    assert states[-1]["others"] == others, f"{states[-1]}: {others} others"
    # In no window, or not with its start: what the guest counts, and what CUPTI gave to it when that window was handed over.
    late = sum(line["start_ns"] < line["at_ns"] - WINDOW_DELAY_NS for line in handed.values())
    lacking = len(wanted) - sum(line["nccl_kernels"] for line in of_item(items, "window"))
    assert 0 <= lacking <= states[-1]["not_summed"] + late, f"windows lack {lacking}, {states[-1]['not_summed']} not summed, {late} late"
    return log, states, wanted


def from_the_start(arguments, directory, major=13):
    run_job(GuestJob(arguments, directory, major, COLLWIRE_RECEIVER_ARMED="1"), directory, "job", ["--plan", "everything", "--count", "1"])
    said = []
    for rank in range(RANKS):
        log, states, kernels = compare(directory, rank)
        all_kernels = {key: kernel for key, kernel in ((kernel["id"], kernel) for kernel in events(log, "kernel"))}
        assert check_nccl_kernels(directory, rank, all_kernels) == len(kernels), "not every kernel of NCCL has a record"
        assert [states[0]["state"], states[-1]["state"]] == [ARMED, EXITING], states
        said.append(f"rank {rank}: {len(kernels)} kernels, {states[-1]['others']} others")
    return "; ".join(said)


def flipped(arguments, directory):
    """The semaphore flips under load; in the end the process is as before."""
    file = f"{directory}/arm"
    job = GuestJob(arguments, directory, COLLWIRE_RECEIVER_ARM_FILE=file)
    job.write_layout(directory)
    processes = []

    def states(rank):
        names = [name for name in os.listdir(directory) if name.startswith(f"items.{rank}.")]
        return of_item(lines_so_far(os.path.join(directory, names[0])), "state") if names else []

    def maps_of(process):
        with open(f"/proc/{process.pid}/maps", encoding="utf-8") as maps:
            return sum(1 for _ in maps)

    try:
        for rank in range(RANKS):
            with signals_held() as mask:
                processes.append(job.start(rank, directory, "job", ["--plan", "training", "--seconds", "600"], mask))
        wait_for(lambda: all(len(lines_so_far(f"{directory}/truth.{rank}")) > 10 for rank in range(RANKS)),
                 "no kernel", processes)
        assert not any(os.path.exists(f"{directory}/cupti.{rank}") for rank in range(RANKS)), "CUPTI is loaded and nobody asked for it"
        with open(file, "w", encoding="utf-8"):
            pass
        wait_for(lambda: all(any(line["state"] == ARMED for line in states(rank)) for rank in range(RANKS)), "not armed", processes)
        os.unlink(file)
        wait_for(lambda: all(states(rank)[-1]["state"] == DISARMED for rank in range(RANKS)), "not disarmed", processes)
        mapped = [maps_of(process) for process in processes]
        for flip in range(FLIPS):
            if flip % 2 == 0:
                with open(file, "w", encoding="utf-8"):
                    pass
            else:
                os.unlink(file)
            time.sleep(0.003 + flip % 7 * 0.003) # the load: flips at all distances, faster than the guest looks
        wait_for(lambda: all(states(rank)[-1]["state"] == DISARMED for rank in range(RANKS)), "not disarmed at last", processes)
        for process, before in zip(processes, mapped):
            assert maps_of(process) <= before + 2, f"{before} mappings before, {maps_of(process)} after"
        processes[-1].terminate()
        for process in processes:
            assert process.wait(timeout=job.limit_s) == 0, process.args
    finally:
        for process in processes:
            process.kill()
            process.wait()
    said = []
    for rank in range(RANKS):
        _, seen, kernels = compare(directory, rank)
        counts = collections.Counter(line["state"] for line in seen)
        assert not counts[FAILED], seen
        said.append(f"rank {rank}: armed {counts[ARMED]} times, disarmed {counts[DISARMED]}, {len(kernels)} kernels")
    return "; ".join(said)


CASES = {
    "start-13": from_the_start,
    "start-12": lambda arguments, directory: from_the_start(arguments, directory, 12),
    "flipped": flipped,
}


QUICK = ("start-13",)


def run_cases(cases, quick):
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--nccl")
    parser.add_argument("--version", default="2.28.9")
    parser.add_argument("--cases", default="")
    parser.add_argument("--only-full", action="store_true", help="the cases that are not quick, with COLLWIRE_FULL=1 only")
    parser.add_argument("--keep", help="folder for the logs")
    arguments = parser.parse_args()
    arguments.build = os.path.realpath(arguments.build)
    if arguments.only_full and os.environ.get("COLLWIRE_FULL") != "1":
        print("skip: runs with tools/test --full")
        return SKIPPED
    names = arguments.cases.split(",") if arguments.cases else [name for name in cases if (name in quick) != arguments.only_full]
    try:
        arguments.nccl = os.path.realpath(arguments.nccl or fetched(arguments.version))
    except RuntimeError as problem:
        print(f"skip: {problem}")
        return SKIPPED
    failed = []
    for name in names:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as temporary:
            directory = temporary
            if arguments.keep:
                directory = os.path.join(arguments.keep, name)
                os.makedirs(directory)
            try:
                said = cases[name](arguments, directory)
            except AssertionError as problem:
                failed.append(name)
                said = f"FAILED: {problem}"
            print(f"{name}: {said} ({time.monotonic() - begin:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run_cases(CASES, QUICK))
