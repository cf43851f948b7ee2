#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every byte of every queue pair: what collwire reports, tshark finds on the wire, and the benchmarks say they sent. A second recorder sees
work requests alone: their payload plus computed headers is what is on the wire, to the byte, less acknowledgements and retransmissions.
In the same boot, with --then: recorders that start in the middle (late_attach), the root tests of NCCL's programs (root_tests).

bytes_test.py [--kernel SERIES] [--loss PERCENT] [--then JOB]"""

import json
import shutil

import lab_harness as harness
import late_attach
import root_tests
import traffic_run as traffic

# On a kernel that keeps calls from probes.
RUNS = 3


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


def compare(arguments, out, kinds):
    print("--- tshark", flush=True)
    options = ["--lossy"] if arguments.loss else []
    if late_attach.NAME in arguments.then:
        options += ["--border", repr(harness.event_s(out, late_attach.NAME))]
    harness.compare(out, *options, **{kind: traffic.REPORTS[kind] for kind in kinds})


def judge(arguments, out, reports):
    """reports: those that lack nothing."""
    compare(arguments, out, reports)
    if "wire" in reports:
        check_wire(arguments, out, reports["wire"])
        check_posted(out, reports["posted"])
    if "from_first" in reports:
        late_attach.check(out, reports["from_first"])


def check_run(arguments, out):
    for _ in range(RUNS):
        has_late, has_root = (name in arguments.then for name in (late_attach.NAME, root_tests.NAME))
        traffic.run_benchmarks(out, arguments.kernel, arguments.loss, [f"{name}.py" for name in arguments.then], root_tests.options() if has_root else [])
        traffic.check_links(out)
        reports = traffic.reports_of(out, arguments.kernel, has_late)
        missed = {kind: calls for kind, report in reports.items() if (calls := traffic.missed_calls(report, arguments.kernel))}
        is_clean = not missed.keys() & {"wire", "posted"}
        judged = {kind: report for kind, report in reports.items() if kind not in missed and (is_clean or kind == "from_first")}
        if judged:
            judge(arguments, out, judged)
        if has_root:
            root_tests.check(out, traffic.NODES)
        if not missed:
            return
        print(f"run again, since this kernel kept calls from probes: {missed}", flush=True)
        arguments.then = [late_attach.NAME] if "from_first" in missed else []
        shutil.rmtree(out)
    raise AssertionError(f"calls were kept from probes in each of {RUNS} runs")


if __name__ == "__main__":
    harness.run_on_a_kernel(check_run, takes_loss=True, then=(late_attach.NAME, root_tests.NAME))
