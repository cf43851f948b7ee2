#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that hang where no operation is in flight, or in two communicators at once: while a communicator is made or ended, in NCCL's host code, and in two
orders. `collwire inspect` of each rank and `collwire diagnose` of all say what it waits for, and name the rank. On this machine, on the test double of CUDA.

waiting_test.py --collwire FILE --build DIRECTORY --version VERSION [--cases NAME,...] [--keep DIRECTORY]"""

import json
import os
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import double_job
import hangs

PATIENCE_S = 120
# Since then the bootstrap root answers a rank when the next one has reported, not when all have.
ROOT_ANSWERS_EACH = (2, 23)
RANK = os.path.join(one_machine.HERE, "waiting_rank.py")
NONE = -1
FIRST_VERSION = {"shrink": (2, 27), "grow": (2, 29)}


class WaitingJob:
    """`starts`: the ranks that start; the others never come. `stuck`: the rank whose kernels do not end once the file "go" is there."""

    def __init__(self, arguments, library, directory, hang, ranks, late=NONE, starts=None, stuck=NONE):
        self.directory, self.collwire, self.hang = directory, arguments.collwire, hang
        # RAS keeps NCCL's list of communicators.
        self.job = double_job.Job(library, arguments.build, ranks, environment={"NCCL_RAS_ENABLE": "1", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"})
        self.job.write_layout(directory)
        self.processes = {}
        for rank in range(ranks) if starts is None else starts:
            words = [sys.executable, RANK, "--library", library, "--rank", str(rank), "--ranks", str(ranks), "--ids", directory, "--hang", hang,
                     "--late", str(late)]
            with open(f"{directory}/output.{rank}", "w", encoding="utf-8") as output:
                environment = self.job.environment_of(rank, directory)
                if rank == stuck:
                    environment["COLLWIRE_CUDA_STUCK"] = f"{directory}/go"
                self.processes[rank] = subprocess.Popen(words, env=environment, stdout=output, stderr=subprocess.STDOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.wait()

    def go(self):
        with open(f"{self.directory}/go", "w", encoding="utf-8"):
            pass

    def wait_for(self, word, ranks):
        end = time.monotonic() + PATIENCE_S
        for rank in ranks:
            while f"at {word}\n" not in double_job.output_of(self.directory, rank):
                said = double_job.output_of(self.directory, rank)
                assert self.processes[rank].poll() is None and time.monotonic() < end, f"rank {rank} is not at {word!r}: {said}"
                time.sleep(0.05)

    def inspect(self, rank):
        path = f"{self.directory}/inspect.{rank}.json"
        done = subprocess.run([self.collwire, "inspect", str(self.processes[rank].pid), "--json"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        with open(path, "w", encoding="utf-8") as file:
            file.write(done.stdout)
        [process] = json.loads(done.stdout)["processes"]
        return process

    def inspect_until(self, holds):
        """Inspects all ranks until holds({rank: process}): a busy machine lets a thread start, or be sampled, late."""
        end = time.monotonic() + PATIENCE_S
        while True:
            processes = {rank: self.inspect(rank) for rank in self.processes}
            if holds(processes):
                return processes
            assert time.monotonic() < end, f"after {PATIENCE_S} s still: " + "; ".join(f"rank {rank}: {in_short(one)}" for rank, one in processes.items())

    def diagnose(self):
        files = [f"{self.directory}/inspect.{rank}.json" for rank in self.processes]
        print(subprocess.run([self.collwire, "diagnose", *files], capture_output=True, text=True, check=True).stdout, flush=True)
        return json.loads(subprocess.run([self.collwire, "diagnose", "--json", *files], capture_output=True, text=True, check=True).stdout)


def version_of(arguments):
    return tuple(map(int, arguments.version.split(".")))


def in_short(process):
    unready = [f"{comm['phase']}/{comm['tid']}/{comm['root']}" for comm in process["unready"]]
    calls = [f"{call['function']}<{call['inside'][0] if call['inside'] else ''}" for call in process["calls"]]
    return f"unready {unready}, calls {calls}, roots {len(process['bootstrap_roots'])}, proxies {[proxy['verdict'] for proxy in process['proxies']]}"


def unready_of(process):
    return process["unready"][0] if len(process["unready"]) == 1 else None


def waits_in_flight(process):
    """It has called, its proxy has the operation, and nothing of that moves."""
    return hangs.transfers_of(process) and all(proxy["verdict"] not in hangs.MOVING for proxy in process["proxies"])


def is_making(process, phase):
    comm = unready_of(process)
    return comm is not None and comm["phase"] == phase and comm["tid"] is not None


def expect_awaits(process, rank, awaited, phase):
    comm = unready_of(process)
    assert (comm["rank"], comm["phase"]) == (rank, phase), comm
    assert [one["rank"] for one in comm["awaits"]] == ([] if awaited is None else [awaited]), comm


def expect_call(process, functions):
    called = [call["function"] for call in process["calls"]]
    assert called and set(called) <= set(functions), process["calls"]


def only_unready(diagnosis, absent, is_awaited=True):
    [comm] = diagnosis["unready"]
    assert comm["awaited_ranks"] == ([absent] if is_awaited else []) and comm["absent_ranks"] == [absent], comm
    return comm


def init(arguments, library, directory):
    """The last of four ranks never comes. A rank waits for the next one in the ring, which the root sends to it: rank 2 for rank 3."""
    with WaitingJob(arguments, library, directory, "init", 4, starts=range(3)) as job:
        job.wait_for("init 0", range(3))
        answers_all_at_once = version_of(arguments) < ROOT_ANSWERS_EACH
        processes = job.inspect_until(lambda found: is_making(found[2], "root") and is_making(found[0], "root" if answers_all_at_once else "ring")
                                       and found[0]["bootstrap_roots"] and found[0]["bootstrap_roots"][0]["last_rank"] is not None
                                       and all(process["calls"] and unready_of(process) and unready_of(process)["root"] for process in found.values()))
        expect_awaits(processes[2], 2, None if answers_all_at_once else 3, "root")
        # Connected to rank 1, and rank 3 is its previous one.
        expect_awaits(processes[0], 0, *((None, "root") if answers_all_at_once else (3, "ring")))
        for process in processes.values():
            expect_call(process, ["ncclCommInitRank"])
        [root] = processes[0]["bootstrap_roots"]
        assert root["n_ranks"] == 4, root
        # From outside: the place that the root listens at is in the unique id.
        with open(f"{directory}/id.0", "rb") as file:
            family, port, address = struct.unpack_from("<H2s4s", file.read(), 8)
        assert family == 2
        told = f"{'.'.join(str(byte) for byte in address)}:{int.from_bytes(port, 'big')}"
        assert {unready_of(process)["root"] for process in processes.values()} == {told}, told
        comm = only_unready(job.diagnose(), 3, is_awaited=not answers_all_at_once)
        assert [(cause["kind"], cause["rank"]) for cause in comm["causes"]] == [("MISSING", 3)], comm


def second(arguments, library, directory):
    """A rank stands in the program before it comes to its second communicator."""
    with WaitingJob(arguments, library, directory, "second", 2, late=1) as job:
        job.wait_for("late", [1])
        job.wait_for("init 1", [0])
        processes = job.inspect_until(lambda found: is_making(found[0], "root"))
        is_awaited = version_of(arguments) >= ROOT_ANSWERS_EACH
        expect_awaits(processes[0], 0, 1 if is_awaited else None, "root")
        assert len(processes[0]["communicators"]) == 1 and not processes[1]["calls"], processes[1]["calls"]
        comm = only_unready(job.diagnose(), 1, is_awaited)
        [cause] = comm["causes"]
        assert (cause["kind"], cause["rank"]) == ("APPLICATION", 1) and f"pid {job.processes[1].pid}" in cause["text"], cause


def split(arguments, library, directory):
    with WaitingJob(arguments, library, directory, "split", 3, late=2) as job:
        job.wait_for("late", [2])
        job.wait_for("split", [0, 1])
        # Without that rank the others wait for its color, in an exchange of the parent.
        processes = job.inspect_until(lambda found: all(found[rank]["calls"] and found[rank]["unready"] for rank in (0, 1)))
        for rank in (0, 1):
            expect_call(processes[rank], ["ncclCommSplit", "ncclGroupEnd", None])
            [comm] = processes[rank]["unready"]
            assert comm["parent_hash"] == processes[rank]["communicators"][0]["hash"], comm
        diagnosis = job.diagnose()
        [comm] = diagnosis["unready"]
        [cause] = comm["causes"]
        assert (cause["kind"], cause["rank"]) == ("APPLICATION", 2) and f"pid {job.processes[2].pid}" in cause["text"], cause


def shrink(arguments, library, directory):
    """Three ranks leave the fourth out, and one of them does not come."""
    with WaitingJob(arguments, library, directory, "shrink", 4, late=1) as job:
        job.wait_for("left out", [3])
        job.wait_for("late", [1])
        job.wait_for("shrink", [0, 2])
        processes = job.inspect_until(lambda found: all(found[rank]["calls"] and found[rank]["unready"] for rank in (0, 2)))
        for rank in (0, 2):
            expect_call(processes[rank], ["ncclCommShrink", "ncclGroupEnd", None])
            [comm] = processes[rank]["unready"]
            assert comm["n_ranks"] == 3 and comm["parent_hash"] == processes[rank]["communicators"][0]["hash"], comm
        comm = only_unready(job.diagnose(), 1)
        [cause] = comm["causes"]
        # Which rank is left out is not read: the absent one may be either of these processes.
        assert (cause["kind"], cause["rank"]) == ("MISSING", 1), cause
        assert all(any(f"pid {job.processes[rank].pid}" in line for line in cause["evidence"]) for rank in (1, 3)), cause


def grow(arguments, library, directory):
    """Two ranks take in a third one, which never comes."""
    with WaitingJob(arguments, library, directory, "grow", 2) as job:
        job.wait_for("grow", range(2))
        processes = job.inspect_until(lambda found: all(process["calls"] and process["unready"] for process in found.values()))
        for process in processes.values():
            expect_call(process, ["ncclCommGrow", "ncclGroupEnd", None])
            [comm] = process["unready"]
            assert comm["n_ranks"] == 3 and comm["parent_hash"] == process["communicators"][0]["hash"], comm
        comm = only_unready(job.diagnose(), 2)
        assert [(cause["kind"], cause["rank"]) for cause in comm["causes"]] == [("MISSING", 2)], comm


def abort(arguments, library, directory):
    """A rank gives up a communicator, and its kernel does not end: the call does not return."""
    with WaitingJob(arguments, library, directory, "abort", 2, stuck=0) as job:
        job.wait_for("running", range(2))
        job.go()
        job.wait_for("abort", [0])
        processes = job.inspect_until(lambda found: found[0]["calls"] and found[0]["communicators"] and found[0]["communicators"][0]["aborted"])
        expect_call(processes[0], ["ncclCommAbort", None])
        [comm] = job.diagnose()["communicators"]
        cause = next(cause for cause in comm["causes"] if cause["rank"] == 0)
        assert comm["stuck"] and cause["kind"] == "ERROR" and "ncclCommAbort" in cause["text"] and f"pid {job.processes[0].pid}" in cause["text"], comm


def order(arguments, library, directory):
    with WaitingJob(arguments, library, directory, "order", 2) as job:
        job.wait_for("order", range(2))
        job.inspect_until(lambda found: all(sorted(proxy["verdict"] for proxy in process["proxies"]) == ["idle", "peers"] for process in found.values()))
        diagnosis = job.diagnose()
        [circle] = diagnosis["circles"]
        assert sorted((step["rank"], step["awaits_rank"]) for step in circle["steps"]) == [(0, 1), (1, 0)], circle
        assert len({step["communicator"] for step in circle["steps"]}) == 2 and len(circle["orders"]) == 2, circle
        assert {cause["kind"] for comm in diagnosis["communicators"] for cause in comm["causes"]} == {"DEADLOCK"}, diagnosis


def destroy(arguments, library, directory):
    """A rank ends a communicator whose last operation another rank has not called."""
    with WaitingJob(arguments, library, directory, "destroy", 2, late=1) as job:
        job.wait_for("late", [1])
        job.wait_for("destroy", [0])
        processes = job.inspect_until(lambda found: found[0]["calls"] and found[0]["communicators"][0]["destroyed"] and waits_in_flight(found[0]))
        expect_call(processes[0], ["ncclCommDestroy", None]) # in 2.24 a thread of NCCL's own is in it, too
        [call] = [call for call in processes[0]["calls"] if call["function"] == "ncclCommDestroy"]
        assert call["communicator"] == processes[0]["communicators"][0]["address"], processes[0]["calls"]
        [comm] = job.diagnose()["communicators"]
        assert comm["stuck"] and any(cause["rank"] == 1 for cause in comm["causes"]), comm


def pool(arguments, library, directory):
    """A rank finds no free operation for its proxy: the test takes them away, in the memory of its own job."""
    with WaitingJob(arguments, library, directory, "pool", 2) as job:
        job.wait_for("pool", range(2))
        job.inspect_until(lambda found: all(proxy["pool_empty"] is False for process in found.values() for proxy in process["proxies"]))
        take_pool(arguments, library, job)
        job.go()
        job.wait_for("next", range(2))
        processes = job.inspect_until(lambda found: found[0]["calls"] and found[0]["proxies"][0]["pool_empty"] and waits_in_flight(found[1]))
        expect_call(processes[0], ["ncclAllReduce"])
        [comm] = job.diagnose()["communicators"]
        assert comm["stuck"] and ("NCCL", 0) in {(cause["kind"], cause["rank"]) for cause in comm["causes"]}, comm


def take_pool(arguments, library, job):
    layout = json.loads(subprocess.run([arguments.collwire, "doctor", "--nccl", library, "--json"], capture_output=True, check=False).stdout)
    at = {name: offset["value"] for name, offset in layout["offsets"].items()}
    proxy = int(job.inspect(0)["proxies"][0]["address"], 16)
    with open(f"/proc/{job.processes[0].pid}/mem", "r+b", buffering=0) as memory:
        def read(address, form):
            memory.seek(address)
            return struct.unpack(form, memory.read(struct.calcsize(form)))[0]
        [n] = [read(proxy + at["ncclProxyState.tpLocalnRanks"], "<i")]
        assert n == 1, n
        own = read(proxy + at["ncclProxyState.proxyOps"], "<Q")
        for address in (own + at["ncclProxyOps.freeOp"], read(own + at["ncclProxyOps.pool"], "<Q") + at["ncclProxyOpsPool.freeOps"]):
            memory.seek(address)
            memory.write(struct.pack("<i", NONE))


CASES = {case.__name__: case for case in (init, second, split, shrink, grow, order, destroy, abort, pool)}


def run(arguments, library, directory):
    for name, case in CASES.items():
        if arguments.cases and name not in arguments.cases.split(","):
            continue
        if version_of(arguments) < FIRST_VERSION.get(name, ()):
            continue
        place, begin = f"{directory}/{name}", time.monotonic()
        os.mkdir(place)
        case(arguments, library, place)
        print(f"{name}: named ({time.monotonic() - begin:.0f} s)", flush=True)


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__, ("--cases", {"default": ""})), run))
