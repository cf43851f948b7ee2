# SPDX-License-Identifier: Apache-2.0
"""What is inferred, against the log of the test double of CUDA: how much is joined, how much of it is wrong, and how much the report says that it is
sure of."""

import identity_truth

FEWEST_JOINED, MOST_WRONG = 0.99, 0.001
# However much may have been under way, so much is joined.
FEWEST_OF_LATE = 0.9


OTHER_BUILD, EXPORTED = "layouts of another build of", "the functions that it exports"


def other_bases(report, expected):
    """What the report says that its operations rest on, of the libraries of which it does not say this."""
    bases = [library["basis"] for library in report["nccl"]]
    return [basis for basis in bases if not (basis or "").startswith(expected)] if bases else ["no library at all"]


def judge(report, double, under_way=None, least_confirmed=0.0):
    """(a line that says what was seen, problems). `under_way`: None where the recorders saw the job from its begin to its end, so that the log's
    bytes are the report's; else how many bytes may have been under way when they began (late_truth.most_under_way), which are of no operation, and
    what is not joined is the report's own count. `least_confirmed`: this share at least is confirmed."""
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
    line += f"; {100 * confirmed / max(1, inferred):.2f} % confirmed"
    if identity["exact"]:
        problems.append(f"{identity['exact']} bytes are exact, though nothing proves it")
    line += "" if is_whole else f"; up to {under_way} were under way"
    if not inferred or inferred < max(FEWEST_JOINED * (whole - (under_way or 0)), FEWEST_OF_LATE * whole):
        problems.append(f"{inferred} of {whole} bytes are joined, of which no more than {under_way or 0} can have been under way")
    if not least_confirmed * inferred <= confirmed <= inferred:
        problems.append(f"{confirmed} of {inferred} bytes are confirmed, though nothing differs")
    return line, problems
