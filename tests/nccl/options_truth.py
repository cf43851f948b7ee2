# SPDX-License-Identifier: Apache-2.0
"""What a recorder tells only if it is asked: which calls NCCL refused, against the job's log, and what was launched within a node, against
the log of the test double of CUDA."""

import collections

from identity_truth import ACCEPTED, MADE_OF_PAIRS, SUMMED, TYPE_BYTES, operations_of


# Before it what NCCL hands on of a launch has no channels of what has nothing for the network.
ALL_IN_ONE_CALL = (2, 27)


def compare(case, report, jobs, doubles, processes, version, with_groups):
    """`with_groups`: (hash, rank) that launched broadcasts together. Returns (what was compared, problems)."""
    told, problems = "", []
    if "--api-returns" in case.options:
        calls, refused, problems = compare_returns(report, jobs, processes)
        told += f"; {calls} returns, {refused} of them refusals"
        problems += [] if refused else ["nothing was refused"]
    if "--local-launches" in case.options:
        launches, of_launches = compare_launches(report, jobs, doubles, with_groups, version >= ALL_IN_ONE_CALL)
        told += f"; {launches} collectives of a rank within a node by algorithm, protocol and channels"
        problems = problems + of_launches + ([] if launches else ["nothing was launched within a node"])
    return told, problems


def compare_returns(report, jobs, processes):
    """(calls, refusals, problems): of every rank of every communicator how many calls it made, came back and were refused."""
    asked = collections.Counter()
    for process, log in zip(processes, jobs):
        made = {(line["communicator"], line["instance"]): [0, 0, line["rank"], line["ranks"]] for line in log if line["event"] == "created"}
        for line in log:
            if line["event"] == "call":
                of_comm = made[(line["communicator"], line["instance"])]
                of_comm[0] += 1
                of_comm[1] += line["result"] not in ACCEPTED
        asked.update((process, rank, ranks, calls, calls, refused) for calls, refused, rank, ranks in made.values())
    told = collections.Counter(((rank["host"], rank["pid"]), rank["rank"], comm["n_ranks"], rank["calls"], rank["returned_calls"], rank["failed_calls"])
                               for comm in report["communicators"] for rank in comm["ranks"] if not rank["missing"])
    problems = [f"(process, rank, ranks, calls, returned, refused) {key}: {told[key]} times, the job has it {asked[key]} times"
                for key in sorted({*told, *asked}) if told[key] != asked[key]]
    return sum(key[3] * n for key, n in asked.items()), sum(key[5] * n for key, n in asked.items()), problems


def played(job):
    """(comm, function, bytes) -> how many of them CUDA graphs launched on a rank."""
    return collections.Counter((line["comm"], line["op"], line["bytes"]) for line in job if line["event"] == "replay")


def collectives_done(jobs, doubles):
    """((hash, rank, function, bytes) -> (algorithm, protocol, channels) of each, and how many of them a CUDA graph launched)."""
    done, of_graphs = collections.defaultdict(list), collections.Counter()
    for job, kernels in zip(jobs, doubles):
        hashes = {kernel["comm"]: (kernel["comm_hash"], kernel["rank"]) for kernel in kernels}
        of_graphs.update({(*hashes[comm], op, size): n for (comm, op, size), n in played(job).items()})
        for kernel in kernels:
            channels = collections.defaultdict(set)
            for connection in kernel["connections"]:
                channels[connection["work"]].add(connection["channel"])
            for number, work in enumerate(kernel["works"]):
                function, *choice = work["function"].split("_")
                if function not in SUMMED and channels[number]:
                    done[(kernel["comm_hash"], kernel["rank"], function, work["bytes"])].append((*choice, len(channels[number])))
    return done, of_graphs


def compare_launches(report, jobs, doubles, with_groups, tells_channels):
    """(collectives of a rank, problems): by which algorithm, protocol and on how many channels each collective of a rank went. Of what a CUDA
    graph launches within a node NCCL knows nothing."""
    done, of_graphs = collectives_done(jobs, doubles)
    if not tells_channels:
        done = {key: [(*choice[:2], None) for choice in choices] for key, choices in done.items()}
    told = collections.defaultdict(list)
    ranks = {comm["hash"]: [rank["rank"] for rank in comm["ranks"]] for comm in report["communicators"]}
    problems = []
    for hash_, operation, kind in operations_of(report):
        if kind != "collectives" or operation["op"] in MADE_OF_PAIRS or not operation["count"] or len(ranks[hash_]) == 1:
            continue
        # Broadcasts of a group are one operation there, which NCCL cuts as it likes.
        if operation["op"] == "Broadcast" and any(of_hash == hash_ for of_hash, _ in with_groups):
            continue
        choice = (operation["algorithm"], operation["protocol"], operation["channels"])
        if not operation["launched"] and (choice, operation["captured"]) != ((None, None, None), None):
            problems.append(f"seq {operation['seq']}: {choice}, captured {operation['captured']}, and no launch")
        for rank in ranks[hash_] if operation["launched"] else ():
            told[(hash_, rank, operation["op"], operation["count"] * TYPE_BYTES[operation["datatype"]])].append(choice)
    for key in sorted({*done, *told}, key=str):
        if key[2] == "Broadcast" and key[:2] in with_groups:
            continue
        mine, theirs = collections.Counter(told[key]), collections.Counter(done.get(key, ()))
        if mine - theirs or (theirs - mine).total() != of_graphs[key]:
            problems.append(f"{key}: {dict(mine)}, the double has {dict(theirs)}, {of_graphs[key]} of them by a CUDA graph")
    return sum(map(len, told.values())), problems
