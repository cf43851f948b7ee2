#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recorders begin at random moments of running jobs: while connections are made, before pairs of ranks first talk, on a loaded machine, and while the
kernel takes pages from the ranks. Each has all operations exact from 2 s after "recording" on. On this machine, over sockets.

attach_rounds_test.py --collwire FILE --build DIRECTORY --version VERSION [--rounds N] [--seed N] [--keep DIRECTORY] [--only-full]"""

import contextlib
import ctypes
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import attached

SYS_PIDFD_OPEN, SYS_PROCESS_MADVISE = 434, 440
MADV_PAGEOUT = 21
RANGES_AT_ONCE = 256
RECORDERS = 3  # of a job
LATEST_S = 12  # the last begins so long after the job
RECORD_S = 7
FEWEST = 10


class Range(ctypes.Structure):
    _fields_ = [("begin", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


def take_pages(pid):
    """Asks the kernel to take every page that it can from the process. Returns the bytes that it advised on."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        places = [(int(begin, 16), int(end, 16)) for begin, end in re.findall(r"^(\w+)-(\w+) r(?!.*\[v)", maps.read(), re.MULTILINE)]
    pidfd = libc.syscall(SYS_PIDFD_OPEN, pid, 0)
    if pidfd < 0:
        return 0
    advised = 0
    try:
        for first in range(0, len(places), RANGES_AT_ONCE):
            some = places[first:first + RANGES_AT_ONCE]
            ranges = (Range * len(some))(*(Range(begin, end - begin) for begin, end in some))
            advised += max(0, libc.syscall(SYS_PROCESS_MADVISE, pidfd, ranges, len(some), MADV_PAGEOUT, 0))
    finally:
        os.close(pidfd)
    return advised


@contextlib.contextmanager
def pressure(pids, chance):
    """Takes pages from one of the processes after the other, at random times."""
    end, taken = threading.Event(), [0]

    def take():
        while not end.wait(chance.uniform(0.05, 0.5)):
            with contextlib.suppress(OSError):
                taken[0] += take_pages(chance.choice(pids))

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield taken
    finally:
        end.set()
        thread.join()


@contextlib.contextmanager
def load(n):
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.send_signal(signal.SIGKILL)
            spinner.wait()


def record_round(arguments, library, directory, chance):
    """Returns (recordings, what was special about the round)."""
    begins = sorted(chance.uniform(0, LATEST_S) for _ in range(RECORDERS))
    spinners, is_pressed = chance.choice((0, os.cpu_count() or 1)), chance.random() < 0.5
    recordings = []
    with attached.RunningJob(arguments, library, directory, is_awaited=False) as job, load(spinners), contextlib.ExitStack() as stack:
        begin = time.monotonic()
        taken = stack.enter_context(pressure([process.pid for process in job.processes], chance)) if is_pressed else [0]
        try:
            for i, after_s in enumerate(begins):
                time.sleep(max(0, begin + after_s - time.monotonic()))
                recordings.append(attached.Recording(arguments.collwire, f"{directory}/capture{i}", *job.recorder_options))
            job.wait_for_launches(3)
            time.sleep(RECORD_S)  # the time that is judged
        finally:
            for recording in recordings:
                recording.end()
        job.wait_until_running()
    return recordings, f"begun after {', '.join(f'{after_s:.1f}' for after_s in begins)} s, {spinners} spinners, {taken[0] >> 20} MiB taken"


def run(arguments, library, directory):
    rounds = arguments.rounds or (10 if one_machine.IS_FULL else 1)
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    problems, figures, faults = [], 0, 0
    for number in range(rounds):
        place = f"{directory}/{number}"
        os.mkdir(place)
        recordings, special = record_round(arguments, library, place, random.Random(f"{seed}.{number}"))
        of_round = []
        for recording in recordings:
            said = recording.recorder.said()
            faults += "failed reads of NCCL memory" in said
            if recording.recorder.status not in (0, one_machine.LOST):
                of_round.append(f"exit {recording.recorder.status}\n{said}")
                continue
            compared, of_recording = attached.judge(arguments, recording, place, FEWEST)
            figures += compared
            of_round += of_recording[:5]
        print(f"round {number}: {special}: {len(of_round)} problems", flush=True)
        problems += [f"round {number} of seed {seed} ({special}): {problem}" for problem in of_round]
    print(f"{arguments.version}: {rounds * RECORDERS} recorders at random moments, {faults} with a read that failed; {figures} operations compared, "
          f"{len(problems)} problems (seed {seed})")
    assert not problems, "\n".join(problems[:40])


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__, ("--rounds", {"type": int, "default": 0}), ("--seed", {"type": int})), run))
