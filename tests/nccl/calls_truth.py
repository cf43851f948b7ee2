# SPDX-License-Identifier: Apache-2.0
"""Where calls alone were recorded: which communicator's bytes are, and which operation's, against the log of the test double of CUDA."""

import collections

import identity_truth

# Of all bytes. What is less than a clear-to-send goes either way, for all that anybody knows, and is of no communicator.
MOST_WRONG = 0.001
MOST_UNDECIDED = 0.001


def sums_by_peer(parts):
    """{peer: bytes} that were sent, in some order that is always the same."""
    sums = collections.Counter()
    for peer, direction, carried in parts:
        if direction == "send":
            sums[peer] += carried
    return tuple(sorted((peer, carried) for peer, carried in sums.items() if carried))


def operations_of(double):
    """What each rank sent for each collective, by kind, and for its sends, by peer."""
    works = {key: [sums_by_peer((peer, direction, carried) for (peer, _, direction), carried in parts.items()) for parts in all_of_them]
             for key, all_of_them in double.works.items()}
    pairs = collections.Counter()
    for (hash_, rank, peer, _, direction), carried in double.pairs.items():
        if direction == "send":
            pairs[(hash_, rank, peer)] += carried
    return works, pairs


def told_operations(report):
    """The same of the report: of those operations of a rank all of whose bytes are told."""
    works, pairs = collections.defaultdict(list), collections.Counter()
    for hash_, operation, kind in identity_truth.operations_of(report):
        by_rank = collections.defaultdict(list)
        for part in operation["parts"]:
            by_rank[part["rank"]].append((part["peer_rank"], part["direction"], part["payload_bytes"]))
        for rank, parts in by_rank.items():
            known = [part for part in parts if part[2] is not None]
            if kind == "p2p" or operation["op"] in identity_truth.MADE_OF_PAIRS:
                for peer, direction, carried in known:
                    pairs[(hash_, rank, peer)] += carried if direction == "send" else 0
            elif len(known) == len(parts):
                size = operation["count"] * identity_truth.TYPE_BYTES[operation["datatype"]]
                works[(hash_, rank, operation["op"], size)].append(sums_by_peer(parts))
    return works, pairs


def wrong_bytes(report, double):
    """Bytes that the report gives to operations which have others, and what they are."""
    (works, pairs), (told_works, told_pairs) = operations_of(double), told_operations(report)
    wrong, problems = 0, []
    for key, told in told_works.items():
        more = collections.Counter(told) - collections.Counter(works.get(key, []))
        for sums, n in more.items():
            wrong += n * sum(carried for _, carried in sums)
            problems.append(f"{key}: {n} with {sums}, the double has {collections.Counter(works.get(key, [])).most_common(3)}")
    for key, carried in told_pairs.items():
        if carried > pairs[key]:
            wrong += carried - pairs[key]
            problems.append(f"sends {key}: {carried}, the double has {pairs[key]}")
    return wrong, problems


def judge(report, double, fewest_joined):
    """(a line that says what was seen, problems). `fewest_joined`: of all bytes, with an operation."""
    identity, whole = report["identity"], sum(double.sent.values())
    inferred, of_process, confirmed = (identity[name] or 0 for name in ("inferred", "process", "inferred_confirmed"))
    cells, different = identity_truth.compare_matrix(report, double)
    hashes = {comm["id"]: comm["hash"] for comm in report["communicators"]}
    told = collections.Counter()
    for cell in report["matrix"]:
        told[(hashes.get(cell["comm"]), cell["src_rank"], cell["dst_rank"])] += cell["payload_bytes"]
    astray = sum((told - double.matrix).values())
    undecided = sum((double.matrix - told).values())
    wrong, of_operations = wrong_bytes(report, double)
    line = (f"communicators: {cells} pairs of ranks, {len(different)} different, {astray} bytes astray, {undecided} undecided; operations: {inferred} of {whole} bytes ({100 * inferred / max(1, whole):.1f} %), "
            f"{wrong} wrong, {confirmed} confirmed; process {of_process}")
    problems = []
    if astray > MOST_WRONG * whole or undecided > MOST_UNDECIDED * whole:
        problems += [f"{astray} bytes are of other communicators, {undecided} of none", *different[:10]]
    if wrong > MOST_WRONG * whole:
        problems += [f"{wrong} of {whole} bytes are of other operations", *of_operations[:10]]
    # What is undecided is of the process with what comes back for it.
    if identity["exact"] or abs(inferred + of_process - whole) > MOST_UNDECIDED * whole:
        problems.append(f"identity {identity}, the double sent {whole}")
    if confirmed != inferred or inferred < fewest_joined * whole:
        problems.append(f"{inferred} of {whole} bytes are joined, {confirmed} of them confirmed")
    return line, problems
