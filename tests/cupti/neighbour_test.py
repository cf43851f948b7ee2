#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The guest library beside another user of CUPTI in ranks of official NCCL: each gets its own kernels, and the other never notices the guest.

neighbour_test.py --build DIRECTORY [--version VERSION] [--cases NAME,...] [--only-full] [--keep DIRECTORY]"""

import argparse
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cuda_double"), os.path.join(HERE, "..", "cupti_double")]

# pylint: disable=wrong-import-position
from double_job import fetched
from guest_test import RANKS, SKIPPED
from neighbour_job import (ARMED, DISARMED, OTHER_ACTIVITY, REFUSED, SUBSCRIBED, UNSEEN_CALLER, YIELDED, NeighbourRun, check_received)


def received(directory, **least):
    return "; ".join(check_received(directory, rank, **least)[1] for rank in range(RANKS))


def armed_first(arguments, directory, **how):
    """A trace; a profile; the guest comes back; a second profile; the guest comes back and the job ends."""
    with NeighbourRun(arguments, directory, **how).started() as run:
        run.arm()
        for turn in (1, 2):
            run.wait_for_state(ARMED, turn)
            run.more_kernels()
            run.ask("start")
            run.wait_for_state(YIELDED, turn)
            run.more_kernels()
            run.ask("stop")
            run.more_kernels()
        run.wait_for_state(ARMED, 3)
        run.more_kernels()
        run.end()
    return received(directory, min_profiles=2, min_traces=3)


def profiler_first(arguments, directory):
    with NeighbourRun(arguments, directory).started() as run:
        run.ask("start")
        run.more_kernels()
        run.arm()
        run.wait_for_state(YIELDED, 1, OTHER_ACTIVITY)
        run.more_kernels()
        run.ask("stop")
        run.wait_for_state(ARMED)
        run.more_kernels()
        run.release()
        run.wait_for_state(DISARMED)
        run.end()
    return received(directory, min_profiles=1, min_traces=1)


def two_in_a_row(arguments, directory):
    with NeighbourRun(arguments, directory).started() as run:
        run.arm()
        run.wait_for_state(ARMED)
        run.more_kernels()
        run.ask("start")
        run.more_kernels()
        run.ask("stop", "start")
        run.more_kernels()
        run.ask("stop")
        run.wait_for_state(ARMED, 2)
        run.more_kernels()
        run.end()
    return received(directory, min_profiles=2, min_traces=2)


def while_draining(arguments, directory):
    """The recorder stops while kernels hang: the guest drains. A profile begins then."""
    with NeighbourRun(arguments, directory).started() as run:
        run.arm()
        run.wait_for_state(ARMED)
        run.more_kernels()
        run.stick()
        run.release()
        run.ask("start")
        run.unstick()
        run.more_kernels()
        run.ask("stop")
        run.arm()
        run.wait_for_state(ARMED, 2)
        run.more_kernels()
        run.end()
    return received(directory, min_profiles=1, min_traces=2)


def by_name(arguments, directory):
    """The neighbour found CUPTI with dlsym: nothing tells whether it records."""
    with NeighbourRun(arguments, directory, "cupti_neighbour_by_name").started() as run:
        run.ask("start")
        run.more_kernels()
        run.arm()
        run.wait_for_state(REFUSED, 1, UNSEEN_CALLER)
        run.more_kernels()
        run.ask("stop")
        run.more_kernels()
        run.end()
    return received(directory, min_profiles=1)


def subscribed(arguments, directory):
    """Another has the subscriber's slot: before the guest is asked, and while it is armed."""
    with NeighbourRun(arguments, directory).started() as run:
        run.ask("subscribe")
        run.arm()
        run.wait_for_state(YIELDED, 1, SUBSCRIBED)
        run.ask("unsubscribe")
        run.wait_for_state(ARMED)
        run.more_kernels()
        run.ask("subscribe")
        run.wait_for_state(YIELDED, 2)
        run.ask("start")
        run.more_kernels()
        run.ask("stop")
        run.wait_for_state(YIELDED, 4, SUBSCRIBED)
        run.ask("unsubscribe")
        run.wait_for_state(ARMED, 2)
        run.more_kernels()
        run.end()
        owners = {line["owner"] for rank in range(RANKS) for line in run.states(rank) if line["reason"] == SUBSCRIBED}
    assert owners == {"CUPTI"}, owners
    return received(directory, min_profiles=1, min_traces=2)


def finalized(arguments, directory):
    """cuptiFinalize after a profile, and while the guest is armed."""
    with NeighbourRun(arguments, directory).started() as run:
        run.arm()
        run.wait_for_state(ARMED)
        run.more_kernels()
        run.ask("start")
        run.more_kernels()
        run.ask("stop", "finalize")
        run.wait_for_state(ARMED, 2)
        run.more_kernels()
        run.ask("finalize")
        run.more_kernels()
        run.wait_for_state(ARMED, 3)
        run.more_kernels()
        run.end()
    return received(directory, min_profiles=1, min_traces=3)


def registered_once(arguments, directory):
    """The neighbour registers its callbacks once, before the guest comes, and later enables only."""
    with NeighbourRun(arguments, directory).started() as run:
        run.ask("register")
        run.arm()
        for turn in (1, 2):
            run.wait_for_state(ARMED, turn)
            run.more_kernels()
            run.ask("enable")
            run.more_kernels()
            run.ask("disable", "flush")
        run.wait_for_state(ARMED, 3)
        run.more_kernels()
        run.release()
        run.wait_for_state(DISARMED)
        run.ask("enable")
        run.more_kernels()
        run.ask("disable", "flush")
        run.end()
    return received(directory, min_profiles=3, min_traces=3)


def late_flush(arguments, directory):
    """The neighbour fetches its records long after it disabled its kinds."""
    with NeighbourRun(arguments, directory).started() as run:
        run.ask("start")
        run.more_kernels()
        run.arm()
        run.ask("disable")
        time.sleep(4) # the tool works on its trace
        run.ask("flush")
        run.wait_for_state(ARMED)
        run.more_kernels()
        run.end()
    return received(directory, min_profiles=1, min_traces=1)


def stray_disable(arguments, directory):
    """The neighbour disables what it never enabled: kinds are the process's."""
    with NeighbourRun(arguments, directory).started() as run:
        run.arm()
        run.wait_for_state(ARMED)
        run.more_kernels()
        run.ask("stray")
        run.wait_for_state(YIELDED)
        run.wait_for_state(ARMED, 2)
        run.more_kernels()
        run.end()
    return received(directory, min_traces=2)


CASES = {
    "armed-first": armed_first,
    "armed-first-now": lambda arguments, directory: armed_first(arguments, directory, neighbour="cupti_neighbour_now"),
    "armed-first-ticks": lambda arguments, directory: armed_first(arguments, directory, COLLWIRE_NEIGHBOUR_CLOCK="ticks"),
    "armed-first-then": lambda arguments, directory: armed_first(arguments, directory, COLLWIRE_CUPTI_BUFFERS_TO="then"),
    "profiler-first": profiler_first,
    "two-in-a-row": two_in_a_row,
    "while-draining": while_draining,
    "by-name": by_name,
    "subscribed": subscribed,
    "finalized": finalized,
    "registered-once": registered_once,
    "late-flush": late_flush,
    "stray-disable": stray_disable,
}
QUICK = ("armed-first", "registered-once")


def run_cases(cases, quick):
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--nccl")
    parser.add_argument("--version", default="2.28.9")
    parser.add_argument("--cases", default="")
    parser.add_argument("--only-full", action="store_true", help="the cases that are not quick, with COLLWIRE_FULL=1 only")
    parser.add_argument("--keep", help="folder for the logs")
    arguments = parser.parse_args()
    arguments.build = os.path.realpath(arguments.build)
    if arguments.only_full and os.environ.get("COLLWIRE_FULL") != "1":
        print("skip: runs with tools/test --full")
        return SKIPPED
    names = arguments.cases.split(",") if arguments.cases else [name for name in cases if (name in quick) != arguments.only_full]
    try:
        arguments.nccl = os.path.realpath(arguments.nccl or fetched(arguments.version))
    except RuntimeError as problem:
        print(f"skip: {problem}")
        return SKIPPED
    failed = []
    for name in names:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as temporary:
            directory = temporary
            if arguments.keep:
                directory = os.path.join(arguments.keep, name)
                os.makedirs(directory)
            try:
                said = cases[name](arguments, directory)
            except AssertionError as problem:
                failed.append(name)
                said = f"FAILED: {problem}"
            print(f"{name}: {said} ({time.monotonic() - begin:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run_cases(CASES, QUICK))
