#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every byte of every queue pair: what collwire reports, tshark finds on the wire, and the benchmarks say they sent.

bytes_test.py [--kernel SERIES] [--loss PERCENT]"""

import argparse
import glob
import json
import os
import subprocess
import sys

import lab_harness as harness

COLLWIRE = os.path.join(harness.ROOT, "build", "release", "collwire")
TRUTH = os.path.join(harness.HERE, "truth", "compare.py")
NODES = 3


def collwire_report(out, captures, path):
    words = [COLLWIRE, "report", *captures, "--topology", os.path.join(out, "topology.json"), "--json", path]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr)
    assert done.returncode == 0, f"collwire report: exit status {done.returncode}"
    return harness.load(path)


def check_benchmarks(out, report):
    """Payload of each queue pair against what the benchmark that used it says."""
    pairs = {(qp["host"], qp["qpn"]): qp for qp in report["qps"]}
    checked = 0
    for node in range(NODES):
        for said in harness.load(out, f"node{node}", "expected.json"):
            qp = pairs[(said["host"], said["qpn"])]
            for field in ("tx_payload_bytes", "rx_payload_bytes"):
                if field in said:
                    assert qp[field] == said[field], f"{said['phase']} {field}: collwire {qp[field]}, the benchmark {said[field]}"
                    checked += 1
    print(f"{checked} payload figures equal the benchmarks'")
    assert checked >= 12, checked


def check_tiers(report):
    tiers = report["tiers"]
    for tier in ("leaf", "spine"):
        assert tiers[tier]["tx_wire_bytes"] > 0, tiers
    assert report["loss"]["records"] == 0, report["loss"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernel", default="6.1")
    parser.add_argument("--loss", type=float, default=0)
    arguments = parser.parse_args()
    harness.need_root()
    before = harness.interfaces()
    with harness.scratch() as scratch:
        out = os.path.join(scratch, "out")
        words = ["--nodes", str(NODES), "--kernel", arguments.kernel, "--pcap", "--limit", "600", "--out", out,
                 "--job", os.path.join(harness.HERE, "jobs", "recorded.sh"), "--env", "RECORDED_JOB=benchmarks.py"]
        if arguments.loss:
            # What cannot bear loss (UC, UD) is left out; the frames are dropped behind the sender's packet capture.
            words += ["--env", "BENCHMARKS=rc"]
            for node in range(NODES):
                words += ["--fault", f"loss:{node}:{arguments.loss}@T+0"]
        status, said = harness.run(*words)
        for log in sorted(glob.glob(os.path.join(out, "node*", "job.log"))):
            with open(log, encoding="utf-8", errors="replace") as source:
                print(f"--- {os.path.relpath(log, out)}\n{source.read()}")
        assert status == 0, said
        path = os.path.join(scratch, "report.json")
        report = collwire_report(out, sorted(glob.glob(os.path.join(out, "node*", "capture"))), path)
        compared = subprocess.run([TRUTH, out, path], check=False)
        assert compared.returncode == 0, "collwire and tshark differ"
        check_benchmarks(out, report)
        check_tiers(report)
        if arguments.loss:
            again = sum(qp["retransmitted_wire_bytes"] or 0 for qp in report["qps"])
            print(f"retransmitted: {again} bytes")
            assert again > 0, "no frame was sent again although frames were lost"
        harness.expect_nothing_left(out, before)
    print(json.dumps(report["tiers"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
