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


def compare(report, doubles, ready_ns, is_local):
    """`ready_ns`: since when each log's rank was recorded. Returns (operations compared, problems)."""
    ranks = Ranks(doubles, is_local)
    problems, found, offsets = [], collections.defaultdict(dict), collections.defaultdict(set)
    bases = {comm["hash"]: {rank["seq_base"] for rank in comm["ranks"] if rank["launches"]} for comm in report["communicators"]}
    for hash_, operation, kind in truth.operations_of(report):
        if kind == "p2p":
            continue
        sent = collections.defaultdict(collections.Counter)
        for part in operation["parts"]:
            if part["direction"] == "send" and part["transport"] != "local":
                sent[part["rank"]][(part["peer_rank"], part["channel"])] += part["payload_bytes"] or 0
        for rank, parts in sent.items():
            index = ranks.nearest((hash_, rank), operation["launched_realtime_ns"])
            if index is None:
                problems.append(f"{hash_} rank {rank} seq {operation['seq']}: the double launched nothing then")
                continue
            offsets[hash_].add(index - operation["seq"])
            found[(hash_, rank)][index] = (operation, parts)
    for hash_, of_comm in offsets.items():
        print(f"{hash_}: seq known by {bases[hash_]}, starts at {of_comm}")
        if len(of_comm) != 1 or (bases[hash_] == {"launched"} and of_comm != {0}):
            problems.append(f"{hash_}: one collective has several numbers: {of_comm}, by {bases[hash_]}")
    compared = 0
    for (hash_, rank), launches in ranks.launches.items():
        for index, (launched_ns, log, parts) in enumerate(launches):
            operation, ours = found[(hash_, rank)].get(index, (None, None))
            if launched_ns < ready_ns[log] or not +parts:
                continue
            compared += 1
            if operation is None:
                problems.append(f"{hash_} rank {rank}: the {index}-th collective, launched after the recorder was ready, is missing")
            elif +ours != +parts:
                problems.append(f"{hash_} rank {rank} seq {operation['seq']}: {dict(ours)}, the double has {dict(parts)}")
            elif operation["rung"] != "exact":
                problems.append(f"{hash_} seq {operation['seq']}: {operation['rung']}")
    return compared, problems
