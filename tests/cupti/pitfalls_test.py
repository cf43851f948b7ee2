#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is known to go wrong with CUPTI, and how a process can end: the guest library in ranks of official NCCL on the doubles (README.md lists the cases).

pitfalls_test.py --build DIRECTORY [--version VERSION] [--cases NAME,...] [--only-full] [--keep DIRECTORY]"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cuda_double"), os.path.join(HERE, "..", "cupti_double")]

# pylint: disable=wrong-import-position
from double_job import lines_of
from cupti_double_test import events
from guest_test import ARMED, RANKS, compare, items_of, of_item, run_cases
from neighbour_job import (DISARMED, EXITING, FAILED, NO_CUDA, REFUSED, RUNNING, STILL_RUNS, NeighbourRun, check_received, neighbour_lines)

NO_CUPTI, OF_CUPTI = 1, 7
SLOW_MS = 2500
# Function, code, number of the call, and what the guest does: it stops for good, tries again, or refuses.
ERRORS = [
    ("cuptiActivityEnable", 999, 1, FAILED), ("cuptiActivityRegisterCallbacks", 999, 1, FAILED),
    ("cuptiActivityFlushPeriod", 7, 1, FAILED), ("cuptiGetTimestamp", 7, 1, FAILED),
    ("cuptiActivityFlushAll", 7, 1, FAILED), ("cuptiUnsubscribe", 7, 1, FAILED),
    ("cuptiActivityGetNextRecord", 21, 5, FAILED), ("cuptiActivityDisable", 7, 1, FAILED),
    ("cuptiSubscribe_v2", 15, 1, NO_CUDA), ("cuptiActivityGetNumDroppedRecords", 7, 1, ARMED),
    ("cuptiGetVersion", 7, 1, REFUSED), ("cuptiActivityFlushAll", 999, 2, FAILED),
    ("cuptiFinalize", 7, 1, FAILED), ("cuptiActivityRegisterCallbacks", 999, 2, FAILED),
]


def alone(arguments, directory, **settings):
    return NeighbourRun(arguments, directory, None, **settings)


def empty_session(arguments, directory):
    """CUPTI reports success and records nothing: the counts say so, and the next trace is whole."""
    with alone(arguments, directory, COLLWIRE_CUPTI_EMPTY="1").started() as run:
        run.arm()
        run.wait_for_state(ARMED)
        run.more_kernels()
        run.wait_for_state(RUNNING)
        counted = [next(line for line in run.states(rank) if line["state"] == RUNNING)["kernels"] for rank in range(RANKS)]
        assert counted == [0] * RANKS, counted
        run.release()
        run.wait_for_state(DISARMED)
        run.arm()
        run.wait_for_state(ARMED, 2)
        run.more_kernels()
        run.end()
    return "; ".join(f"rank {rank}: 0, then {len(compare(directory, rank)[2])} kernels" for rank in range(RANKS))


def running_at_the_end(arguments, directory):
    """Kernels hang when the recorder stops: a forced flush, once and after the end, and then they are marked."""
    with alone(arguments, directory).started() as run:
        run.arm()
        run.wait_for_state(ARMED)
        run.more_kernels()
        run.stick(1)
        run.wait_until_one_hangs(1)
        run.release()
        run.wait_for_state(DISARMED)
        run.unstick(1)
        run.more_kernels()
        run.arm()
        run.wait_for_state(ARMED, 2)
        run.more_kernels()
        run.end()
    said, n_hung = [], 0
    for rank in range(RANKS):
        log = lines_of(f"{directory}/cupti.{rank}")
        calls = events(log, "call")
        forced = [call for call in calls if call["function"] == "cuptiActivityFlushAll" and call["arguments"]["flags"] == 1]
        disabled = [call for call in calls if call["function"] == "cuptiActivityDisable"]
        assert len(disabled) == 1, disabled
        # A rank may have been between two kernels; the other forced flush is that of its exit.
        hung = [kernel for kernel in events(log, "kernel") if kernel["launched_ns"] < disabled[0]["at_ns"] and kernel["record"] != "disabled" and
                kernel["end_ns"] > disabled[0]["at_ns"] + 1e9]
        assert len(forced) == (2 if hung else 1), f"{len(forced)} forced flushes, {len(hung)} kernels hung"
        assert not hung or forced[0]["begin_ns"] - disabled[0]["at_ns"] >= 1e9, "forced at once"
        n_hung += len(hung)
        _, text = check_received(directory, rank, min_traces=2)
        marked = sum(line["flags"] & STILL_RUNS != 0 for line in of_item(items_of(directory, rank), "kernel"))
        assert marked <= sum(kernel["record"] == "delivered_running" for kernel in events(log, "kernel")), marked
        said.append(f"{text}, {marked} handed over as running")
    assert n_hung and any(", 0 handed over as running" not in text for text in said), "no kernel ran: the test shows nothing"
    return "; ".join(said)


def slow_arming(arguments, directory):
    """The first enabling takes seconds: the job goes on, and the state has the time. A profile that begins meanwhile is whole."""
    may_end = f"{directory}/may-end"
    settings = {"COLLWIRE_CUPTI_DELAY": f"cuptiActivityEnable:{SLOW_MS}:1", "COLLWIRE_CUPTI_DELAY_UNTIL": may_end}
    with NeighbourRun(arguments, directory, **settings).started() as run:
        run.arm()
        run.wait_until_delayed("cuptiActivityEnable")
        run.more_kernels(5)
        assert not any(line["state"] == ARMED for rank in range(RANKS) for line in run.states(rank)), "armed before the enabling ended"
        run.tell("start")
        run.wait_for_call("register") # it waits no longer for the guest
        with open(may_end, "w", encoding="utf-8"):
            pass
        run.wait_for_call("done", run.commands)
        run.more_kernels()
        run.ask("stop")
        run.more_kernels()
        run.wait_for_state(ARMED, 2)
        run.more_kernels()
        run.end()
    said = []
    for rank in range(RANKS):
        states, text = check_received(directory, rank, min_profiles=1, min_traces=2)
        first = next(line for line in states if line["state"] == ARMED)
        assert first["end_ns"] - first["begin_ns"] >= SLOW_MS * 1e6, first
        said.append(text)
    return "; ".join(said)


def error_of(arguments, directory, errors):
    """An error of one function on each rank. The job goes on, and the guest says once what happened."""
    run = alone(arguments, directory)
    original = run.job.environment_of
    run.job.environment_of = lambda rank, place: {**original(rank, place), "COLLWIRE_CUPTI_FAIL": ":".join(str(part) for part in errors[rank][:3])}
    with run.started():
        run.arm()
        run.wait(lambda: all(run.states(rank) for rank in range(RANKS)), "no answer")
        run.more_kernels()
        run.release()
        run.wait(lambda: all(run.states(rank)[-1]["state"] in (FAILED, DISARMED, REFUSED, NO_CUDA) for rank in range(RANKS)), "not at its end")
        run.arm()
        run.more_kernels()
        run.wait(lambda: all(any(line["state"] == errors[rank][3] for line in run.states(rank)) for rank in range(RANKS)), "no answer")
        run.more_kernels(40)
        run.end()
    said = []
    for rank, (function, code, _, expected) in enumerate(errors):
        states = of_item(items_of(directory, rank), "state")
        log = lines_of(f"{directory}/cupti.{rank}")
        summary, = events(log, "summary")
        assert summary["misuses"] == 0, events(log, "misuse")
        answer = next(line for line in states if line["state"] == expected)
        if expected == FAILED:
            assert sum(line["state"] == FAILED for line in states) == 1 and states[-1] == answer, states
            wanted = 7 if function == "cuptiGetTimestamp" else code
            assert (answer["reason"], answer["result"]) == (OF_CUPTI, wanted), answer
            later = [call for call in events(log, "call") if call["begin_ns"] > answer["at_ns"]]
            assert not later, f"the guest calls CUPTI after it failed: {later[0]}"
            assert states[-1]["memory_bytes"] == 0 or summary["buffers_held"], states[-1]
        elif expected == NO_CUDA:
            assert answer["result"] == code, answer
        elif expected == REFUSED:
            assert answer["reason"] == NO_CUPTI, answer
        else:
            compare(directory, rank)
        said.append(f"{function}: {'off for good' if expected == FAILED else f'state {expected}'}")
    return "; ".join(said)


def copies(arguments, directory):
    """The process forks, a child ends by exit(), another one executes a program: the guest serves the process alone."""
    with NeighbourRun(arguments, directory, "cupti_neighbour_by_name").started() as run:
        run.arm()
        run.wait_for_state(ARMED)
        for _ in range(3):
            run.more_kernels(5)
            run.ask("fork", "exec")
        run.more_kernels()
        run.end()
    for rank in range(RANKS):
        children = [line for line in neighbour_lines(directory, rank) if line.get("function") in ("fork", "exec")]
        assert len(children) == 6 and all(line["result"] == 0 for line in children), children
        pids = {line["pid"] for line in lines_of(f"{directory}/cupti.{rank}") if line["event"] == "call"}
        assert len(pids) == 1, f"CUPTI is called in a child: {pids}"
    return "; ".join(f"rank {rank}: {len(parents_only(directory, rank)[2])} kernels, 6 children" for rank in range(RANKS))


def parents_only(directory, rank):
    """A child that ends by exit() has the double's log, too."""
    path = f"{directory}/cupti.{rank}"
    with open(path, encoding="utf-8") as file:
        lines = file.readlines()
    pid = next(line["pid"] for line in lines_of(path) if line["event"] == "call")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line for line in lines if f'"pid":{pid},' in line)
    return compare(directory, rank)


def ends(arguments, directory, how, settings):
    """Every rank ends by itself, while it is armed."""
    with NeighbourRun(arguments, directory, "cupti_neighbour_by_name", **settings).started() as run:
        run.arm()
        run.wait_for_state(ARMED)
        run.more_kernels()
        if settings: # in the middle of a flush
            run.wait_until_delayed("cuptiActivityFlushAll")
        if how == "kill":
            for process in run.processes:
                process.kill()
        else:
            with open(run.control, "a", encoding="utf-8") as file:
                file.write(f"{how}\n")
        codes = [process.wait(timeout=run.job.limit_s) for process in run.processes]
    assert codes == [-9 if how == "kill" else 0] * RANKS, codes
    said = []
    for rank in range(RANKS):
        states = run.states(rank)
        if how == "exit" and not settings:
            assert states[-1]["state"] == EXITING, states
        said.append(f"rank {rank}: exit status {codes[rank]}, {states[-1]['kernels']} kernels")
    return "; ".join(said)


IN_A_FLUSH = {"COLLWIRE_CUPTI_DELAY": ",".join(f"cuptiActivityFlushAll:{SLOW_MS}:{nth}" for nth in range(1, 4))}
CASES = {
    "empty-session": empty_session,
    "running-at-the-end": running_at_the_end,
    "slow-arming": slow_arming,
    "copies": copies,
    "exit": lambda arguments, directory: ends(arguments, directory, "exit", {}),
    "exit-in-a-flush": lambda arguments, directory: ends(arguments, directory, "exit", IN_A_FLUSH),
    "_exit-in-a-flush": lambda arguments, directory: ends(arguments, directory, "_exit", IN_A_FLUSH),
    "kill-in-a-flush": lambda arguments, directory: ends(arguments, directory, "kill", IN_A_FLUSH),
}
for first in range(0, len(ERRORS), RANKS):
    CASES[f"errors-{first // RANKS + 1}"] = lambda arguments, directory, first=first: error_of(arguments, directory, ERRORS[first:first + RANKS])
QUICK = ("running-at-the-end", "slow-arming", "errors-1")


if __name__ == "__main__":
    sys.exit(run_cases(CASES, QUICK))
