# SPDX-License-Identifier: Apache-2.0
"""Inferred operations against the log of the test double of CUDA: the share of joined bytes, of wrong ones, and of those that the report confirms."""

import os

import identity_truth

FEWEST_JOINED, MOST_WRONG = 0.99, 0.001
# The least joined share of a late attach, whatever was in flight.
FEWEST_OF_LATE = 0.9


OTHER_BUILD, EXPORTED = "layouts of another build of", "the functions that it exports"


def other_bases(report, expected, path=None):
    """The evidence of the report's libraries where it is not `expected`. `path`: of the job's library, where other jobs may run on the machine."""
    bases = [library["basis"] for library in report["nccl"] if path is None or library["path"] == os.path.realpath(path)]
    return [basis for basis in bases if not (basis or "").startswith(expected)] if bases else ["no library at all"]


def judge(report, double, under_way=None, least_confirmed=0.0):
    """(summary, problems). `under_way`: None if the recorders covered the whole job, whose bytes are then the log's. For a late attach it is the most
    bytes that were in flight (late_truth.most_under_way), which have no operation; all bytes are then the report's own count.
    `least_confirmed`: the least share of confirmed bytes."""
    identity, problems, is_whole = report["identity"], [], under_way is None
    inferred, of_process = identity["inferred"] or 0, identity["process"] or 0
    whole = sum(double.sent.values()) if is_whole else inferred + of_process
    line = f"inferred {inferred}, process {of_process}"
    if is_whole:
        figures, different = identity_truth.compare_bytes(report, double)
        line += f" of {whole} sent; {figures} figures of bytes, {len(different)} different"
        if not figures or len(different) > MOST_WRONG * figures:
            problems += [f"{len(different)} of {figures} figures are wrong", *different[:10]]
    confirmed = identity["inferred_confirmed"]
    line += f"; {100 * confirmed / max(1, inferred):.2f} % confirmed" if confirmed is not None else "; confirmed: unknown, with other jobs on the machine"
    if identity["exact"]:
        problems.append(f"{identity['exact']} bytes are exact, without proof")
    line += "" if is_whole else f"; up to {under_way} in flight"
    if not inferred or inferred < max(FEWEST_JOINED * (whole - (under_way or 0)), FEWEST_OF_LATE * whole):
        problems.append(f"{inferred} of {whole} bytes are joined, and at most {under_way or 0} were in flight")
    if confirmed is not None and not least_confirmed * inferred <= confirmed <= inferred:
        problems.append(f"{confirmed} of {inferred} bytes are confirmed, although nothing differs")
    return line, problems
