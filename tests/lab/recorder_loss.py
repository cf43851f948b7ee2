# SPDX-License-Identifier: Apache-2.0
"""What a capture of a test says is missing."""

# Takes the CPU from tasks in kernel code: frames between processes of one node may be missed there, which is counted (README.md).
PREEMPTS = ("newest",)


def lost(case, kernel):
    """Records by class, without the calls that may be missed on this kernel: no queue pair record is among them, as the sums show."""
    of_class = {}
    for entry in case["loss"]["entries"]:
        of_class[entry["class"]] = of_class.get(entry["class"], 0) + entry["records"]
    assert case["status"] == case["report_status"] == (5 if of_class else 0), case
    if kernel in PREEMPTS and of_class.get("probe_missed", 0) < 20:
        of_class.pop("probe_missed", None)
    return of_class
