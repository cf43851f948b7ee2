# SPDX-License-Identifier: Apache-2.0
"""A job of official NCCL on this machine that recorders join while it runs, and the judgement of what each recorded."""

import contextlib
import os
import time

import one_machine
import cases
import double_job
import identity_truth
import late_truth

RANKS, RANKS_PER_NODE = 4, 1
HEALED_NS = 2_000_000_000  # after "recording": from then on every operation has to be exact
EDGE_NS = 1_000_000_000
PATIENCE_S = 120


class RunningJob:
    """Four ranks of as many nodes, until the end of the block."""

    def __init__(self, arguments, library, directory, plan="attach", environment=None, is_awaited=True):
        self.directory = directory
        self.job = double_job.Job(library, arguments.build, RANKS, ranks_per_node=RANKS_PER_NODE,
                                  environment={"NCCL_COMM_SPLIT_SHARE_RESOURCES": "1", "NCCL_RAS_ENABLE": "1", **(environment or {})})
        self.job.write_layout(directory)
        words = ["--plan", os.path.join(cases.JOBS, f"{plan}.job"), "--count", "0"]
        self.processes = []
        try:
            for rank in range(RANKS):
                self.processes.append(self.job.start(rank, directory, "job", words))
            if is_awaited:
                self.wait_until_running()
        except BaseException:
            self.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        try:
            if problem[0] is None:
                self.end()
        finally:
            self.kill()

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()

    @property
    def recorder_options(self):
        """Other jobs on the machine are not recorded."""
        return ["--nccl", self.job.library, *(word for process in self.processes for word in ("--pid", str(process.pid)))]

    def wait_until_running(self):
        double_job.wait_until_running(self.job, self.directory, self.processes)

    def wait_for_launches(self, n):
        double_job.wait_for_launches(self.job, self.directory, self.processes, n, PATIENCE_S)

    def end(self):
        self.processes[0].terminate()
        double_job.expect_right_data(self.directory, self.processes, PATIENCE_S)


class Recording:
    """A recorder and the times between which it has to have everything."""

    def __init__(self, collwire, path, *options, fault=""):
        self.path = path
        with environment_with("COLLWIRE_TEST_FAIL_READ", fault):
            self.recorder = one_machine.Recorder(collwire, path, *options)
        self.ready_ns, self.end_ns, self.healed_after_ns = time.time_ns(), 0, HEALED_NS

    def end(self):
        self.end_ns = self.end_ns or time.time_ns()
        self.recorder.end()


@contextlib.contextmanager
def environment_with(name, value):
    before = os.environ.pop(name, None)
    if value:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


def quietest(doubles, report, begin_ns, end_ns):
    """The middle of the longest time without a launch on any rank, in which no operation is launched on some ranks and not yet on others; None: there is
    no such time."""
    times = sorted({begin_ns, end_ns, *(kernel["launched_ns"] for log in doubles for kernel in log if begin_ns < kernel["launched_ns"] < end_ns)})
    spread = [(operation["begin_realtime_ns"], operation["launched_realtime_ns"]) for operation in report["collectives"] + report["p2p"]
              if operation["launched"]]
    for gap, at in sorted(((after - before, before) for before, after in zip(times, times[1:])), reverse=True):
        if not any(first < at + gap // 2 < last for first, last in spread):
            return at + gap // 2
    return None


def first_quietest(doubles, report, spans):
    """In the first of the (begin, end) that has one."""
    at_ns = next((at_ns for begin_ns, end_ns in spans if (at_ns := quietest(doubles, report, begin_ns, end_ns)) is not None), None)
    assert at_ns is not None, "the ranks were in the middle of an operation all the time"
    return at_ns


def judge(arguments, recording, directory, fewest, healed_after_ns=HEALED_NS, jobs=None):
    """Every operation between two quiet moments, the first of which is 2 s after "recording" unless given, is exact. `jobs`: the logs of the ranks, if
    they are not as in the directory. Returns (figures compared, problems)."""
    jobs = jobs or one_machine.logs_of(directory, "job", RANKS)
    doubles = one_machine.logs_of(directory, "truth", len(jobs))
    report = one_machine.report_of(arguments.collwire, recording.path, f"{recording.path}.json", jobs)
    healed_ns, end_ns = recording.ready_ns + healed_after_ns, recording.end_ns - EDGE_NS
    assert end_ns - healed_ns > 2 * EDGE_NS, "the recording was too short for this test"
    # On a busy machine an operation may take longer than an edge.
    lengths_ns = range(EDGE_NS, max((end_ns - healed_ns) // 4, EDGE_NS) + 1, EDGE_NS)
    begin_ns = first_quietest(doubles, report, [(healed_ns, healed_ns + length_ns) for length_ns in lengths_ns])
    until_ns = first_quietest(doubles, report, [(end_ns - length_ns, end_ns) for length_ns in lengths_ns])
    doubles = [[kernel for kernel in log if kernel["launched_ns"] < until_ns] for log in doubles]
    report["p2p"] = [operation for operation in report["p2p"] if (operation["launched_realtime_ns"] or until_ns) < until_ns]
    is_local = identity_truth.same_node(jobs, RANKS_PER_NODE)
    host = report["hosts"][0]["name"]
    logs = {(host, log[0]["pid"]): rank for rank, log in enumerate(jobs)}
    ready = [begin_ns] * len(jobs)
    compared, problems = late_truth.compare(report, doubles, logs, ready, is_local)
    sends, of_sends = late_truth.compare_sends(report, doubles, ready, is_local)
    problems += of_sends
    if compared < fewest or sends < fewest:
        problems.append(f"{compared} collectives and {sends} sends were compared: fewer than {fewest}")
    return compared + sends, problems
