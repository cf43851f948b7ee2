# SPDX-License-Identifier: Apache-2.0
"""Losses that the capture of a test counts."""

# These kernels preempt tasks in kernel code: frames between processes of one node may be missed, which is counted (README.md).
PREEMPTS = ("newest",)


def lost(case, kernel):
    """Records by class, without the calls that this kernel may miss: no record of a queue pair is among them, as the sums show."""
    of_class = {}
    for entry in case["loss"]["entries"]:
        of_class[entry["class"]] = of_class.get(entry["class"], 0) + entry["records"]
    assert case["status"] == case["report_status"] == (5 if of_class else 0), case
    if kernel in PREEMPTS and of_class.get("probe_missed", 0) < 20:
        of_class.pop("probe_missed", None)
    return of_class
