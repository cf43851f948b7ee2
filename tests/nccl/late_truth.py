# SPDX-License-Identifier: Apache-2.0
"""A report of recorders that began in the middle of a job, each at a moment of its own, against the logs of the test double of CUDA: what
was launched since then has one number on all ranks, and is known to the byte."""

import bisect
import collections

import identity_truth as truth

# Between the double's launch of a kernel and NCCL's of its proxies.
APART_NS = 1_000_000_000


class Ranks:
    """The collectives of each rank of each communicator, in the order of launches."""

    def __init__(self, doubles, is_local):
        self.launches = collections.defaultdict(list)  # (hash, rank) -> (launched_ns, log, parts)
        for log, kernels in enumerate(doubles):
            for kernel in sorted(kernels, key=lambda kernel: kernel["launched_ns"]):
                parts = [collections.Counter() for _ in kernel["works"]]
                for connection in kernel["connections"]:
                    if connection["direction"] == "send" and not is_local(kernel["comm_hash"], kernel["rank"], connection["peer"]):
                        parts[connection["work"]][(connection["peer"], connection["channel"])] += connection["bytes"]
                for work, of_work in zip(kernel["works"], parts):
                    if not work["function"].startswith("SendRecv"):
                        self.launches[(kernel["comm_hash"], kernel["rank"])].append((kernel["launched_ns"], log, of_work))

    def nearest(self, key, time_ns):
        """Index of the launch that is nearest in time; None if none is near."""
        launches = self.launches[key]
        at = bisect.bisect(launches, time_ns, key=lambda launch: launch[0])
        near = [index for index in (at - 1, at) if 0 <= index < len(launches)]
        best = min(near, key=lambda index: abs(launches[index][0] - time_ns), default=None)
        return None if best is None or abs(launches[best][0] - time_ns) > APART_NS else best


def sent_by_ranks(operation):
    sent = collections.defaultdict(collections.Counter)
    for part in operation["parts"]:
        if part["direction"] == "send" and part["transport"] != "local":
            sent[part["rank"]][(part["peer_rank"], part["channel"])] += part["payload_bytes"] or 0
    return sent


def offsets_of(ranks, hash_, operations, bases):
    """By how much the numbers of a communicator may differ from the places in the job: not at all where NCCL's own count gave them, else by
    one number for all, that the times allow."""
    if bases <= {"creation", "launched"}:
        return [0]
    nearest = {ranks.nearest((hash_, rank), operation["launched_realtime_ns"]) - operation["seq"]
               for operation in operations for rank in sent_by_ranks(operation)
               if ranks.nearest((hash_, rank), operation["launched_realtime_ns"]) is not None}
    return sorted(nearest)


def problems_of(ranks, hash_, operations, offset, ready_ns):
    """(operations compared, problems) with the places in the job that far from the numbers."""
    by_place = {operation["seq"] + offset: operation for operation in operations}
    compared, problems = 0, []
    for (of_hash, rank), launches in ranks.launches.items():
        if of_hash != hash_:
            continue
        for place, (launched_ns, log, parts) in enumerate(launches):
            if launched_ns < ready_ns[log] or not +parts:
                continue
            compared += 1
            operation = by_place.get(place)
            ours = +sent_by_ranks(operation)[rank] if operation else {}
            if not operation or not ours:
                problems.append(f"{hash_} rank {rank}: collective {place}, launched after the recorder was ready, is missing")
            elif ours != +parts:
                problems.append(f"{hash_} rank {rank} seq {operation['seq']}: {dict(ours)}, the double has {dict(parts)}")
            elif operation["rung"] != "exact":
                problems.append(f"{hash_} seq {operation['seq']}: {operation['rung']}, partial {operation['partial']}")
    return compared, problems


def compare(report, doubles, ready_ns, is_local):
    """`ready_ns`: since when each log's rank was recorded. Returns (operations compared, problems)."""
    ranks = Ranks(doubles, is_local)
    bases = {comm["hash"]: {rank["seq_base"] for rank in comm["ranks"] if rank["launches"]} for comm in report["communicators"]}
    of_comm = collections.defaultdict(list)
    for hash_, operation, kind in truth.operations_of(report):
        if kind == "collectives":
            of_comm[hash_].append(operation)
    compared, problems = 0, []
    for hash_ in sorted({hash_ for hash_, _ in ranks.launches}):
        results = [problems_of(ranks, hash_, of_comm[hash_], offset, ready_ns)
                   for offset in offsets_of(ranks, hash_, of_comm[hash_], bases.get(hash_, set()))]
        n, best = min(results, key=lambda result: len(result[1]), default=(0, [f"{hash_}: not in the report"]))
        print(f"{hash_}: {n} collectives of a rank, numbered by {bases.get(hash_)}, {len(best)} problems")
        compared += n
        problems += best
    return compared, problems
