#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The guest library as a plugin of NCCL's profiler, in ranks of official NCCL on the double of CUDA: what it hands over, against the double's own log of
kernels. Armed from the start, armed and disarmed in the middle of a job, never, and where another tool has CUPTI.

profiler_test.py --build DIRECTORY [--version VERSION[,VERSION...]] [--cases NAME,...] [--only-full] [--keep DIRECTORY]"""

import collections
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cuda_double"), os.path.join(HERE, "..", "cupti_double")]

# pylint: disable=wrong-import-position
from double_job import lines_of, realtime_ahead_ns, run_job, version_of
from guest_test import ARMED, DISARMED, EXITING, RANKS, GuestJob, items_of, of_item, run_cases
from neighbour_job import RUNNING, SUBSCRIBED, YIELDED, NeighbourRun, neighbour_lines

STILL_RUNS, ODD_TIME, SEEN, NO_TASK, OUT_OF_STEP = 1, 2, 4, 8, 16
PLAN, PAIRS = os.path.join(HERE, "profiler.job"), os.path.join(HERE, "pairs.job")
FROM_PROFILER = 1
# The double's times of a channel lie within its times of the kernel; both are of one clock. What the conversion may add is in the states.
SEEN_LATE_NS = 50_000_000
NO_BOUND_ERROR_NS = 5_000_000
GPU_TIMES, API_EVENTS, FROM_START_ALONE = (2, 27), (2, 28), (2, 31)
REFUSED, LATE = 4, 9
VERSIONS = "2.26.5,2.27.7,2.28.9,2.29.7,2.30.7,2.31.2,2.32.3"
FUNCTIONS = {0: "Broadcast", 1: "Reduce", 2: "AllGather", 3: "ReduceScatter", 4: "AllReduce", 6: "Send", 7: "Recv"}
INTERFACES = {(2, 26): 3, (2, 27): 4, (2, 28): 5, (2, 29): 6, (2, 30): 6, (2, 31): 7, (2, 32): 7}


class PluginJob(GuestJob):
    """NCCL loads the guest, CUDA's driver does not."""

    def environment_of(self, rank, directory):
        environment = super().environment_of(rank, directory)
        environment["NCCL_PROFILER_PLUGIN"] = environment["CUDA_INJECTION64_PATH"]
        if not self.settings.get("CUDA_INJECTION64_PATH"):
            environment.pop("CUDA_INJECTION64_PATH")
        return environment


class PluginRun(NeighbourRun):
    def __init__(self, arguments, directory, neighbour=None, is_injected=False, plan="training", **settings):
        super().__init__(arguments, directory, neighbour, **settings)
        job = PluginJob(arguments, directory, **self.job.settings)
        if is_injected:
            job.settings["CUDA_INJECTION64_PATH"] = f"{job.root}/libcollwire_cupti.so"
        self.job = job
        start = job.start
        job.start = lambda rank, place, program, words, mask: start(rank, place, program, [plan if word == "training" else word for word in words], mask)

    def profiler(self, rank):
        return self.items_so_far(rank, "profiler")

    def wait_for_profiler(self, state, times=1):
        self.wait(lambda: all(sum(line["state"] == state for line in self.profiler(rank)) >= times for rank in range(RANKS)),
                  f"profiler: state {state} not {times} times")


def kernels_of(directory, rank):
    """The double's kernels of NCCL's communicators, with times in CLOCK_MONOTONIC, by communicator, in order."""
    to_monotonic = -realtime_ahead_ns()
    kernels = collections.defaultdict(list)
    for line in lines_of(f"{directory}/truth.{rank}"):
        if line["comm_hash"] is None or line["aborted"]:
            continue
        line["begun_ns"] += to_monotonic
        line["ended_ns"] += to_monotonic
        line["launched_ns"] += to_monotonic
        kernels[int(line["comm_hash"], 16)].append(line)
    for ours in kernels.values():
        ours.sort(key=lambda line: line["begun_ns"])
    return kernels


def plans_of(items):
    """By communicator: the records of each execution of a kernel plan, in order."""
    plans = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in of_item(items, "channel"):
        assert line["source"] == FROM_PROFILER, line
        plans[line["comm_hash"]][line["plan"]].append(line)
    return {comm: [records for _, records in sorted(by_plan.items())] for comm, by_plan in plans.items()}


def check_plan(plan, kernel, rank, error_ns, is_seen):
    """One kernel: its channels, its function, and its times."""
    channels = {line["channel"] for line in plan}
    mask = int(kernel["channel_mask"], 16)
    assert sum(1 << channel for channel in channels) == mask, f"channels {sorted(channels)} of {kernel}"
    functions = {FUNCTIONS.get(line["func"], "other") for line in plan}
    in_log = {work["function"] for work in kernel["works"]}
    if in_log <= {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce"}:
        assert functions == in_log, f"{functions}: {in_log}"
    assert {line["rank"] for line in plan} == {rank}, plan
    for line in plan:
        assert not line["flags"] & (ODD_TIME | NO_TASK | OUT_OF_STEP), line
        assert bool(line["flags"] & SEEN) == is_seen, line
        late_ns = SEEN_LATE_NS if is_seen else error_ns
        assert kernel["begun_ns"] - error_ns <= line["start_ns"], f"starts {kernel['begun_ns'] - line['start_ns']} ns before its kernel, error {error_ns}"
        if not line["flags"] & STILL_RUNS:
            assert line["start_ns"] <= line["end_ns"], line
            assert line["end_ns"] <= kernel["ended_ns"] + late_ns, f"ends {line['end_ns'] - kernel['ended_ns']} ns after its kernel, error {error_ns}"
        assert line["launch_ns"] <= line["start_ns"] + error_ns, line


def aligned(plans, kernels, rank, error_ns, is_seen):
    """The plans of a trace with the kernels that they are, which follow each other."""
    if not plans:
        return []
    start_ns = min(line["start_ns"] for line in plans[0])
    nearest = min(range(len(kernels)), key=lambda i: abs(kernels[i]["begun_ns"] - start_ns))
    problem = None
    for first in sorted(range(max(0, nearest - 20), nearest + 20), key=lambda i: abs(i - nearest)):
        pairs = list(zip(plans, kernels[first:]))
        try:
            assert len(pairs) == len(plans), "plans after the last kernel"
            for plan, kernel in pairs:
                check_plan(plan, kernel, rank, error_ns, is_seen)
            return pairs
        except AssertionError as found:
            problem = problem or found
    raise problem


def compare(arguments, directory, rank, is_whole=True):
    """Returns the states, and how many kernels were compared. `is_whole`: armed from the start, so each kernel has its records."""
    items = items_of(directory, rank)
    states = of_item(items, "profiler")
    version = version_of(arguments.nccl)[:2]
    assert all(line["api_version"] == INTERFACES[version] for line in states), f"{states[0]}: interface {INTERFACES[version]}"
    is_seen = version < GPU_TIMES
    # The double's times are CLOCK_REALTIME, converted by this test at one moment; it has no slew here.
    known_ns = max(line["clock_error_ns"] for line in states)
    error_ns = (known_ns or NO_BOUND_ERROR_NS) + 100_000
    kernels, plans = kernels_of(directory, rank), plans_of(items)
    armed = [line for line in states if line["state"] == ARMED]
    n = 0
    for comm, ours in plans.items():
        theirs = kernels[comm]
        if is_whole:
            assert len(ours) == len(theirs), f"communicator {comm:#x}: {len(ours)} plans, {len(theirs)} kernels"
            pairs = list(zip(ours, theirs))
        else:
            # In the middle of a job: within a trace no kernel is left out.
            pairs = []
            for trace in range(1, len(armed) + 1):
                of_trace = [plan for plan in ours if sum(line["begin_ns"] <= plan[0]["posted_ns"] for line in armed) == trace]
                pairs += aligned(of_trace, theirs, rank, error_ns, is_seen)
            assert len({kernel["begun_ns"] for _, kernel in pairs}) == len(pairs), "two plans have one kernel"
        for plan, kernel in pairs:
            check_plan(plan, kernel, rank, error_ns, is_seen)
            n += 1
        for before, after in zip(ours, ours[1:]):
            assert before[0]["posted_ns"] <= after[0]["posted_ns"], "plans out of order"
    if is_whole:
        missing = {comm: len(theirs) for comm, theirs in kernels.items() if comm not in plans}
        assert not missing, f"communicators without records: {missing}"
    last = states[-1]
    assert last["dropped"] == 0 and last["orphans"] == 0 and last["clock_breaks"] == 0, last
    assert last["channels"] == len(of_item(items, "channel")), last
    if version >= API_EVENTS:
        assert known_ns, "the error of the clock is not known"
    return states, n, known_ns


def from_the_start(arguments, directory):
    """Every kernel of NCCL, from the first one on."""
    run_job(PluginJob(arguments, directory, COLLWIRE_RECEIVER_ARMED="1"), directory, "job", ["--plan", PLAN, "--count", "4"])
    said = []
    for rank in range(RANKS):
        states, n, error_ns = compare(arguments, directory, rank)
        assert [states[0]["state"], states[-1]["state"]] == [ARMED, EXITING], states
        said.append(f"rank {rank}: {n} kernels, {states[-1]['channels']} records, clock within {error_ns} ns")
    return "; ".join(said)


def out_of_step(arguments, directory):
    """Sends to itself and replays: records whose times are another operation's are marked, all others are right."""
    run_job(PluginJob(arguments, directory, COLLWIRE_RECEIVER_ARMED="1"), directory, "job", ["--plan", "everything", "--count", "1"])
    said = []
    for rank in range(RANKS):
        items = items_of(directory, rank)
        states = of_item(items, "profiler")
        kernels, n, marked = kernels_of(directory, rank), 0, 0
        error_ns = (max(line["clock_error_ns"] for line in states) or NO_BOUND_ERROR_NS) + 100_000
        for comm, plans in plans_of(items).items():
            # A kernel of sends to itself alone posts nothing, and has no records.
            theirs = [kernel for kernel in kernels[comm] if kernel["connections"]]
            assert len(plans) == len(theirs), f"communicator {comm:#x}: {len(plans)} plans, {len(theirs)} kernels"
            for plan, kernel in zip(plans, theirs):
                if any(line["flags"] & OUT_OF_STEP for line in plan):
                    marked += 1
                else:
                    check_plan(plan, kernel, rank, error_ns, version_of(arguments.nccl)[:2] < GPU_TIMES)
                    n += 1
        assert marked and n, f"{marked} marked, {n} not"
        said.append(f"rank {rank}: {n} kernels, {marked} marked")
    return "; ".join(said)


def never(arguments, directory):
    """Without a recorder NCCL calls no function of the plugin but for the start and end of communicators."""
    run_job(PluginJob(arguments, directory), directory, "job", ["--plan", "everything", "--count", "1"])
    for rank in range(RANKS):
        states = of_item(items_of(directory, rank), "profiler")
        assert [line["state"] for line in states] == [EXITING] and states[0]["calls"] == 0, states
        assert states[0]["memory_bytes"] == 0, states
    return "0 calls"


def too_late(arguments, directory):
    """A version that is traced from its first communicator alone: the guest says so, and NCCL calls nothing."""
    with PluginRun(arguments, directory).started() as run:
        run.arm()
        run.wait_for_profiler(REFUSED)
        run.more_kernels()
        run.release()
        run.more_kernels()
        run.end()
    for rank in range(RANKS):
        states = of_item(items_of(directory, rank), "profiler")
        assert states[0]["reason"] == LATE and states[-1]["calls"] == 0, states
    return "refused, 0 calls"


def switched(arguments, directory):
    """Armed and disarmed twice in the middle of a job. Between and after it NCCL calls nothing."""
    if version_of(arguments.nccl)[:2] >= FROM_START_ALONE:
        return too_late(arguments, directory)
    with PluginRun(arguments, directory).started() as run:
        for times in (1, 2):
            run.arm()
            run.wait_for_profiler(ARMED, times)
            run.more_kernels()
            run.wait_for_profiler(RUNNING, times)
            run.release()
            run.wait_for_profiler(DISARMED, times)
            run.more_kernels()
        run.end()
    said = []
    for rank in range(RANKS):
        states, n, error_ns = compare(arguments, directory, rank, is_whole=False)
        last, exiting = [line for line in states if line["state"] in (DISARMED, EXITING)][-2:]
        assert exiting["calls"] == last["calls"], f"{exiting['calls'] - last['calls']} calls after the trace"
        assert last["memory_bytes"] == 0, last
        said.append(f"rank {rank}: {n} kernels, clock within {error_ns} ns")
    return "; ".join(said)


def beside_cupti(arguments, directory):
    """A tool that is not seen has CUPTI's slot: the guest says so, and NCCL's profiler takes its place by itself."""
    with PluginRun(arguments, directory, "cupti_neighbour", is_injected=True, COLLWIRE_CUPTI_OWNER="CUPTI for another").started() as run:
        run.arm()
        run.wait_for_state(YIELDED, 1, SUBSCRIBED)
        run.wait_for_profiler(ARMED)
        run.ask("start")
        run.more_kernels(25)  # one of them may have been launched before
        run.ask("stop")
        run.release()
        run.wait_for_profiler(DISARMED)
        run.end()
    said = []
    for rank in range(RANKS):
        states, n, _ = compare(arguments, directory, rank, is_whole=False)
        armed = [line for line in states if line["state"] == ARMED]
        assert len(armed) == 1 and armed[0]["cupti_state"] == YIELDED, armed
        assert not of_item(items_of(directory, rank), "kernel"), "a kernel has two sources"
        neighbour = sum(line["item"] == "kernel" and "nccl" in line["name"] for line in neighbour_lines(directory, rank))
        assert neighbour >= 20, neighbour
        said.append(f"rank {rank}: {n} kernels, {neighbour} to the neighbour")
    return "; ".join(said)


def free_cupti(arguments, directory):
    """CUPTI's slot is free: CUPTI is armed, and NCCL's mask stays 0."""
    with PluginRun(arguments, directory, is_injected=True).started() as run:
        run.arm()
        run.wait_for_state(ARMED)
        run.more_kernels()
        run.end()
    for rank in range(RANKS):
        items = items_of(directory, rank)
        states = of_item(items, "profiler")
        assert of_item(items, "kernel") and not of_item(items, "channel"), "not CUPTI"
        assert [line["state"] for line in states] == [EXITING] and states[0]["calls"] == 0, states
    return "CUPTI alone"


def flipped(arguments, directory):
    """The wish flips under a load of sends and receives: every communicator ends, and what was handed over is right."""
    if version_of(arguments.nccl)[:2] >= FROM_START_ALONE:
        return too_late(arguments, directory)
    with PluginRun(arguments, directory, plan=PAIRS).started() as run:
        for flip in range(60):
            (run.arm if flip % 2 == 0 else run.release)()
            time.sleep(0.05 + flip % 7 * 0.05) # the load: flips at all distances
        run.wait(lambda: all(run.profiler(rank) and run.profiler(rank)[-1]["state"] == DISARMED for rank in range(RANKS)), "not disarmed at last")
        run.more_kernels()
        run.end()
    said = []
    for rank in range(RANKS):
        states, n, _ = compare(arguments, directory, rank, is_whole=False)
        armed = sum(line["state"] == ARMED for line in states)
        assert armed >= 3, states
        said.append(f"rank {rank}: armed {armed} times, {n} kernels")
    return "; ".join(said)


def ends(arguments, directory, how):
    """The process forks, and ends while it is armed."""
    with PluginRun(arguments, directory, "cupti_neighbour_by_name").started() as run:
        run.arm()
        run.wait_for_profiler(ARMED)
        run.more_kernels()
        run.ask("fork", "exec")
        run.more_kernels()
        if how == "kill":
            for process in run.processes:
                process.kill()
        else:
            with open(run.control, "a", encoding="utf-8") as file:
                file.write(f"{how}\n")
        codes = [process.wait(timeout=run.job.limit_s) for process in run.processes]
        assert codes == [-9 if how == "kill" else 0] * RANKS, codes
        last = [run.profiler(rank)[-1] for rank in range(RANKS)]
        for line in last:
            assert how != "exit" or line["state"] == EXITING, line
    return "; ".join(f"exit status {code}, {line['channels']} records" for code, line in zip(codes, last))


CASES = {
    "start": from_the_start,
    "switched": switched,
    "never": never,
    "out-of-step": out_of_step,
    "beside-cupti": beside_cupti,
    "free-cupti": free_cupti,
    "flipped": flipped,
    "exit": lambda arguments, directory: ends(arguments, directory, "exit"),
    "_exit": lambda arguments, directory: ends(arguments, directory, "_exit"),
    "kill": lambda arguments, directory: ends(arguments, directory, "kill"),
}
QUICK = ("start", "switched", "beside-cupti")


if __name__ == "__main__":
    sys.exit(run_cases(CASES, QUICK))
