#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank is late for one operation, by a known time: in a report with --network-times the others wait for it in that operation, for that time, and in no
other. On this machine, over sockets, on the test double of CUDA.

stall_test.py --collwire FILE --build DIRECTORY --version VERSION [--keep DIRECTORY]"""

import collections
import os
import sys

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import cases
import double_job
from identity_truth import ACCEPTED, POINT_TO_POINT

RANKS, LATE = 2, 1
ITERATIONS = 3
STALL_MS = 1500
STALL_NS = STALL_MS * 1_000_000
# Share of the wait: the proxy thread may wait for a CPU first. A rank that comes late by itself, for the same reason, makes the stall shorter: then the job
# is run again.
LEAST_SHARE = 0.9
# For all other operations, in addition to what the rank itself measures, from its call until its streams are done.
MOST_NS = STALL_NS // 2
# A communicator and a call on it, of the second iteration: on the world five calls and an agreement come first.
STALLS = {"AllGather": ("world", 6), "Send": ("world", 7), "AllReduce": ("again", 2)}


def stalled_call(logs, expected):
    """(call of the late rank, calls of the others for the same operation)"""
    stall = next(line for line in logs[LATE] if line["event"] == "stall")
    late = next(line for line in logs[LATE] if line["event"] == "call" and line["call"] == stall["before_call"])
    assert late["op"] == expected and stall["ms"] == STALL_MS, f"{late['op']} was late: the job script has another order"
    others = [line for rank, log in enumerate(logs) if rank != LATE for line in log if line["event"] == "call" and line["operation"] == late["operation"]]
    return late, others


def place_of(log, call):
    """Number of the call among the collectives of its communicator, or among the sends to its peer."""
    def counts(line):
        if line["event"] != "call" or line["communicator"] != call["communicator"] or line["result"] not in ACCEPTED or line["call"] >= call["call"]:
            return False
        return (line["op"], line["peer"]) == (call["op"], call["peer"]) if call["op"] in POINT_TO_POINT else line["op"] not in POINT_TO_POINT
    return sum(counts(line) for line in log)


def durations_of(log, rank):
    """(communicator, number) of a collective, (communicator, sender, receiver, number) of a send or receive -> ns from the call until all streams are done."""
    durations, n, called = {}, collections.Counter(), []
    for line in log:
        if line["event"] == "call" and line["result"] in ACCEPTED:
            key = (line["communicator"],)
            if line["op"] in POINT_TO_POINT:
                key = (*key, rank, line["peer"]) if line["op"] == "Send" else (*key, line["peer"], rank)
            called.append(((*key, n[key]), line["at_ns"]))
            n[key] += 1
        elif line["event"] == "waited":
            durations.update({key: line["at_ns"] - at_ns for key, at_ns in called})
            called = []
    return durations


def check(report, logs, expected):
    """Returns whether the rank was late for long enough to judge that."""
    late, others = stalled_call(logs, expected)
    # The wait lasts at least from the return of the first call to the late one.
    waited_ns = late["at_ns"] - min(call["returned_ns"] for call in others)
    if waited_ns < LEAST_SHARE * STALL_NS:
        print(f"the others called {waited_ns / 1e6:.0f} ms before the late rank: they were late, too", flush=True)
        return False
    durations = [durations_of(log, rank) for rank, log in enumerate(logs)]
    place, is_pair = place_of(logs[LATE], late), late["op"] in POINT_TO_POINT
    comms = {comm["id"]: comm["name"] for comm in report["communicators"]}
    problems, compared, found = [], 0, None
    for kind, number in (("collectives", "seq"), ("p2p", "ordinal")):
        for operation in report[kind]:
            is_late = comms[operation["comm"]] == late["communicator"] and operation[number] == place and is_pair == (kind == "p2p")
            is_late_one = is_late and (not is_pair or operation["src_rank"] == LATE)
            found = operation if is_late_one else found
            for part in operation["parts"]:
                compared += 1
                name = f"{comms[operation['comm']]} {kind} {operation[number]} rank {part['rank']} {part['direction']}"
                assert part["end_known"] == "measured", f"{name}: {part['end_known']}"
                took_ns = part["end_realtime_ns"] - part["begin_realtime_ns"]
                pair = (operation["src_rank"], operation["dst_rank"]) if kind == "p2p" else ()
                most_ns = MOST_NS + durations[part["rank"]].get((comms[operation["comm"]], *pair, operation[number]), 0)
                waits = is_late_one and part["rank"] != LATE and part["direction"] == "recv"
                # Sockets may buffer what others send to the late rank.
                if waits and took_ns < LEAST_SHARE * waited_ns or not waits and took_ns > most_ns and not (is_late and part["rank"] != LATE):
                    problems.append(f"{name} took {took_ns / 1e6:.0f} ms of a stall of {STALL_MS} ms{', in which it waits' if waits else ''}")
    assert found, f"{late['op']} {place} of {late['communicator']} is not in the report"
    took_ns = found["end_realtime_ns"] - found["begin_realtime_ns"]
    if not is_pair and took_ns < waited_ns:
        problems.append(f"{late['op']} {place}: {took_ns / 1e6:.1f} ms, less than the wait of {waited_ns / 1e6:.1f} ms")
    print(f"{late['op']} {place} on {late['communicator']}, late by {STALL_MS} ms on rank {LATE}: {took_ns / 1e6:.0f} ms in the report; {compared} times of "
          f"a connection, {len(problems)} wrong", flush=True)
    assert not problems, "\n".join(problems[:20])
    return True


def is_judged(arguments, library, directory, expected, communicator, at):
    job = double_job.Job(library, arguments.build, RANKS)
    report, logs, _ = one_machine.record(arguments.collwire, job, directory, [
        "--plan", os.path.join(cases.JOBS, "stall.job"), "--count", str(ITERATIONS), "--stall-rank", str(LATE), "--stall-communicator", communicator,
        "--stall-at", str(at), "--stall-ms", str(STALL_MS)], "--network-times", "--interval", "50ms")
    return check(report, logs, expected)


def run(arguments, library, directory):
    for expected, (communicator, at) in STALLS.items():
        one_machine.judge_one(lambda place, stall=(expected, communicator, at): is_judged(arguments, library, place, *stall), f"{directory}/{expected}",
                              f"{expected}: the others were late, too")


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__), run))
