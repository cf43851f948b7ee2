# SPDX-License-Identifier: Apache-2.0
"""A report against the logs of the test double of CUDA and of the job: the bytes of each operation on each connection. Nothing here uses collwire's
own arithmetic."""

import collections
import json

TYPE_BYTES = {"ncclInt8": 1, "ncclUint8": 1, "ncclInt32": 4, "ncclUint32": 4, "ncclInt64": 8, "ncclUint64": 8, "ncclFloat16": 2, "ncclFloat32": 4,
              "ncclFloat64": 8, "ncclBfloat16": 2}
POINT_TO_POINT = ("Send", "Recv")
MADE_OF_PAIRS = ("AlltoAll", "Gather", "Scatter")
ACCEPTED = (0, 7)  # ncclSuccess, ncclInProgress
SUMMED = ("SendRecv", "AllGatherV")
SWITCH = -2 # in place of a rank: the NVLink switch, which NVLS uses
DIRECTIONS = {"send": "send", "receive": "recv"}


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def messages_of(paths):
    """(messages, their bytes without net_socket's 4 for each) of all ranks, as tests/cuda_double/send_counter.cpp counted them."""
    messages = payload = missing = 0
    for path in paths:
        with open(path, encoding="ascii") as file:
            for words in (line.split() for line in file if line.startswith("messages")):
                messages, payload, missing = messages + int(words[1]), payload + int(words[2]), missing + int(words[3])
    assert not missing, f"{missing} bytes of messages are missing: a connection has several sockets, or was cut"
    return messages, payload


def choice_of(work):
    """(function, (algorithm, protocol)) of a work in the double's log: `AllReduce_NVLS_TREE_SIMPLE`. The pair is empty for sends and receives."""
    function, *rest = work["function"].split("_", 1)
    return function, tuple(rest[0].rsplit("_", 1)) if rest else ()


class Truth:
    """Bytes on network connections by communicator, from the double's logs of all ranks. `is_local(log, kernel, peer)`: rank and peer share memory.
    `with_switch`: also what ranks send to the switch of NVLS and get from it."""

    def __init__(self, logs, is_local=lambda log, kernel, peer: False, with_switch=False):
        self.with_switch = with_switch
        self.works = collections.defaultdict(list)  # (hash, rank, function, bytes) -> parts of each, by launch
        self.choices = collections.defaultdict(list)  # the same -> (algorithm, protocol) of each
        self.pairs = collections.Counter()  # (hash, rank, peer, channel, direction) -> bytes of sends and receives
        self.grouped = collections.Counter()  # the same, of broadcasts that NCCL merges into one operation
        self.with_groups = set()  # (hash, rank) that launched such
        self.sent = collections.Counter()  # hash -> bytes
        self.matrix = collections.Counter()  # (hash, rank, peer) -> bytes
        for log, kernels in enumerate(logs):
            for kernel in kernels:
                self._add(log, kernel, is_local)

    def _add(self, log, kernel, is_local):
        hash_, rank = kernel["comm_hash"], kernel["rank"]
        parts = [collections.Counter() for _ in kernel["works"]]
        for connection in kernel["connections"]:
            if is_local(log, kernel, connection["peer"]):
                continue
            direction = DIRECTIONS[connection["direction"]]
            parts[connection["work"]][(connection["peer"], connection["channel"], direction)] += connection["bytes"]
            if direction == "send":
                self.sent[hash_] += connection["bytes"]
                self.matrix[(hash_, rank, connection["peer"])] += connection["bytes"]
        for switch in kernel.get("switch", []) if self.with_switch else []:
            for direction, carried in (("send", switch["to_bytes"]), ("recv", switch["from_bytes"])):
                parts[switch["work"]][(SWITCH, switch["channel"], direction)] += carried
        for work, of_work in zip(kernel["works"], parts):
            function, choice = choice_of(work)
            if function in SUMMED:
                if function != "SendRecv":
                    self.with_groups.add((hash_, rank))
                sums = self.pairs if function == "SendRecv" else self.grouped
                for (peer, channel, direction), carried in of_work.items():
                    sums[(hash_, rank, peer, channel, direction)] += carried
            else:
                self.works[(hash_, rank, function, work["bytes"])].append(of_work)
                self.choices[(hash_, rank, function, work["bytes"])].append(tuple(choice))


def same_node(job_logs, ranks_per_node):
    """`is_local` for Truth: each `ranks_per_node` consecutive ranks share a node. Both lists have the ranks' logs in the same order."""
    created = [[line for line in log if line["event"] == "created"] for log in job_logs]

    def is_local(log, kernel, peer):
        # Hashes and addresses are reused by later communicators.
        owners = [line for line in created[log] if line["comm"] == kernel["comm"] and line["at_realtime_ns"] <= kernel["launched_ns"]]
        places = owners[-1]["world_ranks"]
        return places[kernel["rank"]] // ranks_per_node == places[peer] // ranks_per_node

    return is_local


def compare_matrix(report, truth):
    """Bytes from rank to rank. Returns (pairs of ranks, problems)."""
    hashes = {comm["id"]: comm["hash"] for comm in report["communicators"]}
    cells = collections.Counter()
    for cell in report["matrix"]:
        cells[(hashes.get(cell["comm"]), cell["src_rank"], cell["dst_rank"])] += cell["payload_bytes"]
    wanted = collections.Counter({pair: sent for pair, sent in truth.matrix.items() if sent})
    return len(wanted), [f"matrix {pair}: {cells[pair]} bytes, the double sent {wanted[pair]}"
                         for pair in sorted({*cells, *wanted}, key=str) if cells[pair] != wanted[pair]]


def compare_ends(report, senders=None):
    """Each queue pair and socket of a connection is of the process that has its rank, and the other end of a socket has the same two ranks. Returns
    (compared, how many of these are another rank's, problems). Not for connections that communicators share: these have the ranks of another
    communicator. `senders`: process -> (channel, source, destination) -> the ranks that send for the source (PXN), as NCCL prints them."""
    of_rank = {(comm["id"], rank["rank"]): (rank["host"], rank["pid"]) for comm in report["communicators"] for rank in comm["ranks"] if not rank["missing"]}
    sockets = collections.defaultdict(list)
    for socket in report["sockets"]:
        sockets[(socket["local"], socket["remote"])].append((socket["peer_rank"], socket["rank"]))
    compared, for_others, problems = 0, 0, []
    for end in (*report["qps"], *report["sockets"]):
        owner, ends = of_rank.get((end["comm"], end["rank"])), (end["rank"], end["peer_rank"])
        if owner is None:
            continue
        compared += 1
        by_others = (senders or {}).get(owner, {}).get((end["channel"], *ends), ()) if end.get("direction") == "send" else ()
        owners = {of_rank[(end["comm"], rank)] for rank in by_others if (end["comm"], rank) in of_rank} | {owner}
        for_others += owner != (end["host"], end["pid"])
        name = f"{end['host']} pid {end['pid']}, {end.get('qpn') or end['local']}: rank {ends[0]} with {ends[1]}"
        if (end["host"], end["pid"]) not in owners or ends[0] == ends[1]:
            problems.append(f"{name}; that rank is {owner}, {sorted(by_others)} send for it")
        others = sockets[(end.get("remote"), end.get("local"))]
        if len(others) == 1 and others[0] != ends:
            problems.append(f"{name}; at the other end rank {others[0][1]} with {others[0][0]}")
    return compared, for_others, problems


def only_of(report, pids):
    """The report without communicators of other jobs on the machine."""
    ours = {comm["id"] for comm in report["communicators"] if {rank["pid"] for rank in comm["ranks"] if not rank["missing"]} <= set(pids)}
    filtered = dict(report, communicators=[comm for comm in report["communicators"] if comm["id"] in ours])
    for kind in ("collectives", "p2p", "matrix"):
        filtered[kind] = [entry for entry in report[kind] if entry["comm"] in ours]
    return filtered


def operations_of(report):
    """(hash, operation, kind) of every collective and pair."""
    hashes = {comm["id"]: comm["hash"] for comm in report["communicators"]}
    for kind in ("collectives", "p2p"):
        for operation in report[kind]:
            yield hashes[operation["comm"]], operation, kind


def canonical(parts):
    return tuple(sorted((key, carried) for key, carried in parts.items() if carried))


def compare_bytes(report, truth):
    """Bytes, algorithm and protocol of every operation on every connection of every rank. Returns (figures compared, differences)."""
    seen = collections.defaultdict(list)
    choices = collections.defaultdict(list)
    pairs = collections.Counter()
    for hash_, operation, kind in operations_of(report):
        by_rank = collections.defaultdict(collections.Counter)
        for part in operation["parts"]:
            if part["transport"] == "local":
                continue
            by_rank[part["rank"]][(part["peer_rank"], part["channel"], part["direction"])] += part["payload_bytes"] or 0
        if kind == "p2p" or operation["op"] in MADE_OF_PAIRS:
            for rank, parts in by_rank.items():
                for (peer, channel, direction), carried in parts.items():
                    pairs[(hash_, rank, peer, channel, direction)] += carried
            continue
        size = operation["count"] * TYPE_BYTES[operation["datatype"]]
        for rank, parts in by_rank.items():
            seen[(hash_, rank, operation["op"], size)].append(parts)
            choices[(hash_, rank, operation["op"], size)].append((operation["algorithm"], operation["protocol"]))
    figures, different = 0, []
    works, grouped = collections.defaultdict(list, truth.works), collections.Counter(truth.grouped)
    seen_grouped = collections.Counter()
    # The double's log does not say which broadcasts of a rank were launched in a group: they are compared in sum.
    ranks_with_groups = truth.with_groups
    for lists, sums in ((works, grouped), (seen, seen_grouped)):
        for key in [key for key in lists if key[:2] in ranks_with_groups and key[2] == "Broadcast"]:
            for parts in lists.pop(key):
                for place, carried in parts.items():
                    sums[(*key[:2], *place)] += carried
    for key in sorted(set(works) | set(seen), key=str):
        # NCCL may launch equal operations of one group in another order.
        expected = sorted(((choice, canonical(parts)) for choice, parts in zip(truth.choices[key], works[key]) if canonical(parts)), key=str)
        found = sorted(((choice, canonical(parts)) for choice, parts in zip(choices[key], seen[key]) if canonical(parts)), key=str)
        figures += sum(len(parts) for _, parts in expected)
        if expected != found:
            different.append(f"{key}: {len(found)} operations, the double has {len(expected)}: {first_difference(found, expected)}")
    for what, mine, theirs in (("pairs", pairs, truth.pairs), ("broadcasts", seen_grouped, grouped)):
        for key in sorted(set(theirs) | set(mine), key=str):
            figures += 1
            if theirs[key] != mine[key]:
                different.append(f"{what} {key}: {mine[key]}, the double has {theirs[key]}")
    return figures, different


def first_difference(found, expected):
    for mine, theirs in zip(found, expected):
        if mine != theirs:
            return f"{mine} against {theirs}"
    return "one has more"


def called(job_log):
    """The rank's collectives in order, by communicator, with captured ones in their place. Calls that NCCL rejected are left out."""
    calls = collections.defaultdict(list)
    for line in job_log:
        if line["event"] == "call" and line["op"] not in POINT_TO_POINT and line["result"] in ACCEPTED:
            calls[(line["communicator"], line["instance"])].append((line["op"], line["count"], line["datatype"]))
    return calls


def compare_order(report, job_logs):
    """The sequence numbers follow the order of the job's calls, on every communicator. Returns (calls, problems)."""
    reported = collections.defaultdict(dict)
    for comm in report["communicators"]:
        reported[comm["id"]] = {}
    for collective in report["collectives"]:
        if not collective["replay"]:
            reported[collective["comm"]][collective["seq"]] = (collective["op"], collective["count"], collective["datatype"])
    sequences = collections.Counter(tuple(of_comm[seq] for seq in sorted(of_comm)) for of_comm in reported.values() if of_comm)
    expected = collections.Counter()
    for members in group_members(job_logs).values():
        expected[tuple(members)] += 1
    different = [f"{count} communicators with {sequence[:5]}..." for sequence, count in ((expected - sequences) + (sequences - expected)).items()]
    return sum(len(sequence) * count for sequence, count in expected.items()), different


def group_members(job_logs):
    """The calls of each communicator instance, which are the same on all its ranks."""
    members = {}
    for log in job_logs:
        places = {(line["communicator"], line["instance"]): tuple(line.get("world_ranks") or ()) for line in log if line["event"] == "created"}
        for place, calls in called(log).items():
            key = (place, places.get(place))
            assert members.setdefault(key, calls) == calls, f"the ranks of {key} made different calls"
    return members
