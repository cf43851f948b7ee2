# SPDX-License-Identifier: Apache-2.0
"""For jobs whose recorder and recorded program are on one node: queue pairs that are created and destroyed. recorder_reports.py reads the captures."""

import json
import subprocess

from recording import Recorder, keep_capture


def churn(*options, processes=1):
    """rdma_qp_churn's own report; the sums if several run at once."""
    command = ["rdma_qp_churn", "--gid-index", "1", *options]
    programs = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(processes)]
    outcomes = []
    for program in programs:
        out, err = program.communicate()
        assert program.returncode == 0, out + err
        outcomes.append(json.loads(out))
    return {**outcomes[0], "qps": sum(one["qps"] for one in outcomes),
            "qps_per_second": sum(one["qps_per_second"] for one in outcomes), "verified": all(one["verified"] for one in outcomes)}


def local_case(results, case, options, work, directory=None):
    recorder = Recorder(case, *options, directory=directory)
    outcome = work()
    status = recorder.stop()
    if directory:
        keep_capture(directory, case)
    results[case] = {"status": status, "outcome": outcome, "said": recorder.said(), "started_s": recorder.started_s}
