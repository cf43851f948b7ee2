# SPDX-License-Identifier: Apache-2.0
"""The operations of a report against NCCL's events for a profiler plugin (profiler_plugin.cpp): hash, rank, order, function, count, datatype, algorithm,
protocol, channels; no bytes."""

import collections

from identity_truth import TYPE_BYTES

# NCCL moves these as bytes.
AS_BYTES = ("AllGather", "Broadcast")
ROOTED = ("Broadcast", "Reduce")


def _collective(op, count, datatype, root, algorithm, protocol, channels):
    size = count * TYPE_BYTES[datatype]
    return (op, size, None if op in AS_BYTES else datatype, root if op in ROOTED else None, algorithm, protocol, channels)


def _collective_events(logs):
    """(hash, rank, op) -> NCCL's number of the collective -> its events. A captured one has an event for each launch."""
    events = collections.defaultdict(lambda: collections.defaultdict(list))
    for log in logs:
        for line in log:
            if line["event"] == "collective":
                events[(line["hash"], line["rank"], line["op"])][line["sequence"]].append(
                    _collective(*(line[name] for name in ("op", "count", "datatype", "root", "algorithm", "protocol", "channels"))))
    return events


def _transfer_events(logs):
    events = collections.defaultdict(list)
    for log in logs:
        for line in log:
            if line["event"] == "transfer":
                events[(line["hash"], line["rank"], line["op"], line["peer"])].append((line["count"], line["datatype"], line["channels"]))
    return events


def _sorted_by_launch(operations):
    """`operations`: (launch, operation) by sequence number. Returns [(launch, its operations)]: NCCL may reorder the calls of one launch."""
    result = []
    for launch, what in operations:
        if result and result[-1][0] == launch:
            result[-1][1].append(what)
        else:
            result.append((launch, [what]))
    return result


def _operation(operation):
    return _collective(*(operation[name] for name in ("op", "count", "datatype", "root", "algorithm", "protocol", "channels")))


def _compare_without_numbers(comm, operations, events):
    """NCCL gives the launches of captured calls the number of the next call, so some numbers stand for several calls. Without order: the events are
    those of all calls, or of those that were not captured; the program says how many the others are."""
    theirs = collections.Counter(event for of_number in events.values() for event in of_number)
    called = collections.Counter(_operation(operation) for operation in operations if operation["replay"] is None)
    everything = collections.Counter(map(_operation, operations))
    if theirs in (called, everything):
        return theirs.total(), []
    return 0, [f"{comm['hash']} {operations[0]['op']}, some in graphs: {everything}, NCCL has {theirs}"]


def _compare_collectives(comm, operations, events):
    """`operations` of one function against one rank's events."""
    ours = collections.defaultdict(list)
    for operation in operations:
        ours[operation["seq"]].append(operation)
    numbers = [events[number] for number in sorted(events)]
    if len(ours) > len(numbers) and any(operation["replay"] is not None for operation in operations):
        return _compare_without_numbers(comm, operations, events)
    if len(ours) != len(numbers):
        return 0, [f"{comm['hash']} {operations[0]['op']}: {len(ours)} in the report, NCCL has {len(numbers)}"]
    launches = _sorted_by_launch([(of_seq[0]["launched_realtime_ns"], [_operation(operation) for operation in of_seq])
                                  for _, of_seq in sorted(ours.items())])
    compared, problems = 0, []
    for launch, found in launches:
        expected, numbers = numbers[:len(found)], numbers[len(found):]
        compared += sum(len(times) for times in expected)
        if sorted(found, key=str) != sorted(expected, key=str):
            problems.append(f"{comm['hash']} launched at {launch}: {found}, NCCL has {expected}")
    return compared, problems


def compare(report, logs):
    """`logs`: the plugin's log of each rank. Returns (collectives compared, sends and receives compared, problems)."""
    collectives, transfers = _collective_events(logs), _transfer_events(logs)
    of_comm = collections.defaultdict(list)
    for operation in report["collectives"]:
        of_comm[(operation["comm"], operation["op"])].append(operation)
    pairs = collections.defaultdict(list)
    for entry in sorted(report["p2p"], key=lambda entry: entry["ordinal"]):
        pairs[(entry["comm"], entry["src_rank"], entry["dst_rank"])].append(entry)
    n_collectives, n_pairs, problems, used = 0, 0, [], set()
    for comm in report["communicators"]:
        known = {(hash_, rank) for log in logs for hash_, rank in ((line["hash"], line["rank"]) for line in log)}
        for rank in comm["ranks"]:
            if (comm["hash"], rank["rank"]) not in known:
                problems.append(f"{comm['hash']} rank {rank['rank']}: NCCL has none")
            for (id_, op), operations in of_comm.items():
                key = (comm["hash"], rank["rank"], op)
                # From 2.29 on NCCL has no event for a Broadcast.
                if id_ != comm["id"] or (op == "Broadcast" and key not in collectives):
                    continue
                n, of_rank = _compare_collectives(comm, operations, collectives.get(key, {}))
                used.add(key)
                n_collectives += n
                problems += of_rank
            for (id_, source, destination), entries in pairs.items():
                for op, me, peer in (("Send", source, destination), ("Recv", destination, source)):
                    key = (comm["hash"], rank["rank"], op, peer)
                    if id_ != comm["id"] or me != rank["rank"]:
                        continue
                    used.add(key)
                    # A copy within a rank has no proxy operation, and so no channels in the report.
                    ours = [(entry["count"], entry["datatype"], entry["channels"] if me != peer else None) for entry in entries]
                    theirs = [(*of_one[:2], of_one[2] if me != peer else None) for of_one in transfers[key]]
                    n_pairs += len(theirs)
                    if ours != theirs:
                        problems.append(f"{key}: {ours}, NCCL has {theirs}")
    problems += [f"{key}: only NCCL has it" for key in (set(collectives) | set(transfers)) - used]
    return n_collectives, n_pairs, problems
