#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Late attach while a job replays a CUDA graph that it captured before: each replay's bytes and function equal the log of the test double of CUDA, and
later calls have their sequence numbers. On this machine, over sockets.

late_graphs_test.py --collwire FILE --build DIRECTORY --version VERSION [--keep DIRECTORY]"""

import collections
import contextlib
import os
import re
import sys
import threading
import time

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import cases
import double_job
import identity_truth
import late_truth

RANKS = 2
PATIENCE_S = 120
FEWEST_REPLAYS = 100
LOOPS = 3
# Of 1,500. If no recorder records by then, the job stands still until one does.
HELD_AFTER_REPLAYS = 700
HANG_S = 120
TAIL_BYTES = 1 << 14
# Earlier versions have no count of collectives by communicator, and the job has too few to align ranks by.
FIRST_COUNTED = (2, 26)


def replays_so_far(directory, rank):
    path = f"{directory}/job.{rank}"
    if not os.path.exists(path):
        return 0
    with open(path, "rb") as log:
        log.seek(max(0, os.path.getsize(path) - TAIL_BYTES))
        return max(map(int, re.findall(rb'"replay":(\d+)', log.read())), default=0)


def wait_for_replays(directory, processes):
    end = time.monotonic() + PATIENCE_S
    while min(replays_so_far(directory, rank) for rank in range(RANKS)) == 0:
        assert time.monotonic() < end and all(process.poll() is None for process in processes), "no replay starts"
        time.sleep(0.02)


class Hold(threading.Thread):
    """Lets no kernel of the job end from HELD_AFTER_REPLAYS on, until the end of the block."""

    def __init__(self, directory, path):
        super().__init__()
        self._directory, self._path, self._over = directory, path, threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()
        if os.path.exists(self._path):
            print("the job stood still until the recorder recorded", flush=True)
            os.unlink(self._path)

    def run(self):
        while not self._over.wait(0.02):
            if max(replays_so_far(self._directory, rank) for rank in range(RANKS)) >= HELD_AFTER_REPLAYS:
                with open(self._path, "w", encoding="utf-8"):
                    return


def record(arguments, library, directory):
    """Returns (report, time from which each rank was recorded)."""
    stuck = f"{directory}/stuck"
    job = double_job.Job(library, arguments.build, RANKS, environment={"COLLWIRE_CUDA_STUCK": stuck, "COLLWIRE_CUDA_HANG_S": str(HANG_S)})
    job.write_layout(directory)
    processes = [job.start(rank, directory, "job", ["--plan", os.path.join(cases.JOBS, "replays.job"), "--count", str(LOOPS)])
                 for rank in range(RANKS)]
    try:
        wait_for_replays(directory, processes)
        with contextlib.ExitStack() as stack:
            with Hold(directory, stuck):
                recorder = stack.enter_context(one_machine.Recorder(arguments.collwire, f"{directory}/capture", "--nccl", library))
                ready_ns = time.time_ns()
            for process in processes:
                process.wait(timeout=job.limit_s)
        assert recorder.status == 0, recorder.said()
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for rank, process in enumerate(processes):
        assert process.returncode == 0 and "all data right" in double_job.output_of(directory, rank), double_job.output_of(directory, rank)
    report = one_machine.report_of(arguments.collwire, f"{directory}/capture", f"{directory}/report.json", one_machine.logs_of(directory, "job", RANKS))
    return report, [ready_ns] * RANKS


def replays_of(kernels, job):
    """function -> kernels of that function, for the functions that the graph replays."""
    calls = [line for line in job if line["event"] == "call" and line["graph"] is not None]
    functions = collections.defaultdict(list)
    for kernel in kernels:
        for work in kernel["works"]:
            functions[work["function"].split("_")[0]].append(kernel)
    return {line["op"]: functions["SendRecv" if line["op"] in identity_truth.POINT_TO_POINT else line["op"]] for line in calls}


def check(report, doubles, jobs, ready_ns):
    problems, replays = [], 0
    pids = {log[0]["pid"]: rank for rank, log in enumerate(jobs)}
    comms = {comm["id"]: comm for comm in report["communicators"]}
    for entry in report["unjoined"]:
        place = next(rank for rank in comms[entry["comm"]]["ranks"] if rank["rank"] == entry["rank"])
        rank = pids.get(place["pid"])
        if rank is None:
            continue
        name = f"{entry['op']} of rank {rank}"
        if not entry["captured"] or entry["rung"] != "exact":
            problems.append(f"{name}: {entry}")
        kernels = replays_of(doubles[rank], jobs[rank]).get(entry["op"], [])
        sent = [sum(connection["bytes"] for connection in kernel["connections"] if connection["direction"] == "send") for kernel in kernels]
        # Calls before and after send other amounts; replays are by far the most.
        usual = collections.Counter(sent).most_common(1)[0][0] if sent else 0
        since = sum(kernel["launched_ns"] >= ready_ns[rank] and bytes_ == usual for kernel, bytes_ in zip(kernels, sent))
        under_way = sum(kernel["launched_ns"] < ready_ns[rank] <= kernel["ended_ns"] + late_truth.APART_NS and bytes_ == usual
                        for kernel, bytes_ in zip(kernels, sent))
        if not since <= entry["launches"] <= since + under_way or (usual and entry["tx_payload_bytes"] != entry["launches"] * usual):
            problems.append(f"{name}: {entry}; the double launched {since}, {under_way} were in flight, {usual} bytes each")
        replays += entry["launches"]
    return replays, problems


def run(arguments, library, directory):
    report, ready_ns = record(arguments, library, directory)
    jobs, doubles = one_machine.logs_of(directory, "job", RANKS), one_machine.logs_of(directory, "truth", RANKS)
    is_local = identity_truth.same_node(jobs, 1)
    launched_ns = max((kernel["launched_ns"] for log in doubles for kernel in log), default=0)
    assert launched_ns > max(ready_ns), "the job was complete before the recorder was ready"
    replays, problems = check(report, doubles, jobs, ready_ns)
    identity, under_way = report["identity"], late_truth.most_under_way(doubles, ready_ns, is_local)
    # Calls after the graph.
    calls = [operation for operation in report["collectives"] if operation["rung"] == "exact" and not operation["partial"]]
    print(f"{arguments.version}: {replays} replays of a graph captured before, {len(problems)} problems; {len(calls)} exact collectives after it; "
          f"identity {identity}, up to {under_way} bytes in flight")
    made = sum(line["event"] == "call" and line["iteration"] >= 0 for line in jobs[0])
    if double_job.version_of(library) >= FIRST_COUNTED and not made <= len(calls) == len(report["collectives"]):
        problems.append(f"{len(calls)} of {len(report['collectives'])} collectives after the graph are exact, the job made {made} calls")
    if identity["inferred"] + identity["process"] > under_way or replays < FEWEST_REPLAYS:
        problems.append(f"identity {identity} of {replays} replays")
    assert not problems, "\n".join(problems[:20])


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__), run))
