#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NCCL's static library, linked into a library of another name as PyTorch's own builds do: with its symbols and without them. collwire uses the
layouts of NVIDIA's build of the version. A job's bytes equal the double's log, and none is exact.

The static library is Debian's. The CUDA runtime that it would be linked with is a library of empty functions, which the double replaces.

static_test.py --collwire FILE --build DIRECTORY --version VERSION [--keep DIRECTORY] [--only-full]"""

import os
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import cases
import double_job
import other_build
import stripped_test

RANKS = 4
CASE = cases.CASES["sockets-default"]
NAME = "libtraining.so"
RUNTIME = re.compile(r"(?:__)?cuda\w+")
OF_EACH_FILE = "__cudaRegisterLinkedBinary"  # NCCL's own
EMPTY = '__attribute__((noinline, visibility("hidden"))) int {}(void) {{ __asm__ volatile(".zero 32, 0x90"); return 46; }}\n'  # cudaErrorDevicesUnavailable
MISSING = {True: "functions by its own symbols", False: "functions by what they log"}


def run_tool(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def link(archive, directory):
    """The library NAME with all of NCCL in it."""
    undefined = {line.split()[-1] for line in run_tool("nm", "--undefined-only", archive).splitlines() if line.strip()}
    names = sorted(name for name in undefined if RUNTIME.fullmatch(name) and not name.startswith(OF_EACH_FILE))
    assert "cudaLaunchKernel" in names, names
    with open(f"{directory}/runtime.c", "w", encoding="ascii") as file:
        file.writelines(EMPTY.format(name) for name in names)
    run_tool("gcc", "-c", "-fPIC", "-o", f"{directory}/runtime.o", f"{directory}/runtime.c")
    run_tool("g++", "-shared", "-Wl,--build-id", "-Wl,-z,noexecstack", f"-Wl,-soname,{NAME}", "-o", f"{directory}/{NAME}", "-Wl,--whole-archive", archive,
             "-Wl,--no-whole-archive", f"{directory}/runtime.o", "-lpthread", "-lrt", "-ldl")
    return f"{directory}/{NAME}"


def place(library, directory):
    """The test's program is linked with libnccl.so.2: an empty library of that name, which needs the other one. Returns that one."""
    os.mkdir(directory)
    mapped = shutil.copy(library, f"{directory}/{NAME}")
    run_tool("gcc", "-shared", "-Wl,--no-as-needed", "-Wl,-soname,libnccl.so.2", "-o", f"{directory}/libnccl.so.2", mapped)
    return mapped


def check(arguments, nvidia, whole, library, directory):
    mapped = place(library, directory)
    plan = stripped_test.plan_of(arguments.collwire, mapped)
    assert plan["symbol_table"] == (library == whole) and not plan["calls_only"] and not plan["not_recorded"], plan
    assert {capability["rung"] for capability in plan["capabilities"].values()} == {"inferred", "process"}, plan["capabilities"]
    assert MISSING[library == whole] in plan["capabilities"]["operations"]["source"], plan["capabilities"]
    c_library = f"{os.path.dirname(double_job.fetched('debian-' + arguments.version))}/c-library"
    job = double_job.Job(mapped, arguments.build, RANKS, c_library=c_library, environment={
        "LD_LIBRARY_PATH": f"{arguments.build}:{directory}:{c_library}", "COLLWIRE_CUDA_SYMBOLS": whole, "COLLWIRE_CUDA_LIBRARY": NAME, **CASE.environment})
    report, double = other_build.record(arguments, job, CASE, nvidia, directory)
    other_build.judge(f"static {arguments.version}, {'symbols kept' if library == whole else 'stripped'}, in {mapped}", report, double, mapped)


def run(arguments, nvidia, directory):
    whole = link(double_job.fetched(f"static-{arguments.version}"), directory)
    stripped = f"{directory}/stripped.so"
    run_tool("strip", "-o", stripped, whole)
    check(arguments, nvidia, whole, whole, f"{directory}/whole")
    check(arguments, nvidia, whole, stripped, f"{directory}/stripped")


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__), run))
