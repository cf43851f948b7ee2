#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every byte of every queue pair: what collwire reports, tshark finds on the wire, and the benchmarks say they sent.

bytes_test.py [--kernel SERIES] [--loss PERCENT]"""

import argparse
import json
import os
import sys

import lab_harness as harness
import traffic_run as traffic


def main():
    parser = argparse.ArgumentParser()
    harness.add_arguments(parser)
    parser.add_argument("--loss", type=float, default=0)
    arguments = parser.parse_args()
    harness.need_root()
    harness.need_full(arguments)
    before = harness.interfaces()
    with harness.scratch() as scratch:
        out = os.path.join(scratch, "out")
        path = os.path.join(scratch, "report.json")
        report = traffic.make_report(out, traffic.run_benchmarks(out, arguments.kernel, arguments.loss), path)
        traffic.compare_with_packets(out, path)
        traffic.check_benchmarks(out, report, packets_counted=True)
        traffic.check_tiers(report)
        traffic.check_mlx5(report)
        if arguments.loss:
            again = sum(qp["retransmitted_wire_bytes"] or 0 for qp in report["qps"])
            print(f"retransmitted: {again} bytes")
            assert again > 0, "no frame was sent again although frames were lost"
        harness.expect_nothing_left(out, before)
    print(json.dumps(report["tiers"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
