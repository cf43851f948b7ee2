# SPDX-License-Identifier: Apache-2.0
"""A report of late recorders, which started at different times, against the logs of the test double of CUDA: an operation that was launched after
them has one sequence number on all ranks, and its bytes are exact."""

import bisect
import collections

# Between the double's launch of a kernel and NCCL's of its proxies.
APART_NS = 1_000_000_000


class Launches:
    """The collectives of one rank of one communicator, by launch."""

    def __init__(self, log):
        self.log = log
        self.launched = []  # (launched_ns, parts)

    def nearest(self, time_ns):
        """Index of the launch that is nearest in time; None if it is more than APART_NS away."""
        at = bisect.bisect(self.launched, time_ns, key=lambda launch: launch[0])
        near = [index for index in (at - 1, at) if 0 <= index < len(self.launched)]
        best = min(near, key=lambda index: abs(self.launched[index][0] - time_ns), default=None)
        return None if best is None or abs(self.launched[best][0] - time_ns) > APART_NS else best


def launches_of(doubles, is_local):
    """(hash, rank, log) -> Launches of each such communicator of the process. Before 2.24 split communicators can share a hash."""
    found = collections.defaultdict(dict)
    for log, kernels in enumerate(doubles):
        for kernel in sorted(kernels, key=lambda kernel: kernel["launched_ns"]):
            parts = [collections.Counter() for _ in kernel["works"]]
            for connection in kernel["connections"]:
                if connection["direction"] == "send" and not is_local(log, kernel, connection["peer"]):
                    parts[connection["work"]][(connection["peer"], connection["channel"])] += connection["bytes"]
            for work, of_work in zip(kernel["works"], parts):
                if not work["function"].startswith("SendRecv"):
                    of_comm = found[(kernel["comm_hash"], kernel["rank"], log)].setdefault(kernel["comm"], Launches(log))
                    of_comm.launched.append((kernel["launched_ns"], of_work))
    return {key: list(of_key.values()) for key, of_key in found.items()}


def most_under_way(doubles, ready_ns, is_local):
    """The most bytes that can have been in flight when the recorders started: for each connection, the maximum that was launched and not complete
    before its recorder was ready."""
    of_connection = collections.defaultdict(list)  # (launched_ns, ended_ns, bytes)
    for log, kernels in enumerate(doubles):
        for kernel in kernels:
            if kernel["launched_ns"] >= ready_ns[log]:
                continue
            sent = collections.Counter()
            for connection in kernel["connections"]:
                if connection["direction"] == "send" and not is_local(log, kernel, connection["peer"]):
                    is_pair = kernel["works"][connection["work"]]["function"].startswith("SendRecv")
                    sent[(log, kernel["comm"], connection["peer"], connection["channel"], is_pair)] += connection["bytes"]
            for key, bytes_ in sent.items():
                of_connection[key].append((kernel["launched_ns"], kernel["ended_ns"], bytes_))
    return sum(max(sum(bytes_ for began, ended, bytes_ in kernels if began <= launched <= ended) for launched, _, _ in kernels)
               for kernels in of_connection.values())


class Sends:
    """Sends of one rank of one communicator to a peer, by launch."""

    def __init__(self, log):
        self.log = log
        self.launched = []  # (launched_ns, bytes by channel)

    def since(self, ready_ns):
        return [sent for launched_ns, sent in self.launched if launched_ns >= ready_ns[self.log]]


def sends_of(doubles, is_local):
    """(hash, rank, peer) -> Sends of each such communicator. Before 2.24 several can share a hash."""
    found = collections.defaultdict(dict)
    for log, kernels in enumerate(doubles):
        for kernel in sorted(kernels, key=lambda kernel: kernel["launched_ns"]):
            of_work = collections.defaultdict(collections.Counter)
            for connection in kernel["connections"]:
                is_pair = kernel["works"][connection["work"]]["function"].startswith("SendRecv")
                if is_pair and connection["direction"] == "send" and connection["bytes"] and not is_local(log, kernel, connection["peer"]):
                    of_work[(connection["work"], connection["peer"])][connection["channel"]] += connection["bytes"]
            for (_, peer), sent in sorted(of_work.items()):
                of_comm = found[(kernel["comm_hash"], kernel["rank"], peer)].setdefault((log, kernel["comm"]), Sends(log))
                of_comm.launched.append((kernel["launched_ns"], sent))
    return {key: list(of_key.values()) for key, of_key in found.items()}


def reported_sends(report, rung):
    """(hash, rank, peer) -> communicator -> (launched_ns, bytes by channel), by ordinal, of sends with this certainty."""
    of_comm = {comm["id"]: comm["hash"] for comm in report["communicators"]}
    reported = collections.defaultdict(lambda: collections.defaultdict(list))
    for operation in sorted(report["p2p"], key=lambda operation: operation["ordinal"]):
        sent = collections.Counter()
        for part in operation["parts"]:
            if part["direction"] == "send" and part["transport"] != "local" and part["rung"] == rung:
                sent[part["channel"]] += part["payload_bytes"] or 0
        if sent := +sent:
            key = (of_comm[operation["comm"]], operation["src_rank"], operation["dst_rank"])
            reported[key][operation["comm"]].append((operation["launched_realtime_ns"], sent))
    return reported


def compare_sends(report, doubles, ready_ns, is_local, rung="exact"):
    """Sends that were launched after the recorder of their rank was ready: the last ones of the report equal the double's, one by one. Communicators
    that share a hash are matched by their sends. Returns (sends compared, problems)."""
    reported, compared, problems = reported_sends(report, rung), 0, []
    for key, communicators in sends_of(doubles, is_local).items():
        left = dict(reported.get(key, {}))
        for sends in sorted(communicators, key=lambda sends: -len(sends.since(ready_ns))):
            expected = sends.since(ready_ns)
            if not expected:
                continue
            compared += len(expected)
            # A reported send from before the recorder was ready does not stand for a later one.
            ours = {comm: [sent for launched_ns, sent in of_comm if launched_ns >= ready_ns[sends.log]][-len(expected):]
                    for comm, of_comm in left.items()}
            fitting = next((comm for comm, of_comm in ours.items() if of_comm == expected), None)
            if fitting is None:
                problems.append(f"sends {key}: the double has {len(expected)}, which equal none of {len(ours)} communicators: {expected[:3]}..., "
                                f"reported {[of_comm[:3] for of_comm in ours.values()]}")
            else:
                del left[fitting]
    return compared, problems


def sent_by_ranks(operation):
    sent = collections.defaultdict(collections.Counter)
    for part in operation["parts"]:
        if part["direction"] == "send" and part["transport"] != "local":
            sent[part["rank"]][(part["peer_rank"], part["channel"])] += part["payload_bytes"] or 0
    return sent


def offsets_of(launches, rank, operations, bases):
    """Possible differences between the sequence numbers of a communicator and the places in the job: 0 if they are NCCL's own count, else those that
    the launch times allow."""
    if bases <= {"creation", "launched"}:
        return {0}
    near = ((launches.nearest(operation["launched_realtime_ns"]), operation["seq"]) for operation in operations
            if rank in sent_by_ranks(operation))
    return {place - seq for place, seq in near if place is not None}


def problems_of(name, launches, rank, operations, offset, ready_ns, rung):
    """(operations compared, problems), if places in the job are the sequence numbers plus `offset`."""
    by_place = {operation["seq"] + offset: operation for operation in operations}
    compared, problems = 0, []
    for place, (launched_ns, parts) in enumerate(launches.launched):
        if launched_ns < ready_ns[launches.log] or not +parts:
            continue
        compared += 1
        operation = by_place.get(place)
        ours = +sent_by_ranks(operation)[rank] if operation else {}
        if not operation or not ours:
            problems.append(f"{name} rank {rank}: collective {place}, launched after the recorder was ready, is missing")
        elif ours != +parts:
            problems.append(f"{name} rank {rank} seq {operation['seq']}: {dict(ours)}, the double has {dict(parts)}")
        elif operation["rung"] != rung:
            problems.append(f"{name} seq {operation['seq']}: {operation['rung']}, partial {operation['partial']}")
    return compared, problems


def best_for(comm, logs, operations, truth_of, taken, ready_ns, rung):
    """[(compared, problems, launches)] of each rank against the double's log of the communicator. Of communicators that share a hash in a process, the
    best match counts, with one offset for all ranks."""
    bases = {rank["seq_base"] for rank in comm["ranks"] if not rank["missing"] and rank["launches"]}
    choices = {rank["rank"]: [launches for launches in truth_of.get((comm["hash"], rank["rank"], logs.get((rank["host"], rank["pid"]))), ())
                              if launches not in taken] for rank in comm["ranks"] if not rank["missing"]}
    offsets = {offset for rank, of_rank in choices.items() for launches in of_rank for offset in offsets_of(launches, rank, operations, bases)}
    best = None
    for offset in sorted(offsets):
        results = []
        for rank, of_rank in choices.items():
            tried = [(*problems_of(comm["hash"], launches, rank, operations, offset, ready_ns, rung), launches) for launches in of_rank]
            if tried:
                results.append(min(tried, key=lambda result: len(result[1])))
        if best is None or sum(len(problems) for _, problems, _ in results) < sum(len(problems) for _, problems, _ in best):
            best = results
    return best or []


def compare(report, doubles, logs, ready_ns, is_local, rung="exact"):
    """`logs`: (host, pid) -> index of the double's log. `ready_ns`: when the recorder of each log's rank was ready. `rung`: the certainty that all
    operations must have. Returns (operations compared, problems)."""
    truth_of = launches_of(doubles, is_local)
    of_comm = collections.defaultdict(list)
    for operation in report["collectives"]:
        of_comm[operation["comm"]].append(operation)
    compared, problems, taken = 0, [], []
    for comm in report["communicators"]:
        for n, of_rank, launches in best_for(comm, logs, of_comm[comm["id"]], truth_of, taken, ready_ns, rung) if of_comm[comm["id"]] else []:
            taken.append(launches)
            compared += n
            problems += of_rank
    for (hash_, rank, log), of_key in truth_of.items():
        for launches in of_key:
            recorded = sum(launched_ns >= ready_ns[log] and bool(+parts) for launched_ns, parts in launches.launched)
            if launches not in taken and recorded:
                problems.append(f"{hash_} rank {rank}: {recorded} collectives of a communicator that is not in the report")
    return compared, problems
