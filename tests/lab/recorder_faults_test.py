#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A recorder that is killed, gets no disk, too small a ring buffer, queue pairs by the hundred a second, a device that goes away:
its capture reads to the last good block, what was lost is counted, the traced programs verify their data, and nothing stays behind."""

import os
import sys

import lab_harness as harness


def check(results):
    killed = [case for name, case in results.items() if name.startswith("killed-")]
    assert len(killed) >= 3
    for case in killed:
        assert case["recorder"] == -9, case
        # The node's own QP 1, and the transfer's queue pair where the recorder lived long enough to see it.
        assert case["qps"] >= 1, case

    churn = results["churn"]
    assert churn["status"] == 0 and churn["loss"]["records"] == 0, churn
    assert churn["outcome"]["verified"], churn
    assert churn["qps"] == churn["outcome"]["qps"] + 1, "a queue pair of the churn is missing (1 more is the node's QP 1)"

    overflow = results["overflow"]
    assert overflow["status"] == 5 and overflow["report_status"] == 5, overflow
    assert overflow["outcome"]["verified"] and overflow["loss"]["records"] > 0, overflow
    assert {entry["class"] for entry in overflow["loss"]["entries"]} == {"qp_event"}, overflow

    full = results["full-disk"]
    assert full["status"] == 5 and full["outcome"]["verified"], full
    assert "No space left" in full["said"], full
    assert full["qps"] < full["outcome"]["qps"], full

    assert results["device-removed"]["status"] == 0, results["device-removed"]
    assert results["left"] == [0, 0, []], f"programs, links, pins of BPF left: {results['left']}"


def main():
    harness.need_root()
    before = harness.interfaces()
    with harness.scratch() as scratch:
        out = os.path.join(scratch, "out")
        status, said = harness.run("--nodes", "2", "--kernel", "6.1", "--limit", "500", "--out", out,
                                   "--job", os.path.join(harness.HERE, "jobs", "recorder_faults.py"),
                                   "--env", f"COLLWIRE_FULL={os.environ.get('COLLWIRE_FULL', '0')}")
        for node in range(2):
            with open(os.path.join(out, f"node{node}", "job.log"), encoding="utf-8", errors="replace") as source:
                print(f"--- node{node}\n{source.read()}")
        assert status == 0, said
        check(harness.load(out, "node0", "results.json"))
        harness.expect_nothing_left(out, before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
