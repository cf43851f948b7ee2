# SPDX-License-Identifier: Apache-2.0
"""The records that need an option: calls that NCCL rejected, against the job's log; launches within a node, against the log of the test double of
CUDA."""

import collections

import local_truth
from identity_truth import ACCEPTED, MADE_OF_PAIRS, SUMMED, TYPE_BYTES, choice_of, operations_of


# Before it NCCL's launch has no channels for operations without network traffic.
ALL_IN_ONE_CALL = (2, 27)


def compare(case, report, jobs, doubles, processes, version, with_groups):
    """`with_groups`: (hash, rank) that launched broadcasts in a group. Returns (summary, problems)."""
    summary, problems = "", []
    if "--api-returns" in case.options:
        calls, refused, problems = compare_returns(report, jobs, processes)
        summary += f"; {calls} returns, {refused} of them rejected"
        problems += [] if refused else ["no call was rejected"]
    if "--local-launches" in case.options:
        launches, of_launches = compare_launches(report, jobs, doubles, with_groups, version >= ALL_IN_ONE_CALL)
        summary += f"; {launches} collectives of a rank within a node by algorithm, protocol and channels"
        problems = problems + of_launches + ([] if launches else ["no launch within a node"])
    if case.ranks_per_node > 1 and version >= local_truth.FIRST_VERSION:
        of_node, of_local = local_truth.compare(report, jobs, doubles, case.ranks_per_node, "--local-launches" in case.options, case.local_transports)
        summary += of_node
        problems = problems + of_local
    return summary, problems


def compare_returns(report, jobs, processes):
    """(calls, rejected calls, problems): calls, returned calls and rejected calls of every rank of every communicator."""
    asked = collections.Counter()
    for process, log in zip(processes, jobs):
        made = {(line["communicator"], line["instance"]): [0, 0, line["rank"], line["ranks"]] for line in log if line["event"] == "created"}
        for line in log:
            if line["event"] == "call":
                of_comm = made[(line["communicator"], line["instance"])]
                of_comm[0] += 1
                of_comm[1] += line["result"] not in ACCEPTED
        asked.update((process, rank, ranks, calls, calls, refused) for calls, refused, rank, ranks in made.values())
    reported = collections.Counter(((rank["host"], rank["pid"]), rank["rank"], comm["n_ranks"], rank["calls"], rank["returned_calls"], rank["failed_calls"])
                               for comm in report["communicators"] for rank in comm["ranks"] if not rank["missing"])
    problems = [f"(process, rank, ranks, calls, returned, refused) {key}: {reported[key]} times, the job has it {asked[key]} times"
                for key in sorted({*reported, *asked}) if reported[key] != asked[key]]
    return sum(key[3] * n for key, n in asked.items()), sum(key[5] * n for key, n in asked.items()), problems


def played(job):
    """(comm, function, bytes) -> launches by CUDA graphs on a rank."""
    return collections.Counter((line["comm"], line["op"], line["bytes"]) for line in job if line["event"] == "replay")


def collectives_done(jobs, doubles):
    """((hash, rank, function, bytes) -> (algorithm, protocol, channels) of each, the same key -> launches by CUDA graphs)"""
    done, of_graphs = collections.defaultdict(list), collections.Counter()
    for job, kernels in zip(jobs, doubles):
        hashes = {kernel["comm"]: (kernel["comm_hash"], kernel["rank"]) for kernel in kernels}
        of_graphs.update({(*hashes[comm], op, size): n for (comm, op, size), n in played(job).items()})
        for kernel in kernels:
            channels = collections.defaultdict(set)
            for carrier in (*kernel["connections"], *kernel.get("switch", ())):
                channels[carrier["work"]].add(carrier["channel"])
            for number, work in enumerate(kernel["works"]):
                function, choice = choice_of(work)
                if function not in SUMMED and channels[number]:
                    done[(kernel["comm_hash"], kernel["rank"], function, work["bytes"])].append((*choice, len(channels[number])))
    return done, of_graphs


def compare_launches(report, jobs, doubles, with_groups, has_channels):
    """(collectives of a rank, problems): algorithm, protocol and number of channels of each. NCCL has no state of CUDA graph launches within a node."""
    done, of_graphs = collectives_done(jobs, doubles)
    inside = {comm["hash"] for comm in report["communicators"] if comm["n_nodes"] == 1}
    of_graphs = collections.Counter({key: n for key, n in of_graphs.items() if key[0] in inside})
    if not has_channels:
        done = {key: [(*choice[:2], None) for choice in choices] for key, choices in done.items()}
    reported = collections.defaultdict(list)
    ranks = {comm["hash"]: [rank["rank"] for rank in comm["ranks"]] for comm in report["communicators"]}
    problems = []
    for hash_, operation, kind in operations_of(report):
        if kind != "collectives" or operation["op"] in MADE_OF_PAIRS or not operation["count"] or len(ranks[hash_]) == 1:
            continue
        # NCCL merges the broadcasts of a group and splits them again.
        if operation["op"] == "Broadcast" and any(of_hash == hash_ for of_hash, _ in with_groups):
            continue
        choice = (operation["algorithm"], operation["protocol"], operation["channels"])
        if not operation["launched"] and (choice, operation["captured"]) != ((None, None, None), None):
            problems.append(f"seq {operation['seq']}: {choice}, captured {operation['captured']}, and no launch")
        for rank in ranks[hash_] if operation["launched"] else ():
            reported[(hash_, rank, operation["op"], operation["count"] * TYPE_BYTES[operation["datatype"]])].append(choice)
    for key in sorted({*done, *reported}, key=str):
        if key[2] == "Broadcast" and key[:2] in with_groups:
            continue
        mine, theirs = collections.Counter(reported[key]), collections.Counter(done.get(key, ()))
        if mine - theirs or (theirs - mine).total() != of_graphs[key]:
            problems.append(f"{key}: {dict(mine)}, the double has {dict(theirs)}, {of_graphs[key]} of them by a CUDA graph")
    return sum(map(len, reported.values())), problems
