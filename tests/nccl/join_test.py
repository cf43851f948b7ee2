#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of official NCCL on this machine, over sockets, on the test double of CUDA, each under a recorder: bytes of each operation on each connection
against the logs of the double and of the job; communicators and connections against NCCL's log; control traffic against the bytes given to send().

join_test.py --collwire FILE --build DIRECTORY --version VERSION [--cases CASE,...] [--keep DIRECTORY] [--only-full]"""

import contextlib
import os
import sys
import time

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import cases
import communicators_truth
import control_truth
import double_job
import identity_truth
import join_truth
import nccl_log
import numbers_truth
import options_truth
import own_network

# The double cannot run the kernels of earlier versions: there only communicators and connections are judged.
FIRST_WITH_KERNELS = (2, 20)
DEFAULT = cases.HERE_FULL if os.environ.get("COLLWIRE_FULL") == "1" else cases.HERE


def text_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def check_case(arguments, case, library, directory):
    os.mkdir(directory)
    with own_network.of_devices(case.nics) if case.nics > 1 else contextlib.nullcontext():
        return judge_case(arguments, case, library, directory)


def judge_case(arguments, case, library, directory):
    begin = time.monotonic()
    version = double_job.version_of(library)
    job = double_job.Job(library, arguments.build, case.ranks, ranks_per_node=case.ranks_per_node, environment={
        "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "NCCL_DEBUG_FILE": f"{directory}/nccl.%p.log", **case.environment})
    report, jobs, _ = one_machine.record(arguments.collwire, job, directory, ["--plan", case.plan_path, *case.job_options],
                                           *case.options, may_lose=case.is_cut)
    texts = [text_of(f"{directory}/nccl.{log[0]['pid']}.log") for log in jobs]
    processes = one_machine.processes_of(report, jobs)
    comms, problems = communicators_truth.compare(report, jobs, texts, processes, version)
    connections, of_connections = (0, []) if case.shares_connections else nccl_log.compare(report, dict(zip(processes, texts)))
    control, of_control = control_truth.compare(report, [f"{directory}/sent.{rank}" for rank in range(case.ranks)])
    problems = problems + of_connections + of_control
    line = case.name
    if version >= FIRST_WITH_KERNELS:
        doubles = one_machine.logs_of(directory, "truth", case.ranks)
        line, of_join = join_truth.judge(case, report, jobs, doubles, identity_truth.same_node(jobs, case.ranks_per_node), processes,
                                           report["loss"]["entries"],
                                           {process: nccl_log.senders_of(text) for process, text in zip(processes, texts)})
        of_case, of_options = options_truth.compare(case, report, jobs, doubles, processes, version, identity_truth.Truth(doubles).with_groups)
        of_window, of_numbers = numbers_truth.compare(arguments.collwire, f"{directory}/capture", report, version, must_have_numbers=case.name == "one-node")
        line, problems = f"{line}{of_case}, {of_window} numbers of a part", problems + of_join + of_options + of_numbers
    print(f"{arguments.version} {line}; {comms} communicators; {connections} connections as NCCL prints them; {control} ({time.monotonic() - begin:.0f} s)",
          flush=True)
    return [f"{case.name}: {problem}" for problem in problems]


def run(arguments, library, directory):
    names = arguments.cases.split(",")
    if double_job.version_of(library) < FIRST_WITH_KERNELS:
        names = ("communicators",)
    wanted = [case for case in (cases.CASES[name] for name in names) if case.runs_on(double_job.version_of(library))]
    problems = [problem for case in wanted for problem in check_case(arguments, case, library, f"{directory}/{case.name}")]
    assert not problems, "\n".join(problems[:40])


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__, ("--cases", {"default": ",".join(DEFAULT)})), run))
