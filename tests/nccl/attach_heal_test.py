#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recorders attach to a running job on this machine, over sockets. Each recorder makes one read of NCCL's memory fail on purpose, each of them another one.
From 2 s after "recording" on all operations are exact. If a read fails for long, the recorder names the communicator within a second, and later says that it
recovered.

attach_heal_test.py --collwire FILE --build DIRECTORY --version VERSION [--faults FAULT,...] [--keep DIRECTORY] [--only-full]"""

import re
import sys
import time

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import attached

# The names of userspace/sources/nccl/read_names.cpp.
READS = ("proxyState", "proxyOps", "localRank", "localRankToRank", "topParentRanks", "topParentLocalRanks", "sharedRes", "owner", "owner.startMagic",
         "localRanks", "peerArraySize", "localRankToRank[]", "topParentRanks[]", "owner.localRankToRank", "proxies", "lists", "operation", "task",
         "connection", "endpoint")
# The recorder's own reads at attach, by number, from the table of communicators on.
MEMORY = tuple(f"memory:{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 25, 26, 30, 40, 60, 80, 120, 200, 300))
# Of these a launch without its operations is counted, in every version.
COUNTED = {"proxyOps", "localRank", "localRankToRank", "topParentRanks", "topParentLocalRanks", "sharedRes", "owner", "localRanks", "proxies", "lists"}
# A read that fails later than at attach costs that launch: so is "owner.startMagic" until the job uses its second communicator.
FEW = ("proxies:30", "localRank", "owner", "lists", "connection", "memory:3", "memory:6", "memory:30")
AT_ONCE = 8
RECORD_S = 8
MANY_NS = 4_000_000_000  # for that long a read may fail that fails 30 times
FEWEST = 20
UNREAD = re.compile(r"nccl: communicator 0x\w+ rank \d of process \d+: its launches are not read \((\S+) at 0x\w+: ")
HEALED = re.compile(r"nccl: resolved: communicator ")


def faults_of(arguments):
    if arguments.faults:
        return arguments.faults.split(",")
    return [f"{FEW[0]}", *READS, *MEMORY] if one_machine.IS_FULL else list(FEW)


def is_many(fault):
    return ":" in fault and not fault.startswith("memory:")


def check_messages(fault, said):
    """A read that fails 30 times is named, and its recovery, too."""
    name = fault.partition(":")[0]
    if name in COUNTED and "failed reads of NCCL memory" not in said:
        return [f"no read failed:\n{said}"]
    if not is_many(fault):
        return []
    named = UNREAD.search(said)
    if not named or named[1] != name:
        return [f"no communicator is named whose {name} is not read:\n{said}"]
    return [] if HEALED.search(said, named.end()) else [f"its recovery is not said:\n{said}"]


def run_batch(arguments, job, directory, faults):
    recordings = {}
    try:
        for fault in faults:
            path = f"{directory}/{fault.replace(':', '-').replace('[]', '-each')}"
            recordings[fault] = attached.Recording(arguments.collwire, path, *job.recorder_options, fault=fault)
        time.sleep(RECORD_S)  # the time that is judged
    finally:
        for recording in recordings.values():
            recording.end()
    return recordings


def run(arguments, library, directory):
    faults, recordings, problems, figures = faults_of(arguments), {}, [], 0
    with attached.RunningJob(arguments, library, directory) as job:
        job.wait_for_launches(3)
        for first in range(0, len(faults), AT_ONCE):
            recordings.update(run_batch(arguments, job, directory, faults[first:first + AT_ONCE]))
    for fault, recording in recordings.items():
        said = recording.recorder.said()
        if recording.recorder.status not in (0, one_machine.LOST):
            problems.append(f"{fault}: exit {recording.recorder.status}\n{said}")
            continue
        compared, of_fault = attached.judge(arguments, recording, directory, FEWEST, *([MANY_NS] if is_many(fault) else []))
        figures += compared
        problems += [f"{fault}: {problem}" for problem in [*of_fault[:5], *check_messages(fault, said)]]
    print(f"{arguments.version}: {len(recordings)} recorders, each with one read that failed; {figures} operations compared, {len(problems)} problems")
    assert not problems, "\n".join(problems[:40])


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__, ("--faults", {"default": ""})), run))
