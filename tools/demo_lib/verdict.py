# SPDX-License-Identifier: Apache-2.0
"""What a demo prints below the report, and whether it counts as shown: the report against the log of the test double of CUDA."""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "nccl"))

import identity_truth  # noqa: E402  (the path has to be set first)


def compare(report, logs, jobs):
    """The job's communicators against what the double put into NCCL's buffers. `logs` of the double, `jobs` of its job program, a file for
    each rank. False: they differ."""
    report = identity_truth.only_of(report, {identity_truth.lines_of(job)[0]["pid"] for job in jobs})
    truth = identity_truth.Truth(logs)
    figures, different = identity_truth.compare_bytes(report, truth)
    print(f"\nThe double's own log: {sum(truth.sent.values()):,} bytes sent. Of its {figures} figures (bytes of an operation, rank, peer and "
          f"channel) {len(different)} differ from collwire's.")
    for line in different[:10]:
        print(f"  {line}")
    return figures > 0 and not different
