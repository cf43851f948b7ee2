# SPDX-License-Identifier: Apache-2.0
"""The report of a case against its job, on the nodes of the lab and on one machine."""

import exact_truth
import identity_truth
import pairs_truth


def judge(case, report, jobs, doubles, is_local, processes, losses, senders=None):
    """`jobs`, `doubles`: logs of the job and the double, by rank. `processes`: (host, pid) of each rank. `losses`: losses of the report that are an
    error. `senders`: as for `compare_ends`. Returns (summary, problems)."""
    double = identity_truth.Truth(doubles, is_local)
    sent = sum(double.sent.values())
    identity = report["identity"]
    is_cut = case.is_cut and identity["ops_truncated"] > 0
    figures, different = identity_truth.compare_bytes(report, double)
    calls, out_of_order = identity_truth.compare_order(report, jobs)
    pairs, pair_problems = pairs_truth.compare(report, jobs, doubles, is_local, processes, only_exact=is_cut)
    exact, exact_problems = exact_truth.compare(report, double)
    ranks, of_matrix = (0, []) if is_cut else identity_truth.compare_matrix(report, double)
    ends, for_others, of_ends = (0, 0, []) if case.shares_connections else identity_truth.compare_ends(report, senders)
    line = (f"{case.name}: {figures} figures of bytes, {len(different)} different; {ranks} pairs of ranks, {len(of_matrix)} different; "
            f"{exact} exact collectives, {len(exact_problems)} wrong; {calls} calls, {len(out_of_order)} communicators out of order; "
            f"{ends} queue pairs and sockets of their ranks, {for_others} in another rank's process, {len(of_ends)} problems; "
            f"{pairs} sends and receives by their ordinals, {len(pair_problems)} wrong; exact {identity['exact']}, inferred {identity['inferred']}, process {identity['process']} of {sent} sent; {identity['ops_truncated']} launches cut")
    problems = out_of_order + pair_problems + exact_problems + of_matrix + of_ends
    if for_others < case.fewest_for_others:
        problems.append(f"only {for_others} queue pairs and sockets in another rank's process")
    if sent and not ends and not case.shares_connections:
        problems.append("no queue pair and no socket has a rank")
    if not is_cut:
        problems += different
        if losses:
            problems.append(f"lost: {losses}")
        # Null if no bytes went to the network.
        if (identity["exact"], identity["inferred"], identity["process"]) != ((sent, 0, 0) if sent else (None, None, None)):
            problems.append(f"identity {identity}, the double sent {sent}")
    elif not case.fewest_exact_bytes <= identity["exact"] <= sent:
        problems.append(f"exact {identity['exact']}, the double sent {sent}")
    wanted = tuple(case.environment.get(name, "").upper() for name in ("NCCL_ALGO", "NCCL_PROTO"))
    if all(wanted) and not any(wanted in chosen for chosen in double.choices.values()):
        problems.append(f"no operation used {wanted}")
    if figures < case.fewest_figures or calls < case.fewest_calls or pairs < case.fewest_pairs:
        problems.append(f"only {figures} figures, {calls} calls and {pairs} sends and receives compared")
    most = most_operations(doubles)
    if most < case.fewest_in_launch:
        problems.append(f"no launch of a rank has more than {most} proxy operations")
    return line, problems


def most_operations(doubles):
    """The most proxy operations of one launch, which are one for each work and connection."""
    return max((len(kernel["connections"]) for kernels in doubles for kernel in kernels), default=0)
