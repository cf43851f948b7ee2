#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The package under systemd on two nodes: the service records official NCCL over kernel RDMA with the unit's rights and limits, comes back after it was
killed and after an upgrade, and nothing is left when the package is purged. The bytes of each operation equal the log of the double.

systemd_test.py [--kernel SERIES] [--nccl VERSION]"""

import argparse
import dataclasses
import glob
import os
import subprocess
import sys

import lab_harness as harness
import nccl_run

sys.path[:0] = [os.path.join(harness.ROOT, "tests", "nccl")]

import cases  # noqa: E402
import identity_truth as truth  # noqa: E402
import join_truth  # noqa: E402

NODES = 2
LIMIT_S = 1200
CASES = [dataclasses.replace(cases.CASES["training"], name=name, fewest_figures=4) for name in ("first", "second")]
RUNS = {"ActiveState": "active", "SubState": "running", "UnitFileState": "enabled"}
EXPECTED = {
    "installed": {"ActiveState": "inactive", "UnitFileState": "disabled", "LoadState": "loaded"},
    "started": {**RUNS, "NRestarts": "0"},
    "restarted": {**RUNS, "NRestarts": "1"},
    "upgraded": RUNS,
    "at-work": {**RUNS, "DeviceAllow": ""}, # else the counters of GPUs cannot be opened
    "stopped": {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"},
    "removed": {"ActiveState": "inactive", "LoadState": "not-found"},
    "purged": {"left": [], "failed": ""},
}
# The unit's MemoryMax= and TasksMax=.
MOST_BYTES, MOST_TASKS = 2 << 30, 64


def package_in(directory):
    subprocess.run(["cpack", "-G", "DEB", "--config", os.path.join(harness.ROOT, "build", "release", "CPackConfig.cmake"), "-B", directory],
                   stdout=subprocess.DEVNULL, check=True)
    package, = glob.glob(os.path.join(directory, "collwire_*.deb"))
    return package


def judge_steps(node, result):
    problems = []
    for step, expected in EXPECTED.items():
        found = {name: result.get(step, {}).get(name) for name in expected}
        if found != expected:
            problems.append(f"node{node}: {step}: {found}, not {expected}")
    if result.get("removed", {}).get("captures", 0) < 3:
        problems.append(f"node{node}: removal left {result.get('removed')}, not the captures of three recorders")
    at_work = result.get("at-work", {})
    memory, tasks = int(at_work.get("MemoryCurrent", 0)), int(at_work.get("TasksCurrent", 0))
    print(f"node{node}: the service has {memory >> 20} MiB and {tasks} tasks", flush=True)
    if not 0 < memory < MOST_BYTES or not 0 < tasks < MOST_TASKS:
        problems.append(f"node{node}: {memory} bytes, {tasks} tasks")
    if problems:
        print(f"node{node}: the journal of the service\n{result.get('said')}", flush=True)
    return problems


def sources_of(report):
    return sorted((source["host"], source["name"], source["state"]) for source in report["sources"])


def report_by_hand(out):
    captures = [os.path.join(out, f"node{node}", "by-hand", "capture") for node in range(NODES)]
    return harness.report_of(captures, os.path.join(out, "by-hand.json"), quiet=True)


def judge_job(case, out, kernel, by_hand):
    places = [os.path.join(out, f"node{node}", case.name) for node in range(NODES)]
    report = harness.report_of([os.path.join(place, "capture") for place in places], os.path.join(out, f"{case.name}.json"), "--topology",
                               os.path.join(out, "topology.json"), "--detail", expected=harness.report_statuses(kernel))
    jobs, doubles = ([truth.lines_of(os.path.join(place, f"{name}.{rank}")) for rank, place in enumerate(places)] for name in ("job", "double"))
    processes = [(f"node{rank}", job[0]["pid"]) for rank, job in enumerate(jobs)]
    line, problems = join_truth.judge(case, report, jobs, doubles, truth.same_node(jobs, 1), processes, harness.losses(report, kernel))
    print(f"{case.name}: {line}", flush=True)
    wire = {part["source"] for operation in report["collectives"] for part in operation["parts"] if part["direction"] == "send" and part["payload_bytes"]}
    if wire != {"wire"}:
        problems.append(f"byte sources {wire}")
    if sources_of(report) != sources_of(by_hand):
        problems.append(f"sources {report['sources']}, by hand {by_hand['sources']}")
    return [f"{case.name}: {problem}" for problem in problems]


def judge(out, kernel):
    problems = [problem for node in range(NODES) for problem in judge_steps(node, harness.load(out, f"node{node}", "result.json"))]
    by_hand = report_by_hand(out)
    for case in CASES:
        problems += judge_job(case, out, kernel, by_hand)
    assert not problems, "\n".join(problems[:40])


def check(arguments, out):
    library = nccl_run.library_of(arguments.nccl)
    with harness.scratch() as directory:
        harness.run_job(out, arguments.kernel, NODES, "systemd.py", "--systemd", "--env", f"NCCL_LIBRARY={library}", "--env", f"DOUBLE={nccl_run.DOUBLE}",
                        "--env", f"PACKAGE={package_in(directory)}", *harness.missed_calls_options(arguments.kernel), limit_s=LIMIT_S)
    judge(out, arguments.kernel)


def main():
    parser = argparse.ArgumentParser()
    harness.add_arguments(parser)
    harness.run_main(parser.parse_args(), check)


if __name__ == "__main__":
    main()
