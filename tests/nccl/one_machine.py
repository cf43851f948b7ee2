# SPDX-License-Identifier: Apache-2.0
"""Jobs of official NCCL on this machine, a process for each rank, over sockets, on the test double of CUDA, recorded by collwire beside them."""

import argparse
import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cuda_double"), HERE]

import double_job  # noqa: E402  (the path has to be set first)
import identity_truth  # noqa: E402

SKIPPED = 77
PATIENCE_S = 120
NOT_PERMITTED, UNSUPPORTED = 3, 4
# Exit status of a report of which something is missing: a problem among others.
LOST = 5


class Skip(Exception):
    pass


class Recorder:
    """`collwire record`, for the time of the block."""

    def __init__(self, collwire, directory, *options):
        self.log, self.status = f"{directory}.log", None
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([collwire, "record", "-o", directory, *options], stdout=log, stderr=log)
        try:
            self._wait_until_recording()
        except BaseException:
            self.end()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def _wait_until_recording(self):
        end = time.monotonic() + PATIENCE_S
        while "recording\n" not in self.said():
            if self.process.poll() in (NOT_PERMITTED, UNSUPPORTED):
                raise Skip(self.said().strip().splitlines()[-1])
            assert self.process.poll() is None and time.monotonic() < end, self.said()
            time.sleep(0.05)

    def said(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def end(self):
        if self.status is None:
            self.process.send_signal(signal.SIGINT)
            self.status = self.process.wait(timeout=PATIENCE_S)


def record(collwire, job, directory, words, *options, may_lose=False):
    """Runs the job under a recorder, which may say that it lost something only if `may_lose`. Returns (the report of its communicators, the ranks' logs, the recorder's words)."""
    capture = f"{directory}/capture"
    with Recorder(collwire, capture, "--nccl", job.library, *options) as recorder:
        double_job.run_job(job, directory, "job", words)
    assert recorder.status in ((0, LOST) if may_lose else (0,)), recorder.said()
    logs = logs_of(directory, "job", job.ranks)
    return report_of(collwire, capture, f"{directory}/report.json", logs), logs, recorder.said()


def logs_of(directory, name, ranks):
    return [identity_truth.lines_of(f"{directory}/{name}.{rank}") for rank in range(ranks)]


def report_of(collwire, capture, path, logs):
    """Of these ranks alone; without `control`, which is told of all processes together, where there were others."""
    done = subprocess.run([collwire, "report", capture, "--detail", "--json", path], stdout=subprocess.DEVNULL, check=False)
    assert done.returncode in (0, LOST), f"collwire report: {done.returncode}"
    with open(path, encoding="utf-8") as file:
        of_machine = json.load(file)
    report = identity_truth.only_of(of_machine, {log[0]["pid"] for log in logs})
    if len(report["communicators"]) == len(of_machine["communicators"]):
        return report
    # The report's own sums are of all jobs on the machine.
    sums = collections.Counter()
    for _, operation, _ in identity_truth.operations_of(report):
        for part in operation["parts"]:
            if part["direction"] == "send" and part["transport"] != "local":
                sums[part["rung"]] += part["payload_bytes"] or 0
    report["identity"] = {**report["identity"], **{rung: sums[rung] for rung in ("exact", "inferred", "process")}}
    report["control"] = None
    return report


def processes_of(report, logs):
    """(host, pid) of each rank."""
    return [(report["hosts"][0]["name"], log[0]["pid"]) for log in logs]


def arguments_of(description, *options):
    """`options`: (name, keyword arguments) for argparse."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--collwire", required=True)
    parser.add_argument("--build", required=True, help="where the double was built")
    parser.add_argument("--version", required=True)
    parser.add_argument("--keep", default="", metavar="DIRECTORY", help="leave there what the run wrote")
    parser.add_argument("--only-full", action="store_true", help="skip unless COLLWIRE_FULL=1")
    for name, keywords in options:
        parser.add_argument(name, **keywords)
    return parser.parse_args()


def main(arguments, run):
    """run(arguments, library, directory). Returns the exit status."""
    try:
        if arguments.only_full and os.environ.get("COLLWIRE_FULL") != "1":
            raise Skip("runs with COLLWIRE_FULL=1")
        if os.geteuid() != 0:
            raise Skip("needs root")
        try:
            library = double_job.fetched(arguments.version)
        except (OSError, RuntimeError) as problem:
            raise Skip(problem) from problem
        if arguments.keep:
            os.makedirs(arguments.keep)
            run(arguments, library, arguments.keep)
        else:
            with tempfile.TemporaryDirectory() as directory:
                run(arguments, library, directory)
    except Skip as reason:
        print(f"skip: {reason}")
        return SKIPPED
    return 0
