#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Queue pairs by the hundred a second under a recorder, on every CPU of a node. Each case starts and ends while the recorder
records, so that no kernel function is patched under load (docs/lab.md says why)."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lab_job import OUT
from local_case import churn, local_case
from recording import bpf_objects

CHURN_RATE = 1000


def main():
    results = {}
    local_case(results, "churn", [], lambda: churn("--rate", str(CHURN_RATE), "--duration", "5"))
    local_case(results, "churn-fast", [],
               lambda: churn("--create-only", "--rate", str(CHURN_RATE), "--duration", "5", processes=os.cpu_count()))
    local_case(results, "overflow", ["--ring", "4KiB"], lambda: churn("--rate", "0", "--count", "3000"))
    results["left"] = bpf_objects()
    with open(os.path.join(OUT, "results.json"), "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
