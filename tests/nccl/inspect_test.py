#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that hang for a known reason: `collwire inspect` of each rank and `collwire diagnose` of all name the rank and the kind. So does `collwire diagnose`
of a capture after all ranks were killed, or it says that captures do not show it. On this machine, over sockets, on the test double of CUDA.

inspect_test.py --collwire FILE --build DIRECTORY --version VERSION [--cases NAME,...] [--keep DIRECTORY]"""

import contextlib
import json
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import busy_machine
import cases
import double_job
import own_network
from hangs import CULPRIT, HANGS, NEVER_MS, RANKS, STALL, stop

PATIENCE_S = 120
# Diagnoses in a row that are right: ranks come to where they wait one after the other.
SETTLED = 3
# Captures show a wait that lasts a second or longer; they sample connections each second.
HUNG_S = 3
RING = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}
# NCCL marks the start and end of a communicator.
FIRST_WITH_MARKS = (2, 21)
# For one inspection, which reads the memory twice, 0.2 s apart, on a quiet machine.
MOST_S = 1.0


class HangingJob:
    def __init__(self, arguments, library, directory, plan, *words, environment, ranks=RANKS, ranks_per_node=1, culprit=CULPRIT):
        self.directory, self.collwire, self.ranks, self.processes = directory, arguments.collwire, ranks, []
        self.job = double_job.Job(library, arguments.build, ranks, ranks_per_node=ranks_per_node, environment={"NCCL_RAS_ENABLE": "1", **environment})
        self.job.write_layout(directory)
        self.stuck = f"{directory}/stuck"
        for rank in range(ranks):
            if rank == culprit:
                self.job.environment["COLLWIRE_CUDA_STUCK"] = self.stuck
            self.processes.append(self.job.start(rank, directory, "job", [
                "--plan", os.path.join(cases.JOBS, plan), "--count", "0", *words]))
            self.job.environment.pop("COLLWIRE_CUDA_STUCK", None)

    def __enter__(self):
        double_job.wait_until_running(self.job, self.directory, self.processes)
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()

    @property
    def culprit(self):
        return self.processes[CULPRIT]

    @property
    def pids(self):
        """Of those that have not exited."""
        return [process.pid for process in self.processes if process.poll() is None]

    def wait_for_calls(self, n):
        """Until every rank has made `n` calls."""
        def calls(rank):
            return sum(line["event"] == "call" for line in double_job.lines_so_far(f"{self.directory}/job.{rank}"))
        end = time.monotonic() + PATIENCE_S
        while not all(calls(rank) >= n for rank in range(self.ranks)):
            assert time.monotonic() < end, f"not {n} calls within {PATIENCE_S} s"
            time.sleep(0.05)

    def inspect(self, rank):
        """(the rank's process in `collwire inspect`, seconds); None: the process exited."""
        path = f"{self.directory}/inspect.{rank}.json"
        begin = time.monotonic()
        with open(path, "w", encoding="utf-8") as file:
            done = subprocess.run([self.collwire, "inspect", str(self.processes[rank].pid), "--json"], stdout=file, stderr=subprocess.PIPE, text=True,
                                  check=False)
        took_s = time.monotonic() - begin
        if self.processes[rank].poll() is not None:
            os.unlink(path)
            return None
        assert done.returncode == 0, done.stderr
        with open(path, encoding="utf-8") as file:
            [process] = json.load(file)["processes"]
        return process, took_s

    def diagnose_node(self):
        """Of one inspection of all."""
        with open(f"{self.directory}/node.json", "w", encoding="utf-8") as file:
            subprocess.run([self.collwire, "inspect", *map(str, self.pids), "--json"], stdout=file, check=True)
        done = subprocess.run([self.collwire, "diagnose", "--json", f"{self.directory}/node.json"], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["communicators"]

    def inspect_all(self):
        return [self.inspect(rank) for rank in range(self.ranks)]

    def settled(self, hang):
        """Inspects all ranks until nothing moves."""
        end = time.monotonic() + PATIENCE_S
        while True:
            looks = self.inspect_all()
            if all(hang.is_settled(rank, look and look[0]) for rank, look in enumerate(looks)):
                return looks
            verdicts = [look and [proxy["verdict"] for proxy in look[0]["proxies"]] for look in looks]
            assert time.monotonic() < end, f"still {verdicts} after {PATIENCE_S} s"

    def diagnose(self):
        files = [f"{self.directory}/inspect.{rank}.json" for rank in range(RANKS) if os.path.exists(f"{self.directory}/inspect.{rank}.json")]
        text = subprocess.run([self.collwire, "diagnose", *files], capture_output=True, text=True, check=True).stdout
        done = subprocess.run([self.collwire, "diagnose", "--json", *files], capture_output=True, text=True, check=True)
        print(text, flush=True)
        return json.loads(done.stdout)


def diagnose_capture(arguments, capture, looks):
    """Verdicts of the job's communicators."""
    hashes = {comm["hash"] for look in looks if look for comm in look[0]["communicators"]}
    print(subprocess.run([arguments.collwire, "diagnose", capture], capture_output=True, text=True, check=True).stdout, flush=True)
    done = subprocess.run([arguments.collwire, "diagnose", "--json", capture], capture_output=True, text=True, check=True)
    return [verdict for verdict in json.loads(done.stdout)["verdicts"] if verdict["communicator"] in hashes or verdict["severity"] == "note"]


def lists_communicators(arguments, library, directory):
    """Without NCCL's own list, each communicator is found in memory, also those that malloc does not give pages of their own."""
    os.mkdir(directory)
    with HangingJob(arguments, library, directory, "identities.job", environment={**RING, "NCCL_RAS_ENABLE": "0"}) as job:
        job.wait_for_calls(1)
        for rank in range(RANKS):
            created = {int(line["comm"], 16) for line in double_job.lines_so_far(f"{directory}/job.{rank}") if line["event"] == "created"}
            process, _ = job.inspect(rank)
            found = {int(comm["address"], 16) for comm in process["communicators"]}
            is_whole = process["scanned"] and not process["truncated"]
            assert is_whole and found == created and len(created) > 1, f"rank {rank}: {found} (whole: {is_whole}), created {created}"
    print(f"memory: each of the {len(created)} communicators of {RANKS} ranks found", flush=True)


def hangs_inside_a_node(arguments, library, directory):
    """No wait is visible there: the rank that never calls is named by the launches, and one that was killed by its absence."""
    def causes(comms):
        return [(cause["kind"], cause["rank"]) for comm in comms for cause in comm["causes"]]
    os.mkdir(directory)
    with HangingJob(arguments, library, directory, "hang.job", *STALL, environment=RING, ranks_per_node=RANKS) as job:
        end = time.monotonic() + PATIENCE_S
        while causes(comms := job.diagnose_node()) != [("APPLICATION", CULPRIT)]:
            assert time.monotonic() < end, comms
        assert comms[0]["behind"] == [{"rank": CULPRIT, "operations": 1}], comms
        job.culprit.kill()
        job.culprit.wait()
        comms = job.diagnose_node()
        assert causes(comms) == [("MISSING", CULPRIT)], comms
    print("inside a node: named, alive and killed", flush=True)


def hangs_on_eight_gpus(arguments, library, directory, stalled):
    """Two nodes of eight GPUs, NVLS and PXN: one rank never calls an operation of this communicator, or (None) is stopped. Whatever the other ranks wait in
    (kernels, proxies, NCCL's host code), each cause is of its process."""
    culprit, words = 11, ()
    if stalled:
        words = ("--stall-rank", str(culprit), "--stall-communicator", stalled, "--stall-at", "4", "--stall-ms", str(NEVER_MS))
    os.mkdir(directory)
    case = cases.CASES["eight-gpus"]
    with own_network.of_devices(case.nics), HangingJob(arguments, library, directory, "hang-groups.job", *words, environment=case.environment, ranks=case.ranks,
                                                       ranks_per_node=case.ranks_per_node, culprit=culprit) as job:
        job.wait_for_calls(0 if stalled else 10)
        if not stalled:
            stop(job.processes[culprit].pid)
        end, seen = time.monotonic() + PATIENCE_S, 0
        while seen < SETTLED:
            comms = job.diagnose_node()
            causes = [(comm["name"], cause) for comm in comms for cause in comm["causes"]]
            of_others = [(name, cause["kind"], cause["text"]) for name, cause in causes if cause["pid"] != job.processes[culprit].pid]
            seen = seen + 1 if causes and not of_others else 0
            assert time.monotonic() < end, of_others or comms
    print(f"eight GPUs, {stalled or 'stopped'}: named, in {len(causes)} communicator(s) as {sorted({cause['kind'] for _, cause in causes})}", flush=True)


def run(arguments, library, directory):
    if one_machine.IS_FULL and not arguments.cases and cases.CASES["eight-gpus"].runs_on(double_job.version_of(library)):
        for stalled in ("tensor", "data", "world", None):
            hangs_on_eight_gpus(arguments, library, f"{directory}/eight-gpus-{stalled}", stalled)
    if not arguments.cases:
        hangs_inside_a_node(arguments, library, f"{directory}/in-node")
        if double_job.version_of(library) >= FIRST_WITH_MARKS:
            lists_communicators(arguments, library, f"{directory}/memory")
    for protocol in ("Simple", "LL"):
        for name, hang in HANGS.items():
            if hang.needs_nodes or (arguments.cases and name not in arguments.cases.split(",")):
                continue
            place = f"{directory}/{name}-{protocol}"
            os.mkdir(place)
            begin = time.monotonic()
            # Captures do not depend on the protocol.
            has_recorder = protocol == "Simple" or one_machine.IS_FULL
            with one_machine.Recorder(arguments.collwire, f"{place}/capture", "--nccl", library) if has_recorder else contextlib.nullcontext():
                with HangingJob(arguments, library, place, hang.plan, *hang.job_options, environment={**RING, "NCCL_PROTO": protocol}) as job:
                    job.wait_for_calls(hang.calls)
                    hang.hold_up(job.culprit, job.stuck, lambda: (job.inspect(CULPRIT) or [None])[0])
                    looks = job.settled(hang)
                    hung = time.monotonic()
                    # The ranks spin on all CPUs, for which one inspection may have to wait.
                    took_s = sorted(look[1] for look in looks if look)
                    assert not took_s or busy_machine.is_within(took_s[0], MOST_S), f"{took_s} s for inspections"
                    hang.judge([look and look[0] for look in looks], job.diagnose() if any(looks) else None)
                    if has_recorder:
                        time.sleep(max(0, hung + HUNG_S - time.monotonic())) # the length of the hang, not a wait for an event
            if has_recorder:
                hang.judge_captures(diagnose_capture(arguments, f"{place}/capture", looks))
            if took_s:
                print(f"{name}, {protocol}: named; inspections took {took_s[0]:.2f} to {took_s[-1]:.2f} s ({time.monotonic() - begin:.0f} s)", flush=True)


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__, ("--cases", {"default": ""})), run))
