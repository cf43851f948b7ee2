# SPDX-License-Identifier: Apache-2.0
"""Reports of captures that jobs of one node left: made here, since an emulated CPU takes half a minute for them."""

import os
import subprocess

import lab_harness as harness

QP_RECORDS = ("qp_create", "qp_state", "qp_existing", "qp_destroy", "qp_error")


def report(directory, case):
    """Exit status of `collwire report` over the case's capture in a node's results, and its JSON."""
    path = os.path.join(directory, f"{case}.json")
    done = subprocess.run([harness.COLLWIRE, "report", os.path.join(directory, case), "--json", path], capture_output=True, text=True, check=False)
    assert os.path.exists(path), f"{case}: no report ({done.returncode}): {done.stdout}{done.stderr}"
    return done.returncode, harness.load(path)


def count_records(directory, case, *kinds):
    words = [harness.COLLWIRE, "dump", os.path.join(directory, case)]
    for kind in kinds:
        words += ["--kind", kind]
    return subprocess.run(words, capture_output=True, check=False).stdout.count(b"\n")


def add_report(directory, results, case):
    """Adds to a case of local_case() what its capture has. Returns the report."""
    report_status, data = report(directory, case)
    results[case].update(report_status=report_status, loss=data["loss"], qps=sum(qp["type"] == "RC" for qp in data["qps"]), total=data["total"],
                         qp_records=count_records(directory, case, *QP_RECORDS), existing_records=count_records(directory, case, "qp_existing"))
    return data
