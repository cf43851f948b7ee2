# SPDX-License-Identifier: Apache-2.0
"""Jobs of official NCCL on this machine, a process for each rank, over sockets, on the test double of CUDA, recorded by collwire."""

import argparse
import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cuda_double"), os.path.join(HERE, "..", "scale"), os.path.join(HERE, "..", "support"), HERE]

import both_cores  # noqa: E402
import double_job  # noqa: E402  (the path has to be set first)
import identity_truth  # noqa: E402
import recorder_status  # noqa: E402

SKIPPED = 77
PATIENCE_S = 120
# Exit status of a recording or report that lacks something.
LOST = 5
# Of judge_one.
JOBS_TO_JUDGE = 5


IS_FULL = os.environ.get("COLLWIRE_FULL") == "1"


class Skip(Exception):
    """The test cannot run here, for this reason."""


class Recorder:
    """`collwire record`, for the time of the block. `collwire`: a path, or the words that run it."""

    def __init__(self, collwire, directory, *options):
        self.log, self.status = f"{directory}.log", None
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([*([collwire] if isinstance(collwire, str) else collwire), "record", "-o", directory, *options], stdout=log, stderr=log)
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
            if reason := recorder_status.lacks(self.process.poll(), self.said()):
                raise Skip(reason)
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
    """Runs the job under a recorder. `may_lose`: the recorder may exit with LOST. Returns (report of the job's communicators, logs of its ranks,
    recorder's messages)."""
    reports, logs, said = record_at_once(collwire, job, directory, words, {"capture": options}, may_lose)
    return reports["capture"], logs, said["capture"]


def record_at_once(collwire, job, directory, words, recorders, may_lose=False):
    """Runs one job under several recorders. `recorders`: capture name -> options. Returns (reports by name, logs of the ranks, messages by name)."""
    with contextlib.ExitStack() as stack:
        started = {name: stack.enter_context(Recorder(collwire, f"{directory}/{name}", "--nccl", job.library, *options))
                   for name, options in recorders.items()}
        double_job.run_job(job, directory, "job", words)
    for name, recorder in started.items():
        assert recorder.status in ((0, LOST) if may_lose else (0,)), f"{name}: {recorder.said()}"
    logs = logs_of(directory, "job", job.ranks)
    reports = {name: report_of(collwire, f"{directory}/{name}", f"{directory}/{'report' if name == 'capture' else name}.json", logs) for name in recorders}
    return reports, logs, {name: recorder.said() for name, recorder in started.items()}


def logs_of(directory, name, ranks):
    return [identity_truth.lines_of(f"{directory}/{name}.{rank}") for rank in range(ranks)]


def report_of(collwire, capture, path, logs):
    """The report of these ranks alone. If there were other jobs on the machine, `control` and `inferred_confirmed` are None: they are sums over all."""
    done = subprocess.run([collwire, "report", capture, "--detail", "--json", path], stdout=subprocess.DEVNULL, check=False)
    assert done.returncode in (0, LOST), f"collwire report: {done.returncode}"
    with open(path, encoding="utf-8") as file:
        of_machine = json.load(file)
    both_cores.check(collwire, of_machine, [capture])
    report = identity_truth.only_of(of_machine, {log[0]["pid"] for log in logs})
    if len(report["communicators"]) == len(of_machine["communicators"]):
        return report
    # The sums in the report include other jobs.
    sums, by_source = collections.Counter(), collections.Counter()
    for _, operation, _ in identity_truth.operations_of(report):
        for part in operation["parts"]:
            if part["direction"] == "send" and part["transport"] != "local":
                sums[part["rung"]] += part["payload_bytes"] or 0
                by_source[part["source"]] += part["payload_bytes"] or 0
    # Null if no bytes went to the network.
    of_rungs = {rung: sums[rung] if sums else None for rung in ("exact", "inferred", "process")}
    report["identity"] = {**report["identity"], **of_rungs, "inferred_confirmed": None,
                          "by_source": {source: by_source[source] for source in report["identity"]["by_source"]}}
    report["control"] = None
    return report


def processes_of(report, logs):
    """(host, pid) of each rank."""
    return [(report["hosts"][0]["name"], log[0]["pid"]) for log in logs]


def judge_one(is_judged, directory, otherwise):
    """Runs a job that a busy machine may spoil, up to five times: is_judged(place) runs it there, raises what is wrong, and returns whether it showed what
    the test is about. `otherwise`: what the error says if none did."""
    for number in range(JOBS_TO_JUDGE):
        place = f"{directory}/{number}"
        os.makedirs(place)
        if is_judged(place):
            return
    raise AssertionError(f"{JOBS_TO_JUDGE} jobs: {otherwise}")


def arguments_of(description, *options):
    """`options`: (name, keyword arguments) for argparse."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--collwire", required=True)
    parser.add_argument("--build", required=True, help="where the double was built")
    parser.add_argument("--version", required=True)
    parser.add_argument("--keep", default="", metavar="DIRECTORY", help="keep the results there")
    parser.add_argument("--only-full", action="store_true", help="skip unless COLLWIRE_FULL=1")
    for name, keywords in options:
        parser.add_argument(name, **keywords)
    return parser.parse_args()


def main(arguments, run):
    """run(arguments, library, directory). Returns the exit status."""
    try:
        if arguments.only_full and not IS_FULL:
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
