# SPDX-License-Identifier: Apache-2.0
"""Reports of captures that jobs of one node left: made here, since an emulated CPU takes half a minute for them."""

import os
import subprocess
import sys

import lab_harness as harness

sys.path.append(os.path.join(harness.HERE, "jobs"))

from captured import count_records  # noqa: E402  (the path has to be set first)

QP_RECORDS = ("qp_create", "qp_state", "qp_existing", "qp_destroy", "qp_error")


def report(directory, case):
    """Exit status of `collwire report` over the case's capture in a node's results, and its JSON."""
    path = os.path.join(directory, f"{case}.json")
    done = subprocess.run([harness.COLLWIRE, "report", os.path.join(directory, case), "--json", path], capture_output=True, text=True, check=False)
    assert os.path.exists(path), f"{case}: no report ({done.returncode}): {done.stdout}{done.stderr}"
    return done.returncode, harness.load(path)


def add_report(directory, results, case):
    """Adds to a case of local_case() what its capture has. Returns the report."""
    report_status, data = report(directory, case)
    captures = os.path.join(directory, case)
    results[case].update(report_status=report_status, loss=data["loss"], qps=sum(qp["type"] == "RC" for qp in data["qps"]), total=data["total"],
                         qp_records=count_records(harness.COLLWIRE, captures, *QP_RECORDS),
                         existing_records=count_records(harness.COLLWIRE, captures, "qp_existing"))
    return data
