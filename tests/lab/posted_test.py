#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes from work requests alone, without a look at packets: payload plus computed headers is what tshark finds on the wire, to the
byte, but for acknowledgements and for what was sent again.

posted_test.py [--kernel SERIES] [--loss PERCENT]"""

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
        captures = traffic.run_benchmarks(out, arguments.kernel, arguments.loss, "--no-wire --posts=on")
        report = traffic.make_report(out, captures, path)
        traffic.compare_with_packets(out, path, "--posted", *(["--lossy"] if arguments.loss else []))
        traffic.check_benchmarks(out, report, packets_counted=False)
        traffic.check_tiers(report)
        posts = [source for source in report["sources"] if source["name"] == "posts"]
        assert len(posts) == traffic.NODES and all(source["state"] == "on" for source in posts), posts
        assert not report["unmatched_posts"], report["unmatched_posts"]
        assert all(qp["retransmitted_wire_bytes"] is None for qp in report["qps"]), "posts cannot know what was sent again"
        harness.expect_nothing_left(out, before)
    print(json.dumps(report["tiers"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
