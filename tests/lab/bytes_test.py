#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every byte of every queue pair: what collwire reports, tshark finds on the wire, and the benchmarks say they sent. A second recorder sees
work requests alone: their payload plus computed headers is what is on the wire, to the byte, but for acknowledgements and for what was sent
again.

bytes_test.py [--kernel SERIES] [--loss PERCENT]"""

import json

import lab_harness as harness
import traffic_run as traffic


def check_wire(arguments, out, report):
    print("--- packets", flush=True)
    harness.compare(out, *(["--lossy"] if arguments.loss else []))
    traffic.check_benchmarks(out, report, packets_counted=True)
    traffic.check_tiers(report)
    traffic.check_mlx5(report)
    if arguments.loss:
        again = sum(qp["retransmitted_wire_bytes"] or 0 for qp in report["qps"])
        print(f"retransmitted: {again} bytes")
        assert again > 0, "no frame was sent again although frames were lost"
    print(json.dumps(report["tiers"]))


def check_posted(arguments, out, report):
    print("--- work requests alone", flush=True)
    harness.compare(out, "--posted", *(["--lossy"] if arguments.loss else []), report=traffic.POSTED_REPORT)
    traffic.check_benchmarks(out, report, packets_counted=False)
    traffic.check_tiers(report)
    # Of packets there is no source at all then.
    sources = [source for source in report["sources"] if source["name"] in ("posts", "rxe_wire")]
    assert [(source["name"], source["state"]) for source in sources] == [("posts", "on")] * traffic.NODES, sources
    assert not report["unmatched_posts"], report["unmatched_posts"]
    assert all(qp["retransmitted_wire_bytes"] is None for qp in report["qps"]), "posts cannot know what was sent again"
    print(json.dumps(report["tiers"]))


def check_run(arguments, out):
    of_wire, of_posts = traffic.recorded_benchmarks(out, arguments.kernel, arguments.loss)
    check_wire(arguments, out, of_wire)
    check_posted(arguments, out, of_posts)


if __name__ == "__main__":
    harness.run_on_a_kernel(check_run, takes_loss=True)
