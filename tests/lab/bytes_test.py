#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every byte of every queue pair: what collwire reports, tshark finds on the wire, and the benchmarks say they sent. A second recorder sees
work requests alone: their payload plus computed headers is what is on the wire, to the byte, less acknowledgements and retransmissions.
In the same boot, with --then: recorders that start in the middle (late_attach), the root tests of NCCL's programs (root_tests).

bytes_test.py [--kernel SERIES] [--loss PERCENT] [--then JOB]"""

import json

import lab_harness as harness
import late_attach
import root_tests
import traffic_run as traffic


def check_wire(arguments, out, report):
    print("--- packets", flush=True)
    traffic.check_benchmarks(out, report, packets_counted=True)
    traffic.check_tiers(report)
    traffic.check_mlx5(report)
    if arguments.loss:
        again = sum(qp["retransmitted_wire_bytes"] or 0 for qp in report["qps"])
        print(f"retransmitted: {again} bytes")
        assert again > 0, "no frame was retransmitted although frames were lost"
    print(json.dumps(report["tiers"]))


def check_posted(out, report):
    print("--- work requests alone", flush=True)
    traffic.check_benchmarks(out, report, packets_counted=False)
    traffic.check_tiers(report)
    # There is no source of packets then.
    sources = [source for source in report["sources"] if source["name"] in ("posts", "rxe_wire")]
    assert [(source["name"], source["state"]) for source in sources] == [("posts", "on")] * traffic.NODES, sources
    assert not report["unmatched_posts"], report["unmatched_posts"]
    assert all(qp["retransmitted_wire_bytes"] is None for qp in report["qps"]), "posts cannot know what was retransmitted"
    print(json.dumps(report["tiers"]))


def compare(arguments, out, has_late):
    print("--- tshark", flush=True)
    options = ["--lossy"] if arguments.loss else []
    reports = {"wire": harness.REPORT, "posted": traffic.POSTED_REPORT}
    if has_late:
        options += ["--border", repr(harness.event_s(out, late_attach.NAME))]
        reports["from_first"] = late_attach.REPORT
    harness.compare(out, *options, **reports)


def check_run(arguments, out):
    has_late, has_root = (name in arguments.then for name in (late_attach.NAME, root_tests.NAME))
    of_wire, of_posts, of_late = traffic.recorded_benchmarks(out, arguments.kernel, arguments.loss, [f"{name}.py" for name in arguments.then],
                                                             root_tests.options() if has_root else [], has_late)
    traffic.check_links(out)
    compare(arguments, out, has_late)
    check_wire(arguments, out, of_wire)
    check_posted(out, of_posts)
    if has_late:
        late_attach.check(out, of_late)
    if has_root:
        root_tests.check(out, traffic.NODES)


if __name__ == "__main__":
    harness.run_on_a_kernel(check_run, takes_loss=True, then=(late_attach.NAME, root_tests.NAME))
