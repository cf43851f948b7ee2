# SPDX-License-Identifier: Apache-2.0
"""The communicators of a report against the job's log (ranks, processes) and NCCL's own (NCCL_DEBUG=INFO: hash, parent)."""

import collections
import re

_LINE = re.compile(r"comm (0x\w+) rank (\d+) nranks (\d+) .*busId \w+(?: commId (0x\w+))?(?: parent (0x\w+))?.* Init COMPLETE")
# Before it NCCL prints the hash of the id that a communicator was made with, which is another number. Up to 2.30 it prints no hash of a communicator
# with a parent.
FIRST_WITH_HASH = (2, 26)


def printed_by_nccl(text):
    """[(rank, ranks, hash or None, parent's hash or None)], by creation."""
    printed, hashes = [], {}
    for comm, rank, ranks, hash_, parent in _LINE.findall(text):
        hashes[comm] = f"0x{int(hash_, 16):016x}" if hash_ else None
        printed.append((int(rank), int(ranks), hashes[comm], hashes.get(parent)))
    return printed


def compare(report, jobs, texts, processes, version):
    """`texts`: NCCL's log of each rank. Returns (communicators compared, problems)."""
    members = collections.defaultdict(dict)  # (name, instance, ranks of the world) -> rank -> process
    for job, process in zip(jobs, processes):
        for line in job:
            if line["event"] == "created":
                members[(line["communicator"], line["instance"], tuple(line["world_ranks"]))][line["rank"]] = process
    asked = collections.Counter((len(ranks), tuple(sorted(of_ranks.items()))) for (_, _, ranks), of_ranks in members.items())
    found = collections.Counter((comm["n_ranks"], tuple(sorted((rank["rank"], (rank["host"], rank["pid"])) for rank in comm["ranks"] if not rank["missing"])))
                                for comm in report["communicators"])
    problems = [f"{count} times {comm} is not in the report" for comm, count in (asked - found).items()]
    problems += [f"{count} times {comm} is only in the report" for comm, count in (found - asked).items()]
    problems += [f"{comm['hash']}: not destroyed" for comm in report["communicators"] if not comm["ended"]]
    if version >= FIRST_WITH_HASH:
        problems += _hashes(report, texts, processes)
    return sum(asked.values()), problems


def _hashes(report, texts, processes):
    """Hash and parent's hash of every rank's part, as far as NCCL prints them."""
    hashes = {comm["id"]: comm["hash"] for comm in report["communicators"]}
    ours, printed = (collections.Counter() for _ in range(2))
    for process, text in zip(processes, texts):
        for rank, ranks, hash_, parent in printed_by_nccl(text):
            printed.update((what, process, rank, ranks, value) for what, value in (("hash", hash_), ("parent", parent)) if value)
    for comm in report["communicators"]:
        for rank in comm["ranks"]:
            if not rank["missing"]:
                of_rank = ((rank["host"], rank["pid"]), rank["rank"], comm["n_ranks"])
                ours.update([("hash", *of_rank, comm["hash"]), ("parent", *of_rank, hashes.get(comm["parent"]))])
    problems = [] if printed else ["NCCL printed no communicator"]
    return problems + [f"NCCL prints {entry}, not in the report" for entry in printed - ours]
