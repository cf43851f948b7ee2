#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of official NCCL is killed in a running job, on this machine, over sockets, on the test double of CUDA: the report names it first, then the
errors of the others: rank, peer, communicator, operation, result and text, each once, without and with `--warnings`. The truth is what NCCL prints
(NCCL_DEBUG=WARN).

errors_test.py --collwire FILE --build DIRECTORY --version VERSION [--keep DIRECTORY]"""

import contextlib
import json
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import double_job
from hangs import CULPRIT, HANGS, RANKS, has_failed
from inspect_test import RING, HangingJob

PATIENCE_S = 120
CALLS = 12
NEIGHBOURS = (CULPRIT - 1) % RANKS, (CULPRIT + 1) % RANKS # in the ring
# Recorders of one job.
RECORDERS = {"polled": (), "warnings": ("--warnings",)}


def printed(directory, rank):
    """Texts of the warnings that NCCL printed."""
    return re.findall(r"NCCL WARN (.*)", double_job.output_of(directory, rank))


def errors_of(report, pid):
    return [error for error in report["errors"] if error["pid"] == pid]


def expect_culprit(report, pid):
    [ended] = [error for error in errors_of(report, pid) if error["kind"] != "warning"]
    assert ended["kind"] == "process_ended" and ended["order"] == "first" and ended["rank"] == CULPRIT, ended


def expect_others(report, directory, pids, has_warnings, n_before, n_after):
    """`n_before`, `n_after`: how many warnings each rank had printed when recording started, and when it was stopped. `has_warnings`: the recorder
    recorded each of them."""
    named = 0
    for rank, pid in enumerate(pids):
        if rank == CULPRIT:
            continue
        errors, said = errors_of(report, pid), printed(directory, rank)
        texts = [error["text"] for error in errors if error["text"] and not error["before_recording"]]
        within = said[n_before[rank]:n_after[rank]]
        assert len(texts) == len(set(texts)), texts
        assert set(texts) <= set(said[n_before[rank]:]), f"rank {rank}: reported {texts}, printed {set(said)}"
        assert not within or (set(within) <= set(texts) if has_warnings else texts), f"rank {rank}: reported {texts}, printed {set(within)}"
        for error in errors:
            if error["kind"] != "result":
                continue
            assert error["order"] == "follows" and error["rank"] == rank and error["result"] in ("ncclRemoteError", "ncclSystemError"), error
            if error["peer_rank"] == CULPRIT:
                assert error["operation"]["op"] == "AllReduce" and error["channels"], error
                named += 1
    assert named >= 1, report["errors"]


def expect_said_once(text, report):
    words = " ".join(text.split())
    for error in report["errors"]:
        if error["kind"] != "warning":
            assert words.count(" ".join(error["what"].split())) <= sum(other["what"] == error["what"] for other in report["errors"]), error["what"]


def kill_a_rank(arguments, library, directory):
    """Runs the job under the recorders and kills its culprit. Returns (recorders by name, pids, warnings printed before and after)."""
    hang = HANGS["dead"]
    with HangingJob(arguments, library, directory, hang.plan, *hang.job_options, environment=RING) as job, contextlib.ExitStack() as stack:
        recorders = {name: stack.enter_context(one_machine.Recorder(arguments.collwire, f"{directory}/{name}", "--nccl", library, *options))
                     for name, options in RECORDERS.items()}
        pids = [process.pid for process in job.processes]
        job.wait_for_calls(CALLS)
        n_before = [len(printed(directory, rank)) for rank in range(RANKS)]
        hang.hold_up(job.culprit, job.stuck)
        end = time.monotonic() + PATIENCE_S
        # Up to 2.24 a rank that sends to the culprit does not notice.
        while not any(len(printed(directory, rank)) > n_before[rank] for rank in NEIGHBOURS):
            assert time.monotonic() < end, [double_job.output_of(directory, rank)[-500:] for rank in range(RANKS)]
            time.sleep(0.05)
        # NCCL prints the warning right before it stores the error.
        while not any(look and has_failed(look[0]) for look in map(job.inspect, NEIGHBOURS)):
            assert time.monotonic() < end, "no communicator has an error"
        n_after = [len(printed(directory, rank)) for rank in range(RANKS)]
    return recorders, pids, n_before, n_after


def check(arguments, recorder, directory, name, pids, n_before, n_after):
    # Where NCCL warns in a loop, the recorder drops warnings and exits with LOST.
    assert recorder.status in (0, one_machine.LOST) and ("NCCL warnings" in recorder.said() or recorder.status == 0), recorder.said()
    path = f"{directory}/{name}.json"
    done = subprocess.run([arguments.collwire, "report", f"{directory}/{name}", "--json", path], capture_output=True, text=True, check=False)
    assert done.returncode == recorder.status, done.stderr
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    print(done.stdout[done.stdout.index("Errors (UTC)"):done.stdout.index("How sure collwire is")], flush=True)
    expect_culprit(report, pids[CULPRIT])
    expect_others(report, directory, pids, "--warnings" in RECORDERS[name] and recorder.status == 0, n_before, n_after)
    expect_said_once(done.stdout, report)


def run(arguments, library, directory):
    recorders, *facts = kill_a_rank(arguments, library, directory)
    for name, recorder in recorders.items():
        check(arguments, recorder, directory, name, *facts)
        print(f"{name}: named", flush=True)


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__), run))
