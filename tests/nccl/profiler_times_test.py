#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job of official NCCL on this machine, over sockets, on the test double of CUDA, with the guest library as NCCL's profiler plugin, armed by a recorder:
each launch has its kernel, at the times in the double's log, and the bytes and operations in the report are as without the plugin.

profiler_times_test.py --collwire FILE --build DIRECTORY --guest FILE --version VERSION [--keep DIRECTORY]"""

import collections
import dataclasses
import json
import os
import sys
import time

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import cases
import join_test

INTERFACES = {(2, 26): 3, (2, 27): 4, (2, 28): 5, (2, 29): 6, (2, 30): 6, (2, 31): 7, (2, 32): 7}
LEAST_SHARE = 0.99 # of the launches of a job that is armed from its start
LEAST_KERNELS = 60


def check_gpu(report, jobs, version):
    """All that the report says of the kernels of this job's processes. Returns a line."""
    pids = {log[0]["pid"] for log in jobs}
    processes = [process for process in report["gpu"]["processes"] if process["pid"] in pids]
    assert {process["pid"] for process in processes} == pids, f"{len(processes)} processes traced of {len(pids)}"
    sums = collections.Counter()
    for process in processes:
        profiler = process["profiler"]
        assert profiler["api_version"] == INTERFACES[version[:2]] and profiler["dropped"] == profiler["orphans"] == profiler["clock_breaks"] == 0, profiler
        assert version < (2, 28) or profiler["clock_error_ns"], profiler
        assert process["devices"] and {device["source"] for device in process["devices"]} == {"nccl_profiler"}, process["devices"]
        for device in process["devices"]:
            for name in ("kernels", "exact", "by_time", "contradicted", "without_launch", "without_kernel", "traced_launches", "odd_times"):
                sums[name] += device[name]
    assert sums["contradicted"] == sums["odd_times"] == sums["without_launch"] == sums["by_time"] == 0, sums
    assert sums["exact"] >= LEAST_KERNELS and sums["exact"] >= LEAST_SHARE * sums["traced_launches"], sums
    return f"{sums['exact']} of {sums['traced_launches']} launches have their kernel, {sums['kernels']} kernels"


def run(arguments, library, directory):
    begin = time.monotonic()
    guest = os.path.realpath(arguments.guest)
    case = cases.CASES["sockets"]
    case = dataclasses.replace(case, environment={**case.environment, "NCCL_PROFILER_PLUGIN": guest}, options=(*case.options, "--gpu"),
                               job_options=("--count", "10"))
    place = f"{directory}/{case.name}"
    problems = join_test.check_case(arguments, case, library, place)
    assert not problems, "\n".join(problems[:40])
    jobs = one_machine.logs_of(place, "job", case.ranks)
    with open(f"{place}/report.json", encoding="utf-8") as file:
        report = json.load(file)
    version = tuple(int(part) for part in arguments.version.split("."))
    print(f"{arguments.version}: {check_gpu(report, jobs, version)} ({time.monotonic() - begin:.0f} s)")


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__, ("--guest", {"required": True})), run))
