#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL over kernel RDMA in containers of podman, on two nodes: the bytes of each operation equal the log of the double, and the report and
`inspect` name the container, as podman knows it.

containers_test.py [--kernel SERIES] [--nccl VERSION]"""

import argparse
import dataclasses
import os
import shutil
import sys

import lab_harness as harness
import nccl_run

sys.path[:0] = [os.path.join(harness.ROOT, "tests", name) for name in ("nccl", "cuda_double")]

import cases  # noqa: E402
import containers  # noqa: E402
import identity_truth as truth  # noqa: E402
import join_truth  # noqa: E402
import one_machine  # noqa: E402

NODES = 2
CASE = dataclasses.replace(cases.CASES["training"], name="rdma", fewest_figures=4)
PARTS = ("job", "libcuda_double.so", "libsend_counter.so", "libnvidia-ml.so.1")
LIMIT_S = 900


def write_files(directory, library):
    os.mkdir(directory)
    for path in (library, *(os.path.join(nccl_run.DOUBLE, part) for part in PARTS)):
        shutil.copy(path, directory)
    return directory


def judge(out, kernel):
    places = [os.path.join(out, f"node{node}", CASE.name) for node in range(NODES)]
    results = [harness.load(place, "result.json") for place in places]
    report = harness.report_of([os.path.join(place, "capture") for place in places], os.path.join(out, "rdma.json"), "--topology",
                               os.path.join(out, "topology.json"), "--detail", expected=harness.report_statuses(kernel))
    jobs, doubles = ([truth.lines_of(os.path.join(place, f"{name}.{rank}")) for rank, place in enumerate(places)] for name in ("job", "double"))
    processes = [(f"node{node}", result["container"]["State"]["Pid"]) for node, result in enumerate(results)]
    line, problems = join_truth.judge(CASE, report, jobs, doubles, truth.same_node(jobs, 1), processes, harness.losses(report, kernel))
    print(line, flush=True)
    found = {(process["host"], process["pid"]): process for process in report["processes"]}
    for rank, (process, result) in enumerate(zip(processes, results)):
        expected = {"container_id": result["container"]["Id"], "namespace_pid": 1}
        inspected = {(f"node{rank}", each["pid"]): each for each in (result["inspection"] or {"processes": []})["processes"]}
        for what, entries in (("report", found), ("inspect", inspected)):
            entry = {name: entries.get(process, {}).get(name) for name in expected}
            if entry != expected:
                problems.append(f"{what}: rank {rank}, {process}: {entry}, not {expected}")
    wire = {part["source"] for operation in report["collectives"] for part in operation["parts"] if part["direction"] == "send" and part["payload_bytes"]}
    if wire != {"wire"}:
        problems.append(f"byte sources {wire}")
    assert not problems, "\n".join(problems[:40])


def check(arguments, out):
    if not shutil.which("podman"):
        harness.skip("podman is not installed. Fix: tools/install-deps test")
    try:
        root = containers.debootstrapped()
    except one_machine.Skip as reason:
        print(f"skip: {reason}")
        sys.exit(harness.SKIPPED)
    library = nccl_run.library_of(arguments.nccl)
    with harness.scratch() as directory:
        files = write_files(os.path.join(directory, "files"), library)
        harness.run_job(out, arguments.kernel, NODES, "containers.py", "--env", f"NCCL_LIBRARY={library}", "--env", f"DOUBLE={nccl_run.DOUBLE}",
                        "--env", f"ROOTS={root}", "--env", f"FILES={files}", *harness.missed_calls_options(arguments.kernel), limit_s=LIMIT_S)
    judge(out, arguments.kernel)


def main():
    parser = argparse.ArgumentParser()
    harness.add_arguments(parser)
    harness.run_main(parser.parse_args(), check)


if __name__ == "__main__":
    main()
