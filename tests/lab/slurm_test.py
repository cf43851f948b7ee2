#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Slurm on two nodes: its prolog and epilog record a job of official NCCL over kernel RDMA. The bytes of each operation equal the log of the double, and the
report and `inspect` name job and step as Slurm does.

slurm_test.py [--kernel SERIES] [--nccl VERSION]"""

import argparse
import dataclasses
import glob
import os
import shutil
import subprocess
import sys

import lab_harness as harness
import nccl_run
from systemd_test import package_in

sys.path[:0] = [os.path.join(harness.ROOT, "tests", "nccl")]

import cases  # noqa: E402
import identity_truth as truth  # noqa: E402
import join_truth  # noqa: E402

NODES = 2
LIMIT_S = 1200
CASE = dataclasses.replace(cases.CASES["training"], name="rdma", fewest_figures=4)
WANTED = ("munge", "slurmctld", "slurmd", "slurm-client")
CACHE = os.path.join(os.environ.get("COLLWIRE_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "collwire"), "slurm")


def slurm_packages():
    """Those that this machine lacks, in a directory of the cache. The nodes have this machine's files."""
    os.makedirs(os.path.join(CACHE, "partial"), exist_ok=True)
    done = subprocess.run(["apt-get", "install", "--yes", "--no-install-recommends", "--download-only", "-o", f"Dir::Cache::archives={CACHE}", *WANTED],
                          capture_output=True, text=True, check=False)
    packages = glob.glob(os.path.join(CACHE, "*.deb"))
    if done.returncode != 0 or not packages:
        harness.skip(f"the packages of Slurm cannot be fetched: {done.stderr.strip()[-200:]}. Fix: apt-get update")
    return packages


def judge(out, kernel):
    places = [os.path.join(out, f"node{node}", CASE.name) for node in range(NODES)]
    results = [harness.load(place, "result.json") for place in places]
    report = harness.report_of([os.path.join(place, "capture") for place in places], os.path.join(out, "rdma.json"), "--topology",
                               os.path.join(out, "topology.json"), "--detail", expected=harness.report_statuses(kernel))
    jobs, doubles = ([truth.lines_of(os.path.join(place, f"{name}.{rank}")) for rank, place in enumerate(places)] for name in ("job", "double"))
    processes = [(f"node{rank}", job[0]["pid"]) for rank, job in enumerate(jobs)]
    line, problems = join_truth.judge(CASE, report, jobs, doubles, truth.same_node(jobs, 1), processes, harness.losses(report, kernel))
    print(line, flush=True)
    found = {(process["host"], process["pid"]): process for process in report["processes"]}
    for rank, (process, result) in enumerate(zip(processes, results)):
        expected = {"slurm_job": result["job"]["JobId"], "slurm_step": "0"}
        inspected = {(f"node{rank}", each["pid"]): each for each in (result["inspection"] or {"processes": []})["processes"]}
        for what, entries in (("report", found), ("inspect", inspected)):
            entry = {name: str(entries.get(process, {}).get(name)) for name in expected}
            if entry != expected:
                problems.append(f"{what}: rank {rank}, {process}: {entry}, not {expected}")
    assert not problems, "\n".join(problems[:40])


def check(arguments, out):
    packages = slurm_packages()
    library = nccl_run.library_of(arguments.nccl)
    with harness.scratch() as directory:
        for path in packages:
            shutil.copy(path, directory)
        package_in(directory)
        harness.run_job(out, arguments.kernel, NODES, "slurm.py", "--systemd", "--env", f"NCCL_LIBRARY={library}", "--env", f"DOUBLE={nccl_run.DOUBLE}",
                        "--env", f"PACKAGES={directory}", *harness.missed_calls_options(arguments.kernel), limit_s=LIMIT_S)
    judge(out, arguments.kernel)


def main():
    parser = argparse.ArgumentParser()
    harness.add_arguments(parser)
    harness.run_main(parser.parse_args(), check)


if __name__ == "__main__":
    main()
