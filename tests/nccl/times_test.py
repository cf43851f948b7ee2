#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job of official NCCL on this machine, over sockets, on the test double of CUDA, recorded with --network-times. Start and completion of operations
agree with the job's log (calls, waits) and the double's (kernels), and sampled times with measured ones.

times_test.py --collwire FILE --build DIRECTORY --version VERSION [--ranks N] [--keep DIRECTORY]"""

import bisect
import collections
import statistics
import sys

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import double_job
import identity_truth

# The first version with times of transfers.
FIRST_MEASURED = (2, 23)
# An NCCL thread may wait for a CPU. The median completion is within MEDIAN_NS of the kernel's end, or within the median kernel where those take longer.
LATEST_NS, MEDIAN_NS = 5_000_000_000, 50_000_000


class Truth:
    def __init__(self, directory, ranks, logs):
        self.kernels = collections.defaultdict(list)  # (hash, rank) -> (name, kernel) of each collective
        for rank in range(ranks):
            for kernel in identity_truth.lines_of(f"{directory}/truth.{rank}"):
                for work in kernel["works"]:
                    name = work["function"].split("_")[0]
                    if name != "SendRecv":
                        self.kernels[(kernel["comm_hash"], kernel["rank"])].append((name, kernel))
        self.pair_calls = collections.defaultdict(list)  # (pid, comm rank, op, peer) -> start of each call
        self.waits = {}  # pid -> times when all streams were done
        for log in logs:
            pid = log[0]["pid"]
            self.waits[pid] = [line["at_realtime_ns"] for line in log if line["event"] == "waited"]
            for line in log:
                if line["event"] == "call" and line["op"] in identity_truth.POINT_TO_POINT:
                    self.pair_calls[(pid, line["rank"], line["op"], line["peer"])].append(line["at_realtime_ns"])

    def median_kernel_ns(self):
        return statistics.median(kernel["ended_ns"] - kernel["begun_ns"] for of_rank in self.kernels.values() for _, kernel in of_rank)

    def waited_ns(self, pid, called_ns):
        return self.waits[pid][bisect.bisect(self.waits[pid], called_ns)]


class Check:
    def __init__(self):
        self.figures, self.wrong = 0, []

    def __call__(self, earlier_ns, later_ns, what):
        self.figures += 1
        if earlier_ns > later_ns:
            self.wrong.append(f"{what}: {(earlier_ns - later_ns) / 1e6:.3f} ms too late")


def check_part(check, part, name):
    """Sampled bounds agree with measured times. Returns whether there is an upper bound."""
    assert part["end_known"] == "measured", f"{name}: {part['end_known']}"
    check(part["begin_realtime_ns"], part["end_realtime_ns"], f"{name}: start and completion")
    if part["end_after_realtime_ns"]:
        check(part["end_after_realtime_ns"], part["end_realtime_ns"], f"{name}: sampled before completion")
    if part["end_before_realtime_ns"]:
        check(part["end_realtime_ns"], part["end_before_realtime_ns"], f"{name}: completed before a sample")
    return bool(part["end_before_realtime_ns"])


def check_report(report, truth):
    check, apart_ns, sampled, parts = Check(), [], 0, 0
    communicators = {comm["id"]: comm for comm in report["communicators"]}
    pids = {comm["id"]: {rank["rank"]: rank["pid"] for rank in comm["ranks"]} for comm in report["communicators"]}
    for operation in report["collectives"]:
        comm = communicators[operation["comm"]]
        for part in operation["parts"]:
            name = f"{comm['name']} {operation['op']} {operation['seq']} rank {part['rank']} {part['direction']} channel {part['channel']}"
            kernel_name, kernel = truth.kernels[(comm["hash"], part["rank"])][operation["seq"]]
            assert kernel_name == operation["op"], f"{name}: the double has a {kernel_name}"
            sampled += check_part(check, part, name)
            parts += 1
            check(kernel["begun_ns"], part["end_realtime_ns"], f"{name}: its kernel's start")
            check(part["begin_realtime_ns"], kernel["ended_ns"], f"{name}: its kernel's end")
            check(part["end_realtime_ns"], kernel["ended_ns"] + LATEST_NS, f"{name}: long after its kernel's end")
            apart_ns.append(abs(part["end_realtime_ns"] - kernel["ended_ns"]))
        ends = [part["end_realtime_ns"] for part in operation["parts"]]
        if ends:
            assert operation["end_known"] == "measured" and operation["end_realtime_ns"] == max(ends), operation
    calls = collections.Counter()
    for operation in report["p2p"]:
        for rank, op, peer in ((operation["src_rank"], "Send", operation["dst_rank"]), (operation["dst_rank"], "Recv", operation["src_rank"])):
            pid = pids[operation["comm"]][rank]
            key = (pid, rank, op, peer)
            name = f"{communicators[operation['comm']]['name']} {op} {operation['ordinal']} of rank {rank} with {peer}"
            # Communicators with the same ranks are distinguished by the order of calls.
            called_ns = truth.pair_calls[key][calls[key]]
            calls[key] += 1
            for part in operation["parts"]:
                if part["rank"] != rank:
                    continue
                sampled += check_part(check, part, name)
                parts += 1
                check(called_ns, part["begin_realtime_ns"], f"{name}: its call")
                check(part["end_realtime_ns"], truth.waited_ns(pid, called_ns) + LATEST_NS, f"{name}: long after the end of its stream")
    return check, sorted(apart_ns), sampled, parts


def check_job(arguments, library, directory):
    """Runs and judges a job. Returns whether there are enough samples."""
    ranks = arguments.ranks
    job = double_job.Job(library, arguments.build, ranks)
    report, logs, said = one_machine.record(arguments.collwire, job, directory, ["--plan", "training", "--seconds", "3"],
                                            "--network-times", "--interval", "50ms")
    operations = len(report["collectives"]) + len(report["p2p"])
    assert operations >= 20, f"{operations} operations"
    if double_job.version_of(library)[:2] < FIRST_MEASURED:
        known = collections.Counter(operation["end_known"] for kind in ("collectives", "p2p") for operation in report[kind])
        print(f"{operations} operations: {dict(known)}")
        assert "measured" not in known and "--network-times adds nothing" in said
        return True
    truth = Truth(directory, ranks, logs)
    check, apart_ns, sampled, parts = check_report(report, truth)
    median_ns, most_ns = apart_ns[len(apart_ns) // 2], max(MEDIAN_NS, truth.median_kernel_ns())
    print(f"{operations} operations, {parts} parts, all measured, {sampled} also sampled; {check.figures} comparisons, {len(check.wrong)} wrong; "
          f"from the kernel's end: median {median_ns / 1e3:.0f} us, most {apart_ns[-1] / 1e6:.0f} ms")
    assert not check.wrong, "\n".join(check.wrong[:20])
    assert median_ns <= most_ns, f"the median completion is {median_ns / 1e6:.1f} ms from the end of its kernel, of at most {most_ns / 1e6:.1f}"
    # The recorder may wait for a CPU longer than an operation takes.
    return sampled >= parts // 2


def run(arguments, library, directory):
    one_machine.judge_one(lambda place: check_job(arguments, library, place), directory, "too few samples in each")


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__, ("--ranks", {"type": int, "default": 4})), run))
