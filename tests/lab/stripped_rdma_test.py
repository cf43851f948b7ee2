#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""NCCL that was stripped, over kernel RDMA on four nodes: by the layouts of another build of its version the report joins its bytes with operations,
none of them exact. Against the log of the test double of CUDA, which alone is told of the symbols.

stripped_rdma_test.py [--kernel SERIES] --nccl VERSION|debian-VERSION [--cases CASE,...] [--calls-only]

VERSION: the official library, stripped, with a plan in which all but the layouts is wrong; debian-VERSION: Debian's own build, with no option.
--calls-only: the official library, stripped, and no layouts at all: whose bytes are follows from its exported functions and threads, and which operation's from
what calls that are alike have in common."""

import argparse
import glob
import os
import subprocess
import sys

import lab_harness as harness
import nccl_run

sys.path[:0] = [os.path.join(harness.ROOT, "tests", "nccl"), os.path.join(harness.ROOT, "tests", "cuda_double")]

import calls_truth  # noqa: E402
import cases  # noqa: E402
import distribution_test  # noqa: E402
import identity_truth as truth  # noqa: E402
import inferred_truth  # noqa: E402
import late_truth as late  # noqa: E402
import one_machine  # noqa: E402
import other_build  # noqa: E402
import stripped_test  # noqa: E402

CASES = ("training", "two-qps-split", "late")
DEBIAN = "debian-"
# Of bytes, with an operation, where calls alone are recorded: two of the world's always come together, and what never rests is told by communicator.
FEWEST_BY_CALLS = {"calls": 0.4}


def write_layout(library, directory):
    os.makedirs(directory, exist_ok=True)
    subprocess.run([f"{nccl_run.DOUBLE}/nccl_layout", library, directory], check=True, stdout=subprocess.DEVNULL)


def of_official(arguments, directory):
    """For jobs/nccl.py: the variables that name the library, and what collwire and the double are told of it."""
    library = nccl_run.library_of(arguments.nccl)
    stripped, _, _ = stripped_test.strip(library, directory)
    program = stripped_test.without_plans(harness.COLLWIRE, directory)
    words = argparse.Namespace(collwire=program, version=arguments.nccl)
    subprocess.run([program, "doctor", "--nccl", library, "--export-plan", f"{directory}/plans"], check=True, stdout=subprocess.DEVNULL)
    others = stripped_test.check_borrowed(words, library, stripped, f"{directory}/plans", directory)
    write_layout(library, f"{directory}/layouts")
    return {"NCCL_LIBRARY": stripped, "COLLWIRE_CUDA_SYMBOLS": library, "RECORDER": program, "RECORD_OPTIONS": f"--symbols {others}"}


def of_calls(arguments, directory):
    library = nccl_run.library_of(arguments.nccl)
    stripped, _, _ = stripped_test.strip(library, directory)
    write_layout(library, f"{directory}/layouts")
    return {"NCCL_LIBRARY": stripped, "COLLWIRE_CUDA_SYMBOLS": library, "RECORDER": stripped_test.without_plans(harness.COLLWIRE, directory)}


def of_debian(arguments, directory):
    version = arguments.nccl.removeprefix(DEBIAN)
    library, nvidia = (nccl_run.library_of(name) for name in (arguments.nccl, version))
    symbols = distribution_test.lend_symbols(argparse.Namespace(version=version), library, nvidia, directory)
    write_layout(nvidia, f"{directory}/layouts")
    other_build.share_layout(harness.COLLWIRE, nvidia, library, f"{directory}/layouts")
    return {"NCCL_LIBRARY": library, "COLLWIRE_CUDA_SYMBOLS": symbols, "C_LIBRARY": f"{os.path.dirname(library)}/c-library"}


def check_late(case, report, doubles, out, is_local, ready_ns):
    """What was launched since the recorders were ready has one number on all ranks and is the double's to the byte."""
    logs = {(f"node{node}", truth.lines_of(os.path.join(out, f"node{node}", case.name, f"job.{node}"))[0]["pid"]): node for node in range(nccl_run.NODES)}
    compared, problems = late.compare(report, doubles, logs, ready_ns, is_local, rung="inferred")
    sends, of_sends = late.compare_sends(report, doubles, ready_ns, is_local, rung="inferred")
    if compared < case.fewest_figures or not sends:
        problems.append("too little to compare")
    return f"{compared} collectives of a rank and {sends} sends compared, {len(problems + of_sends)} problems", problems + of_sends


def check_case(case, out, calls_only):
    captures = sorted(glob.glob(os.path.join(out, "node*", case.name, "capture")))
    report = harness.report_of(captures, os.path.join(out, f"{case.name}.json"), "--topology", os.path.join(out, "topology.json"), "--detail",
                               quiet=True, expected=(0, harness.LOST))
    jobs, doubles = ([truth.lines_of(path) for path in sorted(glob.glob(os.path.join(out, "node*", case.name, name)))] for name in ("job.*", "double.*"))
    is_local = truth.same_node(jobs, case.ranks_per_node)
    others = inferred_truth.other_bases(report, inferred_truth.EXPORTED if calls_only else inferred_truth.OTHER_BUILD)
    of_basis = [f"{case.name}: operations are said to rest on {basis}" for basis in others]
    if calls_only:
        line, problems = calls_truth.judge(report, truth.Truth(doubles, is_local), FEWEST_BY_CALLS.get(case.name, 0))
        print(f"{case.name}: {line}", flush=True)
        return of_basis + [f"{case.name}: {problem}" for problem in problems]
    ready_ns = nccl_run.ready_ns_of(case, out) if case.late_s else None
    under_way = late.most_under_way(doubles, ready_ns, is_local) if ready_ns else None
    line, problems = inferred_truth.judge(report, truth.Truth(doubles, is_local), under_way, 0 if ready_ns else inferred_truth.FEWEST_JOINED)
    print(f"{case.name}: {line}", flush=True)
    if ready_ns:
        line, of_late = check_late(case, report, doubles, out, is_local, ready_ns)
        print(f"{case.name}: {line}", flush=True)
        problems += of_late
    return of_basis + [f"{case.name}: {problem}" for problem in problems]


def check(arguments, out):
    directory = os.path.join(os.path.dirname(out), "library")
    os.makedirs(directory)
    try:
        of_build = of_calls if arguments.calls_only else of_debian if arguments.nccl.startswith(DEBIAN) else of_official
        variables = of_build(arguments, directory)
    except (one_machine.Skip, RuntimeError) as reason:
        print(f"skip: {reason}")
        sys.exit(harness.SKIPPED)
    wanted = [cases.CASES[name] for name in arguments.cases.split(",")]
    variables.update({"DOUBLE": nccl_run.DOUBLE, "LAYOUTS": f"{directory}/layouts", "NCCL_CASES": ",".join(case.name for case in wanted)})
    words = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    harness.run_job(out, arguments.kernel, nccl_run.NODES, "nccl.py", *words, limit_s=nccl_run.BOOT_S + nccl_run.JOB_S * len(wanted))
    problems = [problem for case in wanted for problem in check_case(case, out, arguments.calls_only)]
    assert not problems, "\n".join(problems[:40])


def main():
    parser = argparse.ArgumentParser()
    harness.add_arguments(parser)
    parser.add_argument("--cases", default=",".join(CASES), metavar=",".join(CASES))
    parser.add_argument("--calls-only", action="store_true")
    harness.run_main(parser.parse_args(), check)


if __name__ == "__main__":
    main()
