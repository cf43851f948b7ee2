#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes from work requests alone, without a look at packets: payload plus computed headers is what tshark finds on the wire, to the
byte, but for acknowledgements and for what was sent again.

posted_test.py [--kernel SERIES] [--loss PERCENT]"""

import json

import lab_harness as harness
import traffic_run as traffic


def check_run(arguments, out):
    report = traffic.recorded_benchmarks(out, arguments.kernel, arguments.loss, "--no-wire --posts=on")
    harness.compare(out, "--posted", *(["--lossy"] if arguments.loss else []))
    traffic.check_benchmarks(out, report, packets_counted=False)
    traffic.check_tiers(report)
    posts = [source for source in report["sources"] if source["name"] == "posts"]
    assert len(posts) == traffic.NODES and all(source["state"] == "on" for source in posts), posts
    assert not report["unmatched_posts"], report["unmatched_posts"]
    assert all(qp["retransmitted_wire_bytes"] is None for qp in report["qps"]), "posts cannot know what was sent again"
    print(json.dumps(report["tiers"]))


if __name__ == "__main__":
    harness.run_on_a_kernel(check_run, takes_loss=True)
