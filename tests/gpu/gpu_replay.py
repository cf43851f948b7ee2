#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The recordings of a real GPU in `recordings`, read again: each NCCL launch that was made while the GPU was traced has its kernel, and the times of both are
in order. The order is compared here by the records alone, without collwire's join.

gpu_replay.py --collwire FILE"""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# Recording: launches of both ranks with their kernel, replays of a graph among them, processes.
WANTED = {"ddp": (92, 0, 2), "graph": (34, 30, 2), "attached": (2660, 0, 2), "slices": (1991, 0, 2)}
# The probe fires just after the driver's call, in which the kernel may start; 200 us where the call loads the kernel's code.
MOST_BEFORE_LAUNCH_NS = 1_000_000


def lines_of(collwire, path, kind):
    done = subprocess.run([collwire, "dump", path, "--kind", kind], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def report_of(collwire, path):
    with tempfile.TemporaryDirectory() as directory:
        out = os.path.join(directory, "report.json")
        text = subprocess.run([collwire, "report", path, "--json", out], capture_output=True, text=True, check=True).stdout
        with open(out, encoding="utf-8") as file:
            return json.load(file), text


def by_process(lines):
    processes = collections.defaultdict(list)
    for line in lines:
        processes[line["tgid"]].append(line)
    return processes


def check_kernels(kernels):
    """Kernels of one stream run one after the other, in the order of CUPTI's numbers."""
    streams = collections.defaultdict(list)
    for kernel in kernels:
        streams[kernel["device"], kernel["stream"]].append(kernel)
    for of_stream in streams.values():
        of_stream.sort(key=lambda kernel: (kernel["correlation"], kernel["graph_node"]))
        for kernel, after in zip(of_stream, of_stream[1:]):
            assert 0 < kernel["start_ns"] < kernel["end_ns"] <= after["start_ns"], (kernel, after)


def check_in_order(launches, kernels):
    """Launches and kernels of a trace from the first launch on: one to one, in order."""
    launches.sort(key=lambda launch: launch["time_ns"])
    kernels.sort(key=lambda kernel: (kernel["correlation"], kernel["graph_node"]))
    assert len(launches) == len(kernels), f"{len(launches)} launches, {len(kernels)} kernels"
    for launch, kernel in zip(launches, kernels):
        assert ("graph" in launch["flags_names"]) == (kernel["graph_node"] != 0), (launch, kernel)
        assert kernel["start_ns"] > launch["time_ns"] - MOST_BEFORE_LAUNCH_NS, (launch, kernel)
    return sum("graph" in launch["flags_names"] for launch in launches)


def check(collwire, name):
    path = os.path.join(HERE, "recordings", f"{name}.cwc")
    wanted, replays, processes = WANTED[name]
    report, text = report_of(collwire, path)
    devices = [device for process in report["gpu"]["processes"] for device in process["devices"]]
    sums = {key: sum(device[key] for device in devices)
            for key in ("exact", "by_time", "contradicted", "without_launch", "without_kernel", "traced_launches", "kernels", "running", "odd_times")}
    assert len(report["gpu"]["processes"]) == processes, report["gpu"]["processes"]
    assert sums["exact"] == sums["traced_launches"] == wanted, sums
    assert not any(sums[key] for key in ("by_time", "contradicted", "without_launch", "without_kernel", "running", "odd_times")), sums
    assert f"{wanted:,} exact, 0 by time" in text, text
    kernels = by_process([{**line["kernel"], "tgid": line["tgid"]} for line in lines_of(collwire, path, "gpu_kernel")])
    launches = by_process(lines_of(collwire, path, "nccl_launch"))
    assert sum(map(len, kernels.values())) == wanted, f"{name}: {sum(map(len, kernels.values()))} kernels"
    seen_replays = 0
    for process, of_process in kernels.items():
        check_kernels(of_process)
        if name in ("ddp", "graph"): # traced from the first launch to the last
            seen_replays += check_in_order(launches[process], of_process)
    assert seen_replays == replays, f"{name}: {seen_replays} replays"
    for operation in report["gpu"]["operations"]:
        assert operation["moving"] is None or operation["moving"]["p50_ns"] > 0 or operation["size_bytes"] < 1024, operation
    return f"{name}: {wanted} of {wanted} launches have their kernel, {replays} replays"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collwire", required=True)
    arguments = parser.parse_args()
    for name in WANTED:
        print(check(arguments.collwire, name), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
