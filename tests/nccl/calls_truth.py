# SPDX-License-Identifier: Apache-2.0
"""Where calls alone were recorded: which communicator's bytes are, and which operation's, against the log of the test double of CUDA."""

import collections

import identity_truth

# Of all bytes. What is less than a clear-to-send goes either way, for all that anybody knows, and is of no communicator.
MOST_WRONG = 0.001
MOST_UNDECIDED = 0.001


def sent_by_operation(double):
    """{(hash, rank, function, size, peer): what each such operation sent to that peer}, and {(hash, rank, peer): bytes of sends}."""
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


def told_by_operation(report):
    """The same of the report, as far as it tells, and the sends of which it does not tell all."""
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


def distance(told, true):
    """How far what is told of some of them is from what is true of as many, the nearest ones: what is told too much and too little."""
    left = collections.Counter(true)
    wrong = []
    for carried in told:
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
    """Bytes that the report gives to operations which have others, or keeps from them, and what they are."""
    (works, pairs), (told_works, told_pairs, lacking) = sent_by_operation(double), told_by_operation(report)
    wrong, problems = 0, []
    for key, told in told_works.items():
        if far := distance(told, works.get(key, [])):
            wrong += far
            problems.append(f"{key}: {collections.Counter(told).most_common(3)}, the double has {collections.Counter(works.get(key, [])).most_common(3)}")
    for key, carried in told_pairs.items():
        far = max(0, carried - pairs[key]) if key in lacking else abs(carried - pairs[key])
        if far:
            wrong += far
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
