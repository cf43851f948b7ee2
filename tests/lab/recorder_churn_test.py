#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Queue pairs by the hundred a second on a node with two CPUs: all of them are in the capture, or counted as lost when the ring buffer
is too small.

recorder_churn_test.py [--kernel SERIES]"""

import os

import lab_harness as harness
from recorder_loss import lost
from recorder_reports import add_report


def check(results, kernel):
    # A queue pair of the churn makes five records: its creation, three states, its end; without a connection two.
    for name, of_each in (("churn", 5), ("churn-fast", 2)):
        churn = results[name]
        assert not lost(churn, kernel), churn
        assert churn["qps"] == churn["outcome"]["qps"], "a queue pair of the churn is missing"
        assert churn["qp_records"] - churn["existing_records"] == of_each * churn["outcome"]["qps"], churn
        print(f"{name}: {churn['outcome']['qps_per_second']:.0f} queue pairs a second")
    churn = results["churn"]
    assert churn["outcome"]["verified"], churn
    # Frames are counted on both CPUs. A call that the kernel kept from a probe is a frame at most.
    message = churn["outcome"]["message_bytes"]
    carried = churn["outcome"]["messages"] * message
    missed = sum(entry["records"] for entry in churn["loss"]["entries"] if entry["class"] == "probe_missed")
    for direction in ("tx", "rx"):
        assert 0 < carried - missed * message <= churn["total"][f"{direction}_payload_bytes"] <= carried, (churn["total"], carried, missed)

    overflow = results["overflow"]
    of_class = lost(overflow, kernel)
    assert overflow["outcome"]["verified"] and list(of_class) == ["qp_event"], overflow
    made = 5 * overflow["outcome"]["qps"]
    assert overflow["qp_records"] - overflow["existing_records"] + of_class["qp_event"] == made, (overflow, made)
    print(f"recording after {results['churn']['started_s']:.1f} s")
    assert results["left"] == [0, 0, []], f"programs, links, pins of BPF left: {results['left']}"


def check_run(arguments, out):
    harness.run_job(out, arguments.kernel, 1, "recorder_churn.py", "--cpus", "2")
    directory = os.path.join(out, "node0")
    results = harness.load(directory, "results.json")
    for case in ("churn", "churn-fast", "overflow"):
        add_report(directory, results, case)
    check(results, arguments.kernel)


if __name__ == "__main__":
    harness.run_on_a_kernel(check_run)
