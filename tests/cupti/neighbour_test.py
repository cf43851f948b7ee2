#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The guest library beside another user of CUPTI in ranks of official NCCL: each gets its own kernels, and the other never notices the guest.

neighbour_test.py --build DIRECTORY [--version VERSION] [--cases NAME,...] [--only-full] [--keep DIRECTORY]"""

import os
import shutil
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cuda_double"), os.path.join(HERE, "..", "cupti_double")]

# pylint: disable=wrong-import-position
from guest_test import RANKS, run_cases
from neighbour_job import (ARMED, DISARMED, OTHER_ACTIVITY, REFUSED, SUBSCRIBED, UNSEEN_CALLER, YIELDED, NeighbourRun, check_received,
                           neighbour_lines)


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
        run.stick(1)
        run.release()
        run.ask("start")
        run.unstick(1)
        run.more_kernels()
        run.ask("stop")
        run.arm()
        run.wait_for_state(ARMED, 2)
        run.more_kernels()
        run.end()
    return received(directory, min_profiles=1, min_traces=2)


def by_name(arguments, directory):
    """The neighbour found CUPTI with dlsym before the guest came: nothing tells whether it records."""
    with NeighbourRun(arguments, directory, "cupti_neighbour_by_name", COLLWIRE_NEIGHBOUR_EARLY="1").started() as run:
        run.ask("start")
        run.more_kernels()
        run.arm()
        run.wait_for_state(REFUSED, 1, UNSEEN_CALLER)
        run.more_kernels()
        run.ask("stop")
        run.more_kernels()
        run.end()
    return received(directory, min_profiles=1)


def by_name_later(arguments, directory):
    """The neighbour finds CUPTI with dlsym after the guest did."""
    with NeighbourRun(arguments, directory, "cupti_neighbour_by_name").started() as run:
        run.arm()
        for turn in (1, 2):
            run.wait_for_state(ARMED, turn)
            run.more_kernels()
            run.ask("start")
            run.wait_for_state(YIELDED, turn)
            run.more_kernels()
            run.ask("stop")
        run.wait_for_state(ARMED, 3)
        run.more_kernels()
        run.end()
    return received(directory, min_profiles=2, min_traces=3)


def two_copies(arguments, directory):
    """A second libcupti comes while the guest is armed with the first."""
    copy = f"{directory}/copy/libcupti.so.13"
    os.mkdir(os.path.dirname(copy))
    shutil.copy(f"{arguments.build}/tests/cupti_double/cuda13/libcupti.so.13", copy)
    with NeighbourRun(arguments, directory, "cupti_neighbour_by_name", COLLWIRE_NEIGHBOUR_CUPTI=copy).started() as run:
        run.arm()
        run.wait_for_state(ARMED)
        run.more_kernels()
        run.ask("load")
        run.wait_for_state(REFUSED, 1, UNSEEN_CALLER)
        run.ask("start")
        run.more_kernels(25) # some of them were launched before
        run.ask("stop")
        run.more_kernels()
        run.end()
        kernels = [sum(line["item"] == "kernel" and "nccl" in line["name"] for line in neighbour_lines(directory, rank)) for rank in range(RANKS)]
        assert not any(line["state"] == ARMED for rank in range(RANKS) for line in run.states(rank)[1:]), "armed again"
    assert min(kernels) >= 20, kernels
    return f"{kernels} kernels to the neighbour"


def subscribed(arguments, directory):
    """A tool that is not seen has the subscriber's slot."""
    with NeighbourRun(arguments, directory, COLLWIRE_CUPTI_OWNER="CUPTI for another").started() as run:
        run.arm()
        run.wait_for_state(YIELDED, 1, SUBSCRIBED)
        run.ask("start")
        run.more_kernels()
        run.ask("stop")
        run.wait_for_state(YIELDED, 2, SUBSCRIBED)
        run.end()
        for rank in range(RANKS):
            states = [(line["state"], line["reason"], line["owner"]) for line in run.states(rank)]
            assert all(one != other for one, other in zip(states, states[1:])), f"a state is handed over at each try: {states}"
        owners = {line["owner"] for rank in range(RANKS) for line in run.states(rank) if line["reason"] == SUBSCRIBED}
        assert owners == {"CUPTI for another"}, owners
        assert not any(line["state"] == ARMED for rank in range(RANKS) for line in run.states(rank)), "armed"
    return received(directory, min_profiles=1)


def subscriber_seen(arguments, directory):
    """The neighbour keeps the slot, as PyTorch after its first profile: the guest sees all its calls, and needs no slot."""
    with NeighbourRun(arguments, directory).started() as run:
        run.ask("subscribe")
        run.arm()
        run.wait_for_state(ARMED)
        run.more_kernels()
        run.ask("start")
        run.more_kernels()
        run.ask("stop")
        run.wait_for_state(ARMED, 2)
        run.more_kernels()
        run.ask("unsubscribe", "subscribe")
        run.wait(lambda: all(run.states(rank)[-1]["yields"] == 2 for rank in range(RANKS)), "the guest did not yield again")
        run.wait_for_state(ARMED, 3)
        run.more_kernels()
        run.end()
    return received(directory, min_profiles=1, min_traces=3)


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
    "by-name-later": by_name_later,
    "two-copies": two_copies,
    "subscribed": subscribed,
    "subscriber-seen": subscriber_seen,
    "finalized": finalized,
    "registered-once": registered_once,
    "late-flush": late_flush,
    "stray-disable": stray_disable,
}
QUICK = ("armed-first", "registered-once")


if __name__ == "__main__":
    sys.exit(run_cases(CASES, QUICK))
