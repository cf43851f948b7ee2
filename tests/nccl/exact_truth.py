# SPDX-License-Identifier: Apache-2.0
"""Operations that a report calls exact are right, even if others are missing or not exact, as in launches that are cut."""

import collections

import identity_truth as truth


def _of_key(report):
    """(hash, op, bytes) -> its collectives, without those that have no work of their own in the double's log."""
    found = collections.defaultdict(list)
    for hash_, operation, kind in truth.operations_of(report):
        if kind == "collectives" and operation["op"] not in truth.MADE_OF_PAIRS:
            found[(hash_, operation["op"], operation["count"] * truth.TYPE_BYTES[operation["datatype"]])].append(operation)
    return found


def _sent_of(double, key):
    """Bytes that each operation sent, summed over the ranks. The n-th operations of all ranks are one."""
    sent = collections.defaultdict(int)
    for (hash_, _, op, size), works in double.works.items():
        if (hash_, op, size) == key:
            for number, parts in enumerate(works):
                sent[number] += sum(carried for (_, _, direction), carried in parts.items() if direction == "send")
    return collections.Counter(sent.values())


def compare(report, double):
    """Exact and whole collectives against the double's log, in sum and by connection. Returns (compared, problems)."""
    compared, problems = 0, []
    # NCCL merges the broadcasts of a group into one work.
    with_groups = {hash_ for hash_, _ in double.with_groups}
    for key, operations in _of_key(report).items():
        hash_, op, _ = key
        if op == "Broadcast" and hash_ in with_groups:
            continue
        exact = [operation for operation in operations if operation["rung"] == "exact" and not operation["truncated"] and not operation["partial"]]
        compared += len(exact)
        ours = collections.Counter(operation["tx_payload_bytes"] for operation in exact if operation["tx_payload_bytes"])
        expected = _sent_of(double, key)
        if ours - expected:
            problems.append(f"{key}: exact {dict(ours - expected)} bytes (each: how often), the double has {dict(expected)}")
        silent = sum(not operation["tx_payload_bytes"] for operation in exact)
        # An operation of one rank, or of 0 bytes, has no work.
        if expected and silent > expected[0]:
            problems.append(f"{key}: {silent} exact operations sent nothing; the double has {dict(expected)}")
        parts, of_double = collections.Counter(), collections.Counter()
        for operation in operations:
            for part in operation["parts"]:
                if part["rung"] == "exact" and part["transport"] != "local" and part["payload_bytes"]:
                    parts[(part["rank"], part["peer_rank"], part["channel"], part["direction"], part["payload_bytes"])] += 1
        for (of_hash, rank, of_op, size), works in double.works.items():
            if (of_hash, of_op, size) == key:
                for work in works:
                    of_double.update((rank, *place, carried) for place, carried in work.items())
        for place, times in (parts - of_double).items():
            problems.append(f"{key}: {times} exact parts {place} more than the double has")
    return compared, problems
