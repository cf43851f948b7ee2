#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL over kernel RDMA on four nodes: which collective put how many bytes on which connection, against the log of the test double
of CUDA, the job's own log, and packet captures.

nccl_test.py [--kernel SERIES] [--nccl VERSION] [--plan PLAN] [--socket]"""

import argparse
import os
import subprocess
import sys

import lab_harness as harness

sys.path.insert(0, os.path.join(harness.ROOT, "tests", "nccl"))

import identity_truth as truth  # noqa: E402

NODES = 4
DOUBLE = os.path.join(harness.ROOT, "build", "release", "tests", "cuda_double")


def library_of(version):
    fetched = subprocess.run([os.path.join(harness.ROOT, "tools", "fetch-nccl"), version], capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        # Not a fault of this machine's lab: the registry is not reached.
        print(f"skip: {fetched.stderr.strip()}")
        sys.exit(harness.SKIPPED)
    return fetched.stdout.strip()


def check(arguments, out):
    library = library_of(arguments.nccl)
    options = ["--pcap", "--env", "RECORDED_JOB=nccl.py", "--env", f"NCCL_LIBRARY={library}", "--env", f"DOUBLE={DOUBLE}",
               "--env", f"JOB_PLAN={arguments.plan}", "--env", f"RECORD_OPTIONS=--nccl {library}"]
    if arguments.socket:
        options += ["--env", "NCCL_OVER=socket"]
    harness.run_job(out, arguments.kernel, NODES, "recorded.sh", *options)
    report = harness.collwire_report(out, "--detail")
    paths = [os.path.join(out, f"node{node}") for node in range(NODES)]
    double = truth.Truth([f"{path}/double.json" for path in paths])
    jobs = [truth.lines_of(f"{path}/job.json") for path in paths]
    figures, different = truth.compare_bytes(report, double)
    calls, out_of_order = truth.compare_order(report, jobs)
    print(f"{figures} figures of bytes, {len(different)} different; {calls} calls, {len(out_of_order)} communicators out of order")
    assert not different and not out_of_order, "\n".join((different + out_of_order)[:20])
    assert figures >= 50 and calls >= 10, (figures, calls)
    sent = sum(double.sent.values())
    print(f"identity {report['identity']}; the double sent {sent}")
    assert report["identity"]["exact"] == sent, report["identity"]
    assert report["identity"]["inferred"] == 0 and report["identity"]["process"] == 0, report["identity"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernel", default="6.1")
    parser.add_argument("--nccl", default="2.32.3", metavar="VERSION")
    parser.add_argument("--plan", default="training")
    parser.add_argument("--socket", action="store_true", help="over NET/Socket")
    parser.add_argument("--only-full", action="store_true", help="skip unless COLLWIRE_FULL=1")
    arguments = parser.parse_args()
    harness.need_root()
    if arguments.only_full and os.environ.get("COLLWIRE_FULL") != "1":
        print("skip: this one is for tools/test --full")
        sys.exit(harness.SKIPPED)
    harness.need_programs()
    before = harness.interfaces()
    with harness.scratch() as directory:
        out = os.path.join(directory, "out")
        check(arguments, out)
        harness.expect_nothing_left(out, before)


if __name__ == "__main__":
    main()
