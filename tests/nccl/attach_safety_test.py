#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recorders attach to a running job of official NCCL, on this machine, over sockets, on the test double of CUDA, and stop or are killed, many times:
all data stay right, no process is ptraced, the library's code in memory is restored, and iterations are not slow more often than with programs that
attach nothing. Then jobs exit, crash or are killed while a recorder attaches.

attach_safety_test.py --collwire FILE --build DIRECTORY --version VERSION [--rounds N]"""

import argparse
import collections
import hashlib
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cuda_double"))

import double_job

SKIPPED = 77
RANKS = 2
PATIENCE_S = 120
# The kernel detaches the probes of a killed recorder one after the other. One that was killed while it started may leave a breakpoint for ever.
RESTORED_S, STARTING_S = 120, 20
# Every fifth recorder is killed.
KILLED_EACH = 5
AIMS = ("starting", "recording", "ending")
# With every second recorder, a comparison: a program uses the CPU as a starting recorder does, and attaches nothing.
COMPARED_EACH = 2
# A shared machine is slow at times, with or without a recorder. A round is slow if one of its iterations took this much longer than the slowest
# iteration of nine in ten comparisons.
USUAL_PART, SLOW_RATIO, SLOW_MARGIN_S = 0.9, 1.5, 0.05
# Below it the slow rounds are the recorder's, not chance.
LEAST_PROBABILITY = 0.001


def poll_until(condition, what, patience_s=PATIENCE_S):
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {patience_s} s"
        time.sleep(0.005)


class Recorder:
    def __init__(self, collwire, directory, pids, *options):
        self.log = f"{directory}.log"
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([collwire, "record", "-o", directory, *options, *(word for pid in pids for word in ("-p", str(pid)))],
                                            stdout=log, stderr=log)

    def said(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def records(self):
        return self.process.poll() is not None or "recording\n" in self.said()

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE_S)


class JobLog:
    """The log of a running rank."""

    def __init__(self, path):
        self._file = open(path, encoding="utf-8")
        self._rest = ""
        self.waited_ns, self.calls = [], []

    def read(self):
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        for line in lines:
            if '"event":"waited"' in line:
                self.waited_ns.append(int(re.search(r'"at_ns":(\d+)', line)[1]))
            elif '"event":"call"' in line:
                self.calls.append(tuple(int(re.search(rf'"{name}":(\d+)', line)[1]) for name in ("at_ns", "returned_ns")))
        return self

    def iterations(self):
        """(begin, seconds)"""
        return [(begin, (end - begin) / 1e9) for begin, end in zip(self.waited_ns, self.waited_ns[1:])]


def maps_of(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        return maps.read()


def code_of(pid):
    """Digest of the library's code in the memory of the process."""
    digest = hashlib.sha256()
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for begin, end in re.findall(r"^(\w+)-(\w+) r-xp .*libnccl", maps_of(pid), re.MULTILINE):
            memory.seek(int(begin, 16))
            digest.update(memory.read(int(end, 16) - int(begin, 16)))
    return digest.hexdigest()


def own_code_kib(pid):
    """KiB of the library's code in private pages, as those with a breakpoint are. Reading all of the code would slow the measured iterations."""
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as smaps:
        return sum(int(kib) for kib in re.findall(r"^\w+-\w+ r-xp .*libnccl(?:.*\n)+?Anonymous: +(\d+) kB", smaps.read(), re.MULTILINE))


def tracers_of(pid):
    tracers = set()
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/status", encoding="utf-8") as status:
                tracers.add(re.search(r"TracerPid:\s+(\d+)", status.read())[1])
        except OSError: # the thread exited
            pass
    return tracers


class RunningJob:
    def __init__(self, library, build, directory, *arguments):
        job = double_job.Job(library, build, RANKS)
        job.write_layout(directory)
        self.directory = directory
        self.processes = [job.start(rank, directory, "job", ["--plan", "training", *arguments]) for rank in range(RANKS)]
        try:
            double_job.wait_until_running(job, directory, self.processes)
        except BaseException:
            self.kill()
            raise

    @property
    def pids(self):
        return [process.pid for process in self.processes]

    def end(self):
        self.processes[0].send_signal(signal.SIGTERM)
        try:
            return [process.wait(timeout=PATIENCE_S) for process in self.processes]
        finally:
            self.kill()

    def kill(self, number=signal.SIGKILL):
        # A stopped rank does not see the exit of another.
        for each in (signal.SIGSTOP, number, signal.SIGCONT):
            for process in self.processes:
                process.send_signal(each)
        return [process.wait(timeout=PATIENCE_S) for process in self.processes]


def expect_untraced(job):
    assert all(tracers_of(pid) == {"0"} for pid in job.pids), "a thread is ptraced"


def wait_until_recording(recorder, job):
    end = time.monotonic() + PATIENCE_S
    while not recorder.records():
        expect_untraced(job)
        assert time.monotonic() < end, f"recording: not within {PATIENCE_S} s"
        time.sleep(0.02)


def wait_for_iterations(log, n):
    goal = len(log.read().waited_ns) + n
    poll_until(lambda: len(log.read().waited_ns) >= goal, f"{n} more iterations")


def slowest(log, windows):
    """(iterations that overlap one of the windows, their median, the slowest, the slowest call), in seconds."""
    def touches(begin_ns, end_ns):
        return any(begin_ns < end and end_ns > begin for begin, end in windows)
    iterations = sorted(seconds for begin, seconds in log.iterations() if touches(begin, begin + seconds * 1e9))
    calls = [(end - begin) / 1e9 for begin, end in log.calls if touches(begin, end)]
    return len(iterations), iterations[len(iterations) // 2], iterations[-1], max(calls)


def slowest_iteration_s(log, begin_ns, end_ns):
    return max(seconds for begin, seconds in log.iterations() if begin < end_ns and begin + seconds * 1e9 > begin_ns)


def slow_rounds(log, windows, limit_s):
    """Indices of the windows that overlap an iteration of more than `limit_s`."""
    longer = [(begin, begin + seconds * 1e9) for begin, seconds in log.iterations() if seconds > limit_s]
    return [number for number, (begin, end) in enumerate(windows) if any(a < end and b > begin for a, b in longer)]


def probability_of_as_many(n_slow_here, n_here, n_slow_there, n_there):
    """Probability of `n_slow_here` or more slow ones here, if they are distributed by chance: Fisher's exact test, one-sided."""
    n_slow = n_slow_here + n_slow_there
    ways = sum(math.comb(n_here, k) * math.comb(n_there, n_slow - k) for k in range(n_slow_here, n_slow + 1))
    return ways / math.comb(n_here + n_there, n_slow)


def attach_nothing(collwire, log, seconds):
    """For as long as a recorder ran."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        subprocess.run([collwire, "record", "--dry-run"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    wait_for_iterations(log, 1)


def kill(recorder, aim, chance):
    """`aim`: one of AIMS. Returns what the recorder was doing when it was killed."""
    if aim == "starting":
        time.sleep(chance.uniform(0, 0.6))
    else:
        poll_until(recorder.records, "recording")
        if aim == "ending":
            recorder.process.send_signal(signal.SIGINT)
        time.sleep(chance.uniform(0, 0.05 if aim == "ending" else 0.5))
    began = "recording\n" in recorder.said()
    if recorder.end(signal.SIGKILL) != -signal.SIGKILL:
        return "ended before"
    return aim if aim == "ending" else "recording" if began else "starting"


def expect_restored(job, code, collwire, directory, where):
    """A kernel that is interrupted between two processes while it places a breakpoint leaves the first one, which the next recorder removes."""
    try:
        poll_until(lambda: [code_of(pid) for pid in job.pids] == code, "the library's code is restored",
                   STARTING_S if where == "starting" else RESTORED_S)
        return 0
    except AssertionError:
        assert where == "starting", f"killed while {where}: breakpoints are left"
    recorder = Recorder(collwire, directory, job.pids)
    poll_until(recorder.records, "recording")
    assert recorder.end() == 0, recorder.said()
    assert [code_of(pid) for pid in job.pids] == code, "breakpoints of a killed recorder are left after the next one"
    return 1


def attach_and_detach(arguments, library, directory, chance):
    killed = collections.Counter()
    job = RunningJob(library, arguments.build, directory, "--count", "0")
    log = JobLog(f"{directory}/job.0")
    traced, compared, healed = [], [], 0
    try:
        code = [code_of(pid) for pid in job.pids]
        unprobed_kib, changed = own_code_kib(job.pids[0]), 0
        for number in range(arguments.rounds):
            if traced and number % COMPARED_EACH == 1:
                begin_ns = time.monotonic_ns()
                attach_nothing(arguments.collwire, log, (traced[-1][1] - traced[-1][0]) / 1e9)
                compared.append((begin_ns, time.monotonic_ns()))
            begin_ns = time.monotonic_ns()
            recorder, where = Recorder(arguments.collwire, f"{directory}/{number}", job.pids), None
            try:
                if number % KILLED_EACH == KILLED_EACH - 1:
                    where = kill(recorder, AIMS[number // KILLED_EACH % len(AIMS)], chance)
                    killed[where] += 1
                else:
                    wait_until_recording(recorder, job)
                    changed += own_code_kib(job.pids[0]) > unprobed_kib
                    wait_for_iterations(log, 1)
                    expect_untraced(job)
                    status = recorder.end()
                    assert status == 0, f"round {number}: exit status of the recorder {status}: {recorder.said()}"
            finally:
                recorder.process.kill()
            traced.append((begin_ns, time.monotonic_ns()))
            if where:
                wait_for_iterations(log, 1) # the one of the kill: reading all of the library's code, as below, slows the job
                healed += expect_restored(job, code, arguments.collwire, f"{directory}/{number}.next", where)
            assert all(process.poll() is None for process in job.processes), f"round {number}: the job exited"
        assert [code_of(pid) for pid in job.pids] == code, "the library's code is not restored"
        assert not any("[uprobes]" in maps_of(pid) for pid in job.pids), "the kernel's page for single-stepped probes is left"
        assert changed, "no recorder placed a probe in the library"
    except BaseException:
        job.kill()
        raise
    statuses = job.end()
    outputs = [double_job.output_of(directory, rank) for rank in range(RANKS)]
    assert statuses == [0] * RANKS and all("all data right" in output for output in outputs), (statuses, outputs)
    log.read()
    n, median_s, slowest_s, call_s = slowest(log, traced)
    quiet_n, quiet_median_s, quiet_slowest_s, quiet_call_s = slowest(log, compared)
    print(f"{arguments.rounds} recorders, {changed} with probes seen in the library's code; slowest iteration of the job {slowest_s * 1e3:.1f} ms of {n} "
          f"(median {median_s * 1e3:.1f}), with nothing attached {quiet_slowest_s * 1e3:.1f} ms of {quiet_n} (median {quiet_median_s * 1e3:.1f}); longest "
          f"call, which bounds the pause of a traced thread: {call_s * 1e3:.2f} ms, with nothing attached {quiet_call_s * 1e3:.2f} ms")
    print(f"killed: {', '.join(f'{n} {where}' for where, n in sorted(killed.items()))}; a breakpoint was left {healed} times")
    usual_s = sorted(slowest_iteration_s(log, *window) for window in compared)[int(USUAL_PART * (len(compared) - 1))]
    limit_s = SLOW_RATIO * usual_s + SLOW_MARGIN_S
    slow, quiet_slow = (slow_rounds(log, windows, limit_s) for windows in (traced, compared))
    probability = probability_of_as_many(len(slow), len(traced), len(quiet_slow), len(compared))
    print(f"slower than {limit_s * 1e3:.1f} ms: {len(slow)} of {len(traced)} rounds ({', '.join(map(str, slow)) or 'none'}), with nothing attached "
          f"{len(quiet_slow)} of {len(compared)}: as many by chance with a probability of {probability:.3f}")
    assert probability >= LEAST_PROBABILITY, "iterations are slower with a recorder"


BECOME_ANOTHER = signal.SIGUSR1 # on which the job runs another program


def dying(arguments, library, directory, chance):
    """Jobs exit, crash, are killed or run another program while a recorder attaches or reads."""
    rounds = max(4, arguments.rounds // 25)
    for number in range(rounds):
        how = (signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL, BECOME_ANOTHER)[number % 4]
        place = f"{directory}/dying{number}"
        os.mkdir(place)
        job = RunningJob(library, arguments.build, place, "--count", "0")
        recorder = Recorder(arguments.collwire, f"{place}/capture", job.pids)
        try:
            time.sleep(chance.uniform(0, 1.0))
            if how == signal.SIGTERM:
                statuses = job.end()
                outputs = [double_job.output_of(place, rank) for rank in range(RANKS)]
                assert all("all data right" in output for output in outputs), outputs
            else:
                statuses = job.kill(how)
            expected = 0 if how in (signal.SIGTERM, BECOME_ANOTHER) else -how
            assert statuses == [expected] * RANKS, f"{how.name}: exit statuses of the job {statuses}"
            poll_until(recorder.records, "recording, or exited")
            status = recorder.end() if recorder.process.poll() is None else recorder.process.returncode
            # If all processes exited before the recorder read them, it says so in one line.
            assert status == 0 or (status == 1 and recorder.said().count("\n") <= 2), f"{how.name}: {status}: {recorder.said()}"
        finally:
            recorder.process.kill()
            job.kill()
    print(f"{rounds} jobs exited, crashed, were killed or ran another program while a recorder attached: recorder and jobs ended as they should")


def replaced(arguments, library, directory, chance):
    """Processes that map the library and then run another program."""
    recorder = Recorder(arguments.collwire, f"{directory}/replaced", [])
    try:
        poll_until(recorder.records, "recording")
        script = "import ctypes, os, sys, time; ctypes.CDLL(sys.argv[1]); time.sleep(float(sys.argv[2])); os.execv('/bin/true', ['true'])"
        environment = dict(os.environ, LD_LIBRARY_PATH=arguments.build)
        for _ in range(max(5, arguments.rounds // 10)):
            done = subprocess.run([sys.executable, "-c", script, library, str(chance.uniform(0, 0.05))], env=environment, check=False)
            assert done.returncode == 0, done
        status = recorder.end()
        assert status == 0, f"{status}: {recorder.said()}"
    finally:
        recorder.process.kill()
    print("processes that ran another program: recorded")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collwire", required=True)
    parser.add_argument("--build", required=True, help="where the double was built")
    parser.add_argument("--version", default="2.28.9")
    parser.add_argument("--rounds", type=int, default=100 if os.environ.get("COLLWIRE_FULL") == "1" else 20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    can = subprocess.run([arguments.collwire, "record", "--duration", "1ms", "-o", "/dev/null/x"], capture_output=True, text=True, check=False)
    if os.geteuid() != 0 or can.returncode in (3, 4):
        print(f"skip: no recording here: {can.stderr.strip() or 'not root'}")
        return SKIPPED
    try:
        library = double_job.fetched(arguments.version)
    except RuntimeError as problem:
        print(f"skip: {problem}")
        return SKIPPED
    print(f"seed {arguments.seed}")
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as directory:
        attach_and_detach(arguments, library, directory, chance)
        dying(arguments, library, directory, chance)
        replaced(arguments, library, directory, chance)
    return 0


if __name__ == "__main__":
    sys.exit(main())
