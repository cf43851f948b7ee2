#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL fails on four nodes over kernel RDMA, for a reason that is known: the report of all captures names queue pairs, rank, peer,
communicator, operation and result in one line, and the first of them.

errors_test.py [--kernel SERIES] [--nccl VERSION] [--failures link-cut,killed,destroyed]"""

import argparse
import json
import os
import subprocess
import sys

import lab_harness as harness
import nccl_run

sys.path.insert(0, os.path.join(harness.ROOT, "tests", "nccl"))

from hangs import CULPRIT, RANKS  # noqa: E402

BOOT_S, FAILURE_S = 300, 240
NEIGHBOURS = (CULPRIT - 1) % RANKS, (CULPRIT + 1) % RANKS
GAVE_UP = ("ncclRemoteError", "ncclSystemError", "ncclInternalError")


def report_of(out, name):
    captures = [os.path.join(out, f"node{node}", name, "capture") for node in range(RANKS)]
    path = os.path.join(out, f"{name}.json")
    done = subprocess.run([harness.COLLWIRE, "report", *captures, "--topology", f"{out}/topology.json", "--json", path], capture_output=True, text=True,
                          check=False)
    assert done.returncode in (0, harness.LOST), done.stderr
    text = done.stdout
    print(text[text.index("Errors (UTC)"):text.index("How sure collwire is")] if "Errors (UTC)" in text else "no errors", flush=True)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def failures_of(report):
    return [error for error in report["errors"] if error["kind"] != "warning"]


def expect_named(errors, ranks, peers):
    """One of these ranks gave up on a connection to one of these."""
    named = [error for error in errors if error["rank"] in ranks and error["peer_rank"] in peers and error["qps"] and error["result"] in GAVE_UP]
    assert named, errors
    for error in named:
        assert error["operation"] and error["operation"]["op"] == "AllReduce" and error["comm"] is not None, error
        assert all(qp["device"] == "rxe0" and qp["qpn"] for qp in error["qps"]), error
    return named


def link_cut(errors):
    for error in expect_named(errors, range(RANKS), range(RANKS)):
        assert CULPRIT in (error["rank"], error["peer_rank"]), error
        assert error["text"] and error["wc_status"] in ("IBV_WC_RETRY_EXC_ERR", None), error


def killed(errors):
    [ended] = [error for error in errors if error["kind"] == "process_ended"]
    assert ended["rank"] == CULPRIT and ended["order"] == "first" and ended["operation"]["op"] == "AllReduce", ended
    assert {qp["peer_rank"] for qp in ended["qps"]} == set(NEIGHBOURS), ended
    # Whoever has nothing unanswered on its way does not learn that its peer was killed.
    others = [error for error in errors if error is not ended]
    assert all(error["order"] == "follows" for error in others), others
    assert set(NEIGHBOURS) <= set(ended["waiting_ranks"]), ended
    if others:
        expect_named(others, NEIGHBOURS, (CULPRIT,))


def destroyed(errors):
    [of_culprit] = [error for error in errors if error["destroyed"]]
    assert of_culprit["rank"] == CULPRIT and of_culprit["operation"]["op"] == "AllReduce" and of_culprit["order"] == "first", of_culprit
    assert {qp["peer_rank"] for qp in of_culprit["qps"]} == set(NEIGHBOURS), of_culprit


JUDGES = {"link-cut": link_cut, "killed": killed, "destroyed": destroyed}


def check(arguments, out):
    names = arguments.failures.split(",")
    library = nccl_run.library_of(arguments.nccl)
    harness.run_job(out, arguments.kernel, RANKS, "failing.py", "--env", f"NCCL_LIBRARY={library}", "--env", f"DOUBLE={nccl_run.DOUBLE}",
                    "--env", f"FAILURES={','.join(names)}", limit_s=BOOT_S + FAILURE_S * len(names))
    n_named = 0
    for name in names:
        errors = failures_of(report_of(out, name))
        try:
            JUDGES[name](errors)
            n_named += 1
            print(f"{name}: named", flush=True)
        except AssertionError as problem:
            print(f"{name}: NOT named: {problem}", flush=True)
    print(f"{n_named} of {len(names)} named")
    assert n_named == len(names)


def main():
    parser = argparse.ArgumentParser()
    harness.add_arguments(parser)
    parser.add_argument("--failures", default=",".join(JUDGES), metavar=",".join(JUDGES))
    arguments = parser.parse_args()
    harness.run_main(arguments, check)


if __name__ == "__main__":
    main()
