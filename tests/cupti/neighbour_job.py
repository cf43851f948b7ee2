# SPDX-License-Identifier: Apache-2.0
"""A job of official NCCL whose ranks have the guest library and a neighbour, another user of CUPTI: steers it, and compares what both received."""

import contextlib
import json
import os

from double_job import lines_of, lines_so_far, signals_held
from cupti_double_test import events, wait_for
from guest_test import ARMED, CLOCK_ERROR_NS, RANKS, GuestJob, check_times, items_of, of_item

DISARMED, YIELDED, REFUSED, FAILED, EXITING, NO_CUDA, RUNNING = 2, 3, 4, 5, 6, 7, 8
SUBSCRIBED, OTHER_ACTIVITY, UNSEEN_CALLER = 3, 4, 5
STILL_RUNS, HAS_NOT_BEGUN = 1, 4
CONCURRENT_KERNEL = 10
# So long a call of the neighbour waits for the guest's thread. Then it goes on, and the guest steps aside when it is back.
WAIT_OF_NEIGHBOUR_NS = 1_000_000_000
WAITING_CALLS = ("clock", "register", "enable", "disable", "period", "subscribe", "finalize")
TICKS_PER_NS = 3


class NeighbourRun:
    """`neighbour`: the library's name, or None. The ranks run a training until end()."""

    def __init__(self, arguments, directory, neighbour="cupti_neighbour", major=13, **settings):
        self.directory = directory
        self.control, self.arm_file, self.stuck_file = f"{directory}/control", f"{directory}/arm", f"{directory}/stuck"
        self.commands, self.processes = 0, []
        settings = {"COLLWIRE_RECEIVER_ARM_FILE": self.arm_file, "COLLWIRE_NEIGHBOUR_CONTROL": self.control, **settings}
        self.job = GuestJob(arguments, directory, major, **settings)
        self.preloaded = f"{arguments.build}/tests/cupti/lib{neighbour}.so" if neighbour else ""

    @contextlib.contextmanager
    def started(self):
        self.job.write_layout(self.directory)
        original = self.job.environment_of

        def environment_of(rank, directory):
            environment = original(rank, directory)
            environment["COLLWIRE_CUDA_STUCK"] = f"{self.stuck_file}.{rank}"
            environment["COLLWIRE_NEIGHBOUR_OUT"] = f"{directory}/neighbour.{rank}"
            if self.preloaded:
                environment["LD_PRELOAD"] += f":{self.preloaded}"
            return environment

        self.job.environment_of = environment_of
        try:
            for rank in range(RANKS):
                with signals_held() as mask:
                    self.processes.append(self.job.start(rank, self.directory, "job", ["--plan", "training", "--seconds", "600"], mask))
            self.more_kernels()
            yield self
        finally:
            for process in self.processes:
                process.kill()
                process.wait()

    def wait(self, condition, what):
        wait_for(condition, what, self.processes)

    def more_kernels(self, more=20):
        """Waits until every rank has completed `more` kernels of NCCL."""
        def counts():
            paths = [f"{self.directory}/truth.{rank}" for rank in range(RANKS)]
            return [sum(1 for _ in open(path, "rb")) if os.path.exists(path) else 0 for path in paths] # pylint: disable=consider-using-with
        before = counts()
        self.wait(lambda: all(now >= then + more for now, then in zip(counts(), before)), "no more kernels")

    def states(self, rank):
        return self.items_so_far(rank, "state")

    def items_so_far(self, rank, item):
        """Its complete lines of that kind; the last line of the file is mostly in parts."""
        names = [name for name in os.listdir(self.directory) if name.startswith(f"items.{rank}.")]
        if not names:
            return []
        with open(os.path.join(self.directory, names[0]), encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.startswith(f'{{"item":"{item}",') and line.endswith("}\n")]

    def wait_for_state(self, state, times=1, reason=None):
        def seen(rank):
            return sum(line["state"] == state and reason in (None, line["reason"]) for line in self.states(rank))
        self.wait(lambda: all(seen(rank) >= times for rank in range(RANKS)), f"state {state} not {times} times")

    def arm(self):
        with open(self.arm_file, "w", encoding="utf-8"):
            pass

    def release(self):
        os.unlink(self.arm_file)

    def stick(self, rank):
        """The rank's kernels stand still, from when this returns, and those of its peers run on."""
        with open(f"{self.stuck_file}.{rank}", "w", encoding="utf-8"):
            pass
        self.wait(lambda: os.path.exists(f"{self.stuck_file}.{rank}.holds"), "the device holds no work")

    def wait_until_one_hangs(self, stuck):
        """Until a kernel of NCCL has started that cannot end before unstick(). Each kernel is one of all ranks, in the same order."""
        def counts(rank):
            kernels = [line for line in lines_so_far(f"{self.directory}/cupti.{rank}") if line["event"] in ("started", "kernel") and line["nccl"]]
            ended = {line["id"] for line in kernels if line["event"] == "kernel"}
            return len(ended | {line["id"] for line in kernels}), len(ended)
        self.wait(lambda: max(counts(rank)[0] for rank in range(RANKS)) > counts(stuck)[1], "no kernel hangs")

    def unstick(self, rank):
        os.unlink(f"{self.stuck_file}.{rank}")
        os.unlink(f"{self.stuck_file}.{rank}.holds")

    def wait_until_delayed(self, function):
        def is_delayed(rank):
            return any(line["event"] == "delayed" and line["function"] == function for line in lines_so_far(f"{self.directory}/cupti.{rank}"))
        self.wait(lambda: all(is_delayed(rank) for rank in range(RANKS)), f"{function} is not called")

    def tell(self, *commands):
        """The commands at once, one after the other."""
        with open(self.control, "a", encoding="utf-8") as file:
            file.write("".join(f"{command}\n" for command in commands))
        self.commands += len(commands)

    def wait_for_call(self, function, times=1):
        """Until the neighbour in each rank has made so many calls of it. The function "done": of commands."""
        def made(rank):
            return sum(line.get("function") == function for line in neighbour_lines(self.directory, rank))
        self.wait(lambda: all(made(rank) >= times for rank in range(RANKS)), f"{function} not {times} times")

    def ask(self, *commands):
        """The commands at once, one after the other. Returns when all are done."""
        self.tell(*commands)
        self.wait_for_call("done", self.commands)

    def end(self):
        self.processes[-1].terminate()
        for process in self.processes:
            assert process.wait(timeout=self.job.limit_s) == 0, process.args


def neighbour_lines(directory, rank):
    names = [name for name in os.listdir(directory) if name.startswith(f"neighbour.{rank}.")]
    if not names:
        return []
    with open(os.path.join(directory, names[0]), encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("}\n")]


def profiles_of(lines):
    """The neighbour's (begin of enabling, end of enabling, begin of disabling, end of disabling)."""
    calls = [line for line in lines if line["item"] == "call" and line["argument"] == CONCURRENT_KERNEL or line.get("function") == "finalize"]
    found, enabled = [], None
    for call in calls:
        if call["function"] == "enable" and enabled is None:
            enabled = call
        elif call["function"] in ("disable", "finalize") and enabled is not None:
            found.append((enabled["begin_ns"], enabled["end_ns"], call["begin_ns"], call["end_ns"]))
            enabled = None
    assert enabled is None, "the neighbour's profile did not end"
    return found


def traces_of(states):
    """The guest's (end of arming, begin of disarming)."""
    found, armed = [], None
    for line in states:
        if line["state"] == ARMED:
            armed = line["end_ns"]
        elif armed is not None and line["state"] in (DISARMED, YIELDED, FAILED, EXITING):
            found.append((armed, line["begin_ns"] or line["at_ns"]))
            armed = None
    return found


def contested_times(lines, states):
    """From a call of the neighbour that went on without the guest until the guest had stepped aside: either may get a kernel."""
    unserved = [line for line in lines if line.get("function") in WAITING_CALLS and line["end_ns"] - line["begin_ns"] >= WAIT_OF_NEIGHBOUR_NS]
    yielded = [line["at_ns"] for line in states if line["state"] == YIELDED]
    return [(call["begin_ns"], min((at for at in yielded if at > call["begin_ns"]), default=call["end_ns"])) for call in unserved]


def check_received(directory, rank, min_profiles=0, min_traces=0):
    """Each kernel of NCCL has one receiver: the neighbour those of its profiles, the guest all others while armed. Returns the counts."""
    log, items, lines = lines_of(f"{directory}/cupti.{rank}"), items_of(directory, rank), neighbour_lines(directory, rank)
    check_times(items)
    summary, = events(log, "summary")
    assert summary["misuses"] == 0, events(log, "misuse")
    assert all(what.startswith("records of kind") for what in summary["lacking"]), summary
    states = of_item(items, "state")
    profiles, traces = profiles_of(lines), traces_of(states)
    assert len(profiles) >= min_profiles and len(traces) >= min_traces, f"{len(profiles)} profiles, {len(traces)} traces"
    kernels = {(kernel["correlation"], kernel["graph_node"]): kernel for kernel in events(log, "kernel") if kernel["nccl"]}
    theirs = [line for line in lines if line["item"] == "kernel" and "nccl" in line["name"]]
    # Kernels from before CUPTI was loaded come without times, to whoever is first.
    theirs = {(line["correlation"], line["node"]): line for line in theirs if kernels[(line["correlation"], line["node"])]["record"] != "without_times"}
    ours = {(line["correlation"], line["node"]): line for line in of_item(items, "kernel")}
    assert len(ours) == len(of_item(items, "kernel")), "a kernel was handed over twice"
    both = set(ours) & set(theirs)
    assert not both, f"{len(both)} kernels have two receivers: {sorted(both)[:3]}"
    of_nobody, contested = [], contested_times(lines, states)

    def is_contested(decided):
        return any(begin <= decided <= end for begin, end in contested)

    for key, kernel in kernels.items():
        decided = kernel["decided_ns"] or 0
        if is_contested(decided):
            pass
        elif any(enabled < decided < disabled for _, enabled, disabled, _ in profiles):
            assert key in theirs, f"rank {rank}: the neighbour lacks {kernel}; the guest {'has' if key in ours else 'lacks'} it"
        elif any(armed < decided < off for armed, off in traces):
            assert key in ours, f"rank {rank}: the guest lacks {kernel}; the neighbour {'has' if key in theirs else 'lacks'} it"
        if kernel["record"] == "recorded" and key not in ours and key not in theirs:
            of_nobody.append(kernel)
    assert not of_nobody, f"{len(of_nobody)} kernels have no receiver: {of_nobody[0]}"
    for key in theirs:
        decided = kernels[key]["decided_ns"] or 0
        assert is_contested(decided) or any(begin < decided < end for begin, _, _, end in profiles), \
            f"the neighbour got a kernel from outside its profiles: {kernels[key]}"
    error_ns = CLOCK_ERROR_NS + max((line["clock_error_ns"] for line in states), default=0)
    for key, line in ours.items():
        kernel = kernels[key]
        if line["flags"] & HAS_NOT_BEGUN:
            assert line["start_ns"] == line["end_ns"] == 0 and kernel["record"] == "delivered_running", f"{line} {kernel}"
            continue
        assert abs(line["start_ns"] - kernel["start_ns"]) < error_ns, f"{line} {kernel}"
        assert line["flags"] & STILL_RUNS or abs(line["end_ns"] - kernel["end_ns"]) < error_ns, f"{line} {kernel}"
    unfinished = sum(kernel["record"] == "delivered_running" for kernel in kernels.values())
    return states, (f"rank {rank}: {len(theirs)} kernels to the neighbour in {len(profiles)} profiles, {len(ours)} to the guest in {len(traces)} traces, "
                    f"{unfinished} unfinished, times within {error_ns / 1000:.0f} us")
