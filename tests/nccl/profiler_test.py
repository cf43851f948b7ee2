#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job of official NCCL on this machine, over sockets, on the test double of CUDA, with the tests' profiler plugin: the operations in the report equal
NCCL's events for the plugin.

profiler_test.py --collwire FILE --build DIRECTORY --plugin FILE --version VERSION [--keep DIRECTORY]"""

import os
import sys

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import cases
import double_job
import identity_truth
import profiler_truth

RANKS = 2
FEWEST_COLLECTIVES, FEWEST_PAIRS = 30, 20


def run(arguments, library, directory):
    job = double_job.Job(library, arguments.build, RANKS, environment={"NCCL_PROFILER_PLUGIN": os.path.realpath(arguments.plugin),
                                                                       "COLLWIRE_PROFILER_LOG": f"{directory}/profiler"})
    plan = os.path.join(cases.JOBS, "identities.job")
    report, jobs, _ = one_machine.record(arguments.collwire, job, directory, ["--plan", plan])
    logs = [identity_truth.lines_of(f"{directory}/profiler.{log[0]['pid']}") for log in jobs]
    collectives, pairs, problems = profiler_truth.compare(report, logs)
    print(f"{arguments.version}: {collectives} collectives and {pairs} sends and receives as in NCCL's events for the profiler plugin, "
          f"{len(problems)} problems; {len(report['communicators'])} communicators")
    assert not problems, "\n".join(problems[:20])
    assert collectives >= FEWEST_COLLECTIVES and pairs >= FEWEST_PAIRS, "too few were compared"


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__, ("--plugin", {"required": True})), run))
