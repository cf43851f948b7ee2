#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes with official NCCL mapped and false data in its memory (lists that lead back to themselves, absurd counts), or that exit, run another
program, change their memory or have their library replaced meanwhile: `collwire inspect` and `collwire record` take bounded time and memory, and
report what there is, or in one line what is wrong. So they do if the process that reads the library is killed.

hostile_test.py --collwire FILE --build DIRECTORY --version VERSION [--keep DIRECTORY] [--only-full]"""

import concurrent.futures
import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import busy_machine
import recorder_status

MODES = ("lies", "dies", "execs", "remaps")
INSPECTIONS = 20 if one_machine.IS_FULL else 8
MOST_S, MOST_BYTES = 10.0, 512 << 20
# Of the recorder, with its tables.
MOST_RECORDER_BYTES, DURATION_S = 1 << 30, 3
RECORDERS_AT_ONCE = 2
NOBODY, FAILED = 65534, 1
# Page faults. The question whether a file is NCCL takes some 90, the layout some 600.
READS_LAYOUT_FAULTS = 200
TRIES_TO_KILL = 20
# The most that a process with false lists can make collwire report.
MOST_COMMUNICATORS = 4096
OFFSETS = ("ncclComm.startMagic", "ncclComm.initState", "ncclComm.nRanks", "ncclComm.rank")


@functools.cache
def places(collwire, library):
    """Where the library has the list of communicators, and its fields."""
    done = subprocess.run([collwire, "doctor", "--nccl", library, "--json"], capture_output=True, text=True, check=True)
    plan = json.loads(done.stdout)
    return [str(place) for place in (plan["data"]["ncclComms"], plan["data"]["nNcclComms"], *(plan["offsets"][name]["value"] for name in OFFSETS))]


class Target:
    def __init__(self, arguments, library, mode):
        words = places(arguments.collwire, library)
        self.process = subprocess.Popen([f"{arguments.build}/hostile_target", mode, library, *words], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def run(command, most_bytes):
    """(exit status, standard output, standard error, seconds)"""
    begin = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said, errors = process.communicate(timeout=10 * MOST_S)
    took_s = time.monotonic() - begin
    # The maximum over all children so far.
    used = max_rss_bytes()
    assert took_s < MOST_S, f"{command}: {took_s:.1f} s"
    assert used < most_bytes, f"{command}: {used >> 20} MiB"
    return process.returncode, said, errors, took_s


def max_rss_bytes():
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def expect_one_line(status, said, errors):
    """The output has what there is, or the error is one line. Returns a summary."""
    if status == 0:
        processes = json.loads(said)["processes"]
        assert all(len(process["communicators"]) <= MOST_COMMUNICATORS for process in processes), [len(one["communicators"]) for one in processes]
        return "reported" if any(process["communicators"] for process in processes) else f"reported: {processes[0]['problem'] if processes else 'nothing'}"
    assert errors.count("\n") == 1 and errors.startswith("collwire"), (status, errors)
    return errors.strip()


def inspect(arguments, library, mode):
    results, longest_s = {}, 0
    for _ in range(1 if mode == "lies" else INSPECTIONS):
        with Target(arguments, library, mode) as process:
            status, said, errors, took_s = run([arguments.collwire, "inspect", str(process.pid), "--json"], MOST_BYTES)
        result = expect_one_line(status, said, errors).replace(str(process.pid), "PID")
        results[result] = results.get(result, 0) + 1
        longest_s = max(longest_s, took_s)
    print(f"inspect, {mode}: {results}; {longest_s:.2f} s at most, {max_rss_bytes() >> 20} MiB", flush=True)


def replaced(arguments, library, directory):
    """The path of the mapped library now names another file."""
    copy = f"{directory}/libnccl.so.2"
    shutil.copy(library, copy)
    with Target(arguments, copy, "lies") as process:
        other = f"{directory}/other"
        with open(other, "wb") as file:
            file.write(b"no library" * 1000)
        os.rename(other, copy)
        status, said, errors, took_s = run([arguments.collwire, "inspect", str(process.pid), "--json"], MOST_BYTES)
    print(f"inspect, replaced: {expect_one_line(status, said, errors)}; {took_s:.2f} s", flush=True)


def record(arguments, library, mode, directory):
    capture = f"{directory}/{mode}"
    with Target(arguments, library, mode) as process:
        begin = time.monotonic()
        done = subprocess.run([arguments.collwire, "record", "-o", capture, "--duration", str(DURATION_S), "--pid", str(process.pid), "--nccl", library],
                              capture_output=True, text=True, check=False, timeout=10 * MOST_S)
        took_s = time.monotonic() - begin
    if reason := recorder_status.lacks(done.returncode, done.stderr):
        raise one_machine.Skip(reason)
    assert took_s < MOST_S + DURATION_S, took_s
    assert max_rss_bytes() < MOST_RECORDER_BYTES, max_rss_bytes()
    print(f"record, {mode}: exit status {done.returncode}, {took_s:.1f} s, {max_rss_bytes() >> 20} MiB: {done.stderr.strip().splitlines()[-1]}", flush=True)
    assert done.returncode in (0, one_machine.LOST), done.stderr
    status, _, errors, _ = run([arguments.collwire, "report", capture], MOST_RECORDER_BYTES)
    assert status in (0, one_machine.LOST), errors


def layout_readers(pid):
    """Processes of the recorder that read a library's layout: without privileges, and with more page faults than one that looks for a symbol."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
            for child in file.read().split():
                state, *numbers = read_text(f"/proc/{child}/stat").rpartition(") ")[2].split()
                is_nobody = f"Uid:\t{NOBODY}\t" in read_text(f"/proc/{child}/status")
                if state != "Z" and is_nobody and int(numbers[6]) >= READS_LAYOUT_FAULTS:
                    yield int(child)
    except OSError:  # it has ended
        return


def start_and_kill(command, log, n):
    """Starts the recorder, and kills the first `n` readers as soon as they are seen. Returns (its exit status, how many were killed)."""
    killed = set()
    with open(log, "wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as recorder:
        end = time.monotonic() + MOST_S
        while recorder.poll() is None and "recording\n" not in read_text(log):
            assert time.monotonic() < end, read_text(log)
            for reader in layout_readers(recorder.pid):
                if len(killed) < n:
                    os.kill(reader, signal.SIGKILL)
                    killed.add(reader)
        recorder.send_signal(signal.SIGINT)
    return recorder.returncode, len(killed)


def killed_readers(arguments, library, directory, n):
    """The machine ends (out of memory) the first `n` readers of the named library. One is replaced. Otherwise the recorder ends with one line: it never goes
    on without NCCL."""
    for i in range(TRIES_TO_KILL):  # a reader takes 30 ms
        place = f"{directory}/killed-{n}-{i}"
        status, n_killed = start_and_kill([arguments.collwire, "record", "-o", place, "--nccl", library], f"{place}.log", n)
        errors = read_text(f"{place}.log")
        if reason := recorder_status.lacks(status, errors):
            raise one_machine.Skip(reason)
        if n_killed == n:
            break
    assert n_killed == n, errors
    if n == 1:
        assert status == 0 and "its reader" not in errors, (status, errors)
    else:
        assert status == FAILED and library in errors and "ended by signal 9" in errors and "Fix: " in errors, (status, errors)
    print(f"record, {n} readers killed at try {i + 1}: exit status {status}: {errors.strip().splitlines()[-1]}", flush=True)


def read_text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def run_all(arguments, library, directory):
    for n in (1, 2):
        killed_readers(arguments, library, directory, n)
    for mode in MODES:
        inspect(arguments, library, mode)
    replaced(arguments, library, directory)
    with concurrent.futures.ThreadPoolExecutor(RECORDERS_AT_ONCE) as at_once:
        list(at_once.map(lambda mode: record(arguments, library, mode, directory), MODES))


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__), run_all))
