# SPDX-License-Identifier: Apache-2.0
"""A job of a build of NCCL that collwire knows no layout of: recorded with the layouts of another build of the version, and judged by the double's log."""

import shutil

import one_machine
import double_job
import identity_truth
import inferred_truth
import stripped_test


def share_layout(collwire, nvidia, library, directory):
    """The double finds a layout by build-id. Builds of one version have one layout."""
    build_ids = [stripped_test.plan_of(collwire, each)["build_id"] for each in (nvidia, library)]
    shutil.copy(f"{directory}/{build_ids[0]}.layout", f"{directory}/{build_ids[1]}.layout")


def record(arguments, job, case, nvidia, directory):
    """Records the job of a library that has no types for the double: it gets those of NVIDIA's build. Returns (report, the double's truth)."""
    double_job.Job(nvidia, arguments.build, job.ranks).write_layout(directory)
    share_layout(arguments.collwire, nvidia, job.library, directory)
    job.write_layout = lambda _: None
    report, jobs, _ = one_machine.record(arguments.collwire, job, directory, ["--plan", case.plan_path, *case.job_options])
    return report, identity_truth.Truth(one_machine.logs_of(directory, "truth", job.ranks), identity_truth.same_node(jobs, 1))


def judge(what, report, double, library):
    """No figure differs, none is exact, nearly all bytes have their operation, by another build's layouts."""
    sent, identity = sum(double.sent.values()), report["identity"]
    figures, different = identity_truth.compare_bytes(report, double)
    print(f"{what}: {figures} figures of bytes, {len(different)} different; {identity}, {sent} sent", flush=True)
    assert not different, "\n".join(different[:20])
    assert sent and identity["exact"] == 0 and identity["inferred"] >= stripped_test.FEWEST_JOINED * sent, identity
    assert not (others := inferred_truth.other_bases(report, inferred_truth.OTHER_BUILD, library)), others
