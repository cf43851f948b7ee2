# SPDX-License-Identifier: Apache-2.0
"""API-only recordings: bytes by communicator and by operation, against the log of the test double of CUDA."""

import collections

import identity_truth

# Shares of all bytes. A flow with fewer bytes than a clear-to-send has no known direction, and no communicator.
MOST_WRONG = 0.001
MOST_UNDECIDED = 0.001


def sent_by_operation(double):
    """({(hash, rank, function, size, peer): bytes that each such operation sent to the peer}, {(hash, rank, peer): bytes of sends})"""
    works, pairs = collections.defaultdict(list), collections.Counter()
    for (hash_, rank, function, size), all_of_them in double.works.items():
        peers = {peer for parts in all_of_them for peer, _, direction in parts if direction == "send"}
        for peer in peers:
            works[(hash_, rank, function, size, peer)] = [sum(carried for (to, _, direction), carried in parts.items() if (to, direction) == (peer, "send"))
                                                          for parts in all_of_them]
    for (hash_, rank, peer, _, direction), carried in double.pairs.items():
        if direction == "send":
            pairs[(hash_, rank, peer)] += carried
    return works, pairs


def reported_by_operation(report):
    """The same from the report, as far as it has them, and the sends whose bytes are unknown in part."""
    works, pairs, lacking = collections.defaultdict(list), collections.Counter(), set()
    for hash_, operation, kind in identity_truth.operations_of(report):
        size = operation["count"] * identity_truth.TYPE_BYTES[operation["datatype"]]
        for part in operation["parts"]:
            if part["direction"] != "send":
                continue
            key = (hash_, part["rank"], part["peer_rank"])
            if kind == "p2p" or operation["op"] in identity_truth.MADE_OF_PAIRS:
                pairs[key] += part["payload_bytes"] or 0
                if part["payload_bytes"] is None:
                    lacking.add(key)
            elif part["payload_bytes"] is not None:
                works[(hash_, part["rank"], operation["op"], size, part["peer_rank"])].append(part["payload_bytes"])
    return works, pairs, lacking


def distance(reported, true):
    """Sum of the differences between the reported bytes and the nearest true ones, of as many operations."""
    left = collections.Counter(true)
    wrong = []
    for carried in reported:
        if left[carried] > 0:
            left[carried] -= 1
        else:
            wrong.append(carried)
    rest = sorted(left.elements())
    total = 0
    for carried in sorted(wrong):
        nearest = min(rest, key=lambda other: abs(other - carried), default=None)
        total += carried if nearest is None else abs(nearest - carried)
        if nearest is not None:
            rest.remove(nearest)
    return total


def wrong_bytes(report, double):
    """(bytes that the report adds to or takes from operations wrongly, problems)"""
    (works, pairs), (reported_works, reported_pairs, lacking) = sent_by_operation(double), reported_by_operation(report)
    wrong, problems = 0, []
    for key, reported in reported_works.items():
        if far := distance(reported, works.get(key, [])):
            wrong += far
            problems.append(f"{key}: {collections.Counter(reported).most_common(3)}, the double has {collections.Counter(works.get(key, [])).most_common(3)}")
    for key, carried in reported_pairs.items():
        far = max(0, carried - pairs[key]) if key in lacking else abs(carried - pairs[key])
        if far:
            wrong += far
            problems.append(f"sends {key}: {carried}, the double has {pairs[key]}")
    return wrong, problems


def judge(report, double, fewest_joined):
    """(summary, problems). `fewest_joined`: the least share of all bytes that has an operation."""
    identity, whole = report["identity"], sum(double.sent.values())
    inferred, of_process, confirmed = (identity[name] or 0 for name in ("inferred", "process", "inferred_confirmed"))
    cells, different = identity_truth.compare_matrix(report, double)
    hashes = {comm["id"]: comm["hash"] for comm in report["communicators"]}
    reported = collections.Counter()
    for cell in report["matrix"]:
        reported[(hashes.get(cell["comm"]), cell["src_rank"], cell["dst_rank"])] += cell["payload_bytes"]
    astray = sum((reported - double.matrix).values())
    undecided = sum((double.matrix - reported).values())
    wrong, of_operations = wrong_bytes(report, double)
    line = (f"communicators: {cells} pairs of ranks, {len(different)} different, {astray} bytes astray, {undecided} undecided; "
            f"operations: {inferred} of {whole} bytes ({100 * inferred / max(1, whole):.1f} %), {wrong} wrong, {confirmed} confirmed; process {of_process}")
    problems = []
    if astray > MOST_WRONG * whole or undecided > MOST_UNDECIDED * whole:
        problems += [f"{astray} bytes have a wrong communicator, {undecided} have none", *different[:10]]
    if wrong > MOST_WRONG * whole:
        problems += [f"{wrong} of {whole} bytes have a wrong operation", *of_operations[:10]]
    # Undecided bytes, and the clear-to-send that comes back for them, are the process's.
    if identity["exact"] or abs(inferred + of_process - whole) > MOST_UNDECIDED * whole:
        problems.append(f"identity {identity}, the double sent {whole}")
    if confirmed != inferred or inferred < fewest_joined * whole:
        problems.append(f"{inferred} of {whole} bytes are joined, {confirmed} of them confirmed")
    return line, problems
