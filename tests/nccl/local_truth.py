# SPDX-License-Identifier: Apache-2.0
"""Modelled bytes inside a node against the log of the test double of CUDA, to the byte: each operation on each connection of each rank. Nothing here uses
collwire's own arithmetic."""

import collections

from identity_truth import MADE_OF_PAIRS, SWITCH, TYPE_BYTES, Truth, canonical, operations_of, same_node

FIRST_VERSION = (2, 24)
NOT_READ = "local" # the communicator ended before the recorder read its connections


def parts_by_rank(operation, ranks):
    """rank -> {(peer, channel, direction): bytes}; channel -1: the sum of all."""
    parts = {rank: collections.Counter() for rank in ranks}
    for part in operation["local_parts"]:
        channel = -1 if part["channel"] is None else part["channel"]
        peer = SWITCH if part["peer_rank"] is None else part["peer_rank"]
        parts[part["rank"]][(peer, channel, part["direction"])] += part["payload_bytes"]
    return parts


def summed(parts):
    sums = collections.Counter()
    for (peer, _, direction), carried in parts.items():
        sums[(peer, -1, direction)] += carried
    return sums


def compare(report, jobs, doubles, ranks_per_node, has_all_launches, wanted_transports):
    """`has_all_launches`: those inside a node were recorded, too. `wanted_transports`: those of all connections inside a node. Returns (summary, problems)."""
    is_inside = same_node(jobs, ranks_per_node)
    double = Truth(doubles, lambda *place: not is_inside(*place), with_switch=True)
    ranks = {comm["hash"]: [rank["rank"] for rank in comm["ranks"]] for comm in report["communicators"]}
    reported, states, transports = collections.defaultdict(list), collections.Counter(), collections.Counter()
    pairs, has_unknown = collections.Counter(), set()
    problems = []
    for hash_, operation, kind in operations_of(report):
        state = operation["local"]
        states[state] += 1
        transports.update(part["transport"] for part in operation["local_parts"])
        if (operation["local_payload_bytes"] is not None) != (state in ("modelled", "partial")):
            problems.append(f"{operation['op']}: {state} with {operation['local_payload_bytes']} bytes")
        if kind == "p2p" or operation["op"] in MADE_OF_PAIRS:
            if state not in ("modelled", "none"):
                has_unknown.add(hash_)
            for part in operation["local_parts"]:
                pairs[(hash_, part["rank"], part["peer_rank"], part["direction"])] += part["payload_bytes"]
        elif state == "modelled":
            key = (operation["op"], operation["count"] * TYPE_BYTES[operation["datatype"]])
            parts = parts_by_rank(operation, ranks[hash_])
            for rank, of_rank in parts.items():
                reported[(hash_, rank, *key)].append(of_rank)
            sent = sum(part["payload_bytes"] for part in operation["local_parts"] if part["direction"] == "send")
            if sent != operation["local_payload_bytes"]:
                problems.append(f"{key}: {operation['local_payload_bytes']} bytes, its parts have {sent}")
    compared = 0
    for key, operations in sorted(reported.items(), key=str):
        if key[2] == "Broadcast" and key[:2] in double.with_groups:
            continue
        works = double.works.get(key, [])
        theirs, their_sums = (collections.Counter(map(canonical, map(form, works))) for form in (dict, summed))
        for parts in operations:
            is_summed = any(channel == -1 for _, channel, _ in parts)
            left = their_sums if is_summed else theirs
            compared += 1
            if not left[canonical(parts)]:
                problems.append(f"{key}: {canonical(parts)}, the double has {dict(left)}")
            left[canonical(parts)] -= 1
    wanted = collections.Counter()
    for (hash_, rank, peer, _, direction), carried in double.pairs.items():
        if rank != peer:
            wanted[(hash_, rank, peer, direction)] += carried
    for key in sorted({*pairs, *wanted}, key=str):
        if pairs[key] > wanted[key] or (pairs[key] < wanted[key] and key[0] not in has_unknown):
            problems.append(f"sends and receives {key}: {pairs[key]} bytes, the double has {wanted[key]}")
    if not compared or (has_all_launches and not pairs):
        problems.append(f"{compared} operations and {len(pairs)} pairs compared")
    if set(transports) - {NOT_READ} != set(wanted_transports):
        problems.append(f"transports {dict(transports)}: the ranks of a node have {wanted_transports}")
    return (f"; inside the node {compared} operations of a rank and {len(pairs)} pairs of ranks by bytes, operations {dict(states)}, "
            f"parts {dict(transports)}"), problems
