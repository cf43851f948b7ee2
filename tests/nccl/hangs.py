# SPDX-License-Identifier: Apache-2.0
"""Jobs of four ranks that hang for a known reason: how they are made to hang, and what `collwire inspect` of each rank and `collwire diagnose` of all
must report. For one machine and for the nodes of the lab."""

import contextlib
import dataclasses
import os
import signal
import time
import typing

RANKS, CULPRIT = 4, 2
NEVER_MS = 3_600_000
MOVING = ("moving", "starting")
MOST_TRIES = 50
STOP_S = 120


def transfers_of(process):
    return [transfer for proxy in process["proxies"] for operation in proxy["operations"] for transfer in operation["transfers"]]


def has_failed(process):
    """Whether NCCL reports an error."""
    return any(each["async_result"] not in ("ncclSuccess", "ncclInProgress") for each in (*process["communicators"], *process["proxies"]))


def stop(pid):
    """Stops the process, and waits until each of its threads has stopped: one that waits for a CPU does so later."""
    def states():
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/task/{task}/stat", errors="replace", encoding="utf-8") as stat:
                yield stat.read().rsplit(") ", 1)[1][0]
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + STOP_S
    while set(states()) != {"T"}:
        assert time.monotonic() < end, f"process {pid} does not stop"
        time.sleep(0.01)


def hold_up_kernel(stuck_path, look):
    """Stops the double's kernel in the middle of an operation. One that stops after its last transfer has nothing in flight, which looks as if the program
    waited: then it is tried again."""
    for _ in range(MOST_TRIES):
        with open(stuck_path, "w", encoding="utf-8"):
            pass
        process = look()
        while process and (not process["proxies"] or process["proxies"][0]["verdict"] in MOVING):
            process = look()
        if not process or transfers_of(process):
            return
        os.unlink(stuck_path)


@dataclasses.dataclass(frozen=True)
class Hang:
    name: str
    # judge(processes, diagnosis); a process that exited is None.
    judge: typing.Callable
    plan: str = "hang.job"
    job_options: tuple = ()
    # Calls that every rank makes before the hang.
    calls: int = 4
    culprit_waits: bool = False # with an operation in flight
    others_may_fail: bool = False # and exit
    # Each rank needs a node of its own.
    needs_nodes: bool = False
    # (code, rank) of the verdicts that captures allow; None: they do not show which rank.
    from_captures: tuple = ()

    def judge_captures(self, verdicts):
        """`verdicts` of `collwire diagnose` on captures."""
        found = {(verdict["code"], verdict["rank"]) for verdict in verdicts if verdict["severity"] == "failure"}
        assert found and found <= set(self.from_captures), f"{self.name}: {found}, expected {self.from_captures}"

    def hold_up(self, culprit, stuck_path, look=None):
        """Makes the culprit's process hang, unless the job or its link does. `look()`: the process in `collwire inspect`."""
        if self.name == "stopped":
            stop(culprit.pid)
        elif self.name == "kernel":
            hold_up_kernel(stuck_path, look)
        elif self.name == "dead":
            culprit.kill()
            culprit.wait()

    def is_settled(self, rank, process):
        """Whether nothing moves in the process, and ranks that wait have a transfer in flight."""
        if process is None:
            return True
        if not process["proxies"] or process["proxies"][0]["verdict"] in MOVING:
            return False
        must_wait = rank != CULPRIT or self.culprit_waits
        return not must_wait or bool(transfers_of(process)) or (self.others_may_fail and has_failed(process))


def expect_neighbour_waits(processes):
    """The rank after the culprit in the ring waits for it in every channel, and the verdict names the culprit."""
    said = 0
    for rank, process in enumerate(processes):
        if rank == CULPRIT or process is None:
            continue
        for ring in process["communicators"][0]["rings"]:
            if ring["prev"] != CULPRIT:
                continue
            in_channel = [t for t in transfers_of(process) if t["channel"] == ring["channel"]]
            if not in_channel: # the operation is too small for all channels
                continue
            waits = [t for t in in_channel if t["direction"] == "recv" and t["peer_rank"] == CULPRIT]
            assert waits and all(t["waits_for"] == "sender" for t in waits), f"rank {rank}, channel {ring['channel']}: {waits}"
            proxy = process["proxies"][0]
            assert proxy["verdict"] == "peers", proxy["verdict"]
            assert f"rank {CULPRIT}: no data arrives from it" in proxy["verdict_text"], proxy["verdict_text"]
            said += 1
    assert said, "no rank is after the culprit in a ring"


def expect_cause(diagnosis, kind, rank=CULPRIT):
    [comm] = diagnosis["communicators"]
    assert comm["stuck"], diagnosis
    causes = [(cause["kind"], cause["rank"]) for cause in comm["causes"]]
    assert causes and set(causes) == {(kind, rank)}, causes
    return comm


def expect_culprit_is(processes, verdict):
    proxy = processes[CULPRIT]["proxies"][0]
    assert proxy["verdict"] == verdict, proxy["verdict_text"]


def stopped(processes, diagnosis):
    expect_culprit_is(processes, "stopped")
    expect_neighbour_waits(processes)
    expect_cause(diagnosis, "HOST")


def kernel(processes, diagnosis):
    expect_culprit_is(processes, "kernel")
    expect_neighbour_waits(processes)
    expect_cause(diagnosis, "GPU")


def never_calls(processes, diagnosis):
    expect_culprit_is(processes, "idle")
    expect_neighbour_waits(processes)
    comm = expect_cause(diagnosis, "APPLICATION")
    assert comm["behind"] == [{"rank": CULPRIT, "operations": 1}], comm["behind"]


def other_size(_, diagnosis):
    expect_cause(diagnosis, "MISMATCH")


def dead(processes, diagnosis):
    assert processes[CULPRIT] is None
    if any(processes):
        [comm] = diagnosis["communicators"]
        assert CULPRIT in comm["missing_ranks"]
        kinds = {(cause["kind"], cause["rank"]) for cause in comm["causes"]}
        assert ("MISSING", CULPRIT) in kinds or any(kind == "ERROR" for kind, _ in kinds), kinds


def link_cut(processes, diagnosis):
    expect_neighbour_waits(processes)
    for rank, process in enumerate(processes):
        to_culprit = [t for t in transfers_of(process) if t["direction"] == "send" and t["peer_rank"] == CULPRIT]
        if any(ring["next"] == CULPRIT for ring in process["communicators"][0]["rings"]):
            assert to_culprit and all(t["waits_for"] in ("network", "credit") for t in to_culprit), f"rank {rank}: {to_culprit}"
    expect_cause(diagnosis, "NETWORK")


STALL = ("--stall-rank", str(CULPRIT), "--stall-communicator", "world", "--stall-at", "4", "--stall-ms", str(NEVER_MS))

STALLED = ("transfer_stalled", None)
NOT_CALLED = ("rank_not_called", CULPRIT)

HANGS = {hang.name: hang for hang in (
    # A rank that is stopped in the middle of an operation has called it.
    Hang("stopped", stopped, from_captures=(NOT_CALLED, STALLED)),
    Hang("kernel", kernel, culprit_waits=True, from_captures=(STALLED,)),
    Hang("never-calls", never_calls, job_options=STALL, calls=0, from_captures=(NOT_CALLED,)),
    # NCCL hangs only if the sizes differ in steps: a fourth of this one does.
    Hang("other-size", other_size, plan="hang-large.job", calls=0, job_options=("--other-size-rank", str(CULPRIT), "--other-size-at", "0"),
         from_captures=(("calls_differ", CULPRIT),)),
    # Errors within one poll have no order.
    Hang("dead", dead, others_may_fail=True, from_captures=(("rank_exited", CULPRIT), ("nccl_error", CULPRIT), NOT_CALLED, STALLED)),
    Hang("link-cut", link_cut, culprit_waits=True, needs_nodes=True, from_captures=(STALLED,)),
)}
