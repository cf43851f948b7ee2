# SPDX-License-Identifier: Apache-2.0
"""The report of a job on a GPU against NCCL's events for a profiler plugin, the bytes given to send(), and the order of the program's calls."""

import identity_truth
import profiler_truth

FEWEST = 1


def without_pairs(report, profiles):
    """Report and events without communicators with collectives that NCCL makes into sends and receives: the plugin has events of those."""
    apart = {collective["comm"] for collective in report["collectives"] if collective["op"] in identity_truth.MADE_OF_PAIRS}
    hashes = {comm["hash"] for comm in report["communicators"] if comm["id"] in apart}
    kept = {kind: [entry for entry in report[kind] if entry["comm"] not in apart] for kind in ("collectives", "p2p")}
    communicators = [comm for comm in report["communicators"] if comm["id"] not in apart]
    return {**report, **kept, "communicators": communicators}, [[line for line in log if line["hash"] not in hashes] for log in profiles]


def judge(report, jobs, directory, protocol, of_torch=False):
    """Returns (summary, problems)."""
    profiles = [identity_truth.lines_of(f"{directory}/profiler.{log[0]['pid']}") for log in jobs]
    collectives, pairs, problems = profiler_truth.compare(*without_pairs(report, profiles))
    messages, payload = identity_truth.messages_of([f"{directory}/sent.{rank}" for rank in range(len(jobs))])
    identity = report["identity"]
    sums = tuple(identity[rung] or 0 for rung in ("exact", "inferred", "process"))
    if sums != (payload, 0, 0):
        problems.append(f"identity {identity}: {payload} bytes were given to send() in {messages} messages")
    calls = 0
    if not of_torch:
        calls, out_of_order = identity_truth.compare_order(report, jobs)
        problems += [f"out of order: {each}" for each in out_of_order]
    replays = sum(collective["replay"] is not None for collective in report["collectives"])
    # The job logs a line for each launch of a captured call, PyTorch's loop their numbers.
    wanted = sum(line["event"] == "replay" for line in jobs[0]) or jobs[0][0].get("replays", 0) * jobs[0][0].get("captured", 0)
    if replays != wanted:
        problems.append(f"{replays} launches of captured operations, the program made {wanted}")
    if protocol and not any(collective["protocol"] == protocol.upper() for collective in report["collectives"]):
        problems.append(f"no operation used {protocol}")
    if report["loss"]["entries"]:
        problems.append(f"lost: {report['loss']['entries']}")
    if collectives < FEWEST or not payload:
        problems.append("too little to compare")
    return (f"{collectives} collectives and {pairs} sends and receives as in NCCL's events for the profiler plugin, {calls} calls in the program's order, "
            f"{replays} from graphs; {payload} B in {messages} messages, exact {sums[0]}, inferred {sums[1]}, process {sums[2]}; {len(problems)} problems"), problems
