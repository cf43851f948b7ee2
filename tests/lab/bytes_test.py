#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every byte of every queue pair: what collwire reports, tshark finds on the wire, and the benchmarks say they sent.

bytes_test.py [--kernel SERIES] [--loss PERCENT]"""

import json

import lab_harness as harness
import traffic_run as traffic


def check_run(arguments, out):
    report = traffic.recorded_benchmarks(out, arguments.kernel, arguments.loss)
    harness.compare(out, *(["--lossy"] if arguments.loss else []))
    traffic.check_benchmarks(out, report, packets_counted=True)
    traffic.check_tiers(report)
    traffic.check_mlx5(report)
    if arguments.loss:
        again = sum(qp["retransmitted_wire_bytes"] or 0 for qp in report["qps"])
        print(f"retransmitted: {again} bytes")
        assert again > 0, "no frame was sent again although frames were lost"
    print(json.dumps(report["tiers"]))


if __name__ == "__main__":
    harness.run_on_a_kernel(check_run, takes_loss=True)
