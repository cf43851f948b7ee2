#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Debian's own build of NCCL, without symbols and DWARF, unchanged and without options: collwire uses the layouts of NVIDIA's build of the version and
finds the functions; a job's bytes equal the double's log, and none is exact. The double has its symbols from tests/cuda_double/lend_symbols.py.

distribution_test.py --collwire FILE --build DIRECTORY --version VERSION [--keep DIRECTORY] [--only-full]"""

import os
import subprocess
import sys

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import cases
import double_job
import other_build
import stripped_test

RANKS = 4
CASES = ("sockets-default", "sockets-ring-simple", "sockets-tree-ll")
# A build of NVIDIA's with the CUDA runtime that is in Debian's: 12.1, 12.4.
RUNTIMES = {"2.22.3": "2.18.3", "2.29.7": "2.21.5"}
LEND = os.path.join(one_machine.HERE, "..", "cuda_double", "lend_symbols.py")


def lend_symbols(arguments, debian, nvidia, directory):
    path = f"{directory}/symbols"
    done = subprocess.run([sys.executable, LEND, debian, "--runtime", double_job.fetched(RUNTIMES[arguments.version]), "--version", nvidia, "-o", path],
                          capture_output=True, text=True, check=False)
    if "No module named" in done.stderr:
        raise one_machine.Skip(f"{done.stderr.strip().splitlines()[-1]}. Fix: tools/install-deps test")
    assert done.returncode == 0, done.stderr
    return path


def check_case(arguments, case, debian, nvidia, symbols, directory):
    os.mkdir(directory)
    job = double_job.Job(debian, arguments.build, RANKS, c_library=f"{os.path.dirname(debian)}/c-library",
                         environment={"COLLWIRE_CUDA_SYMBOLS": symbols, **case.environment})
    report, double = other_build.record(arguments, job, case, nvidia, directory)
    other_build.judge(f"Debian's {arguments.version}, {case.name}", report, double, debian)


def run(arguments, nvidia, directory):
    debian = double_job.fetched(f"debian-{arguments.version}")
    without_plans = stripped_test.without_plans(arguments.collwire, directory)
    bare = stripped_test.plan_of(without_plans, debian)
    assert "it was stripped" in bare["calls_only"] and f"another build of NCCL {arguments.version}" in bare["calls_only"], bare["calls_only"]
    offsets = stripped_test.plan_of(arguments.collwire, nvidia)["offsets"]
    assert all(bare["offsets"][name]["value"] == offsets[name]["value"] for name in stripped_test.EXPORTED_FIELDS if name in offsets), bare["offsets"]
    by_library = stripped_test.plan_of(without_plans, debian, "--symbols", os.path.dirname(nvidia))
    assert by_library["debug_file"] == nvidia, by_library["debug_file"]
    # Without options: by the layout files of collwire.
    plan = stripped_test.plan_of(arguments.collwire, debian)
    assert "/nccl-layouts/" in plan["debug_file"] and not plan["not_recorded"] and not plan["calls_only"], plan
    assert all(plan[name] == by_library[name] for name in stripped_test.SAME), "the library and its layout file differ"
    found = {probe["function"]: probe["symbol"] for probe in plan["probes"]}
    assert stripped_test.BORROWED <= set(found), found
    assert {capability["rung"] for capability in plan["capabilities"].values()} == {"inferred", "process"}, plan["capabilities"]
    symbols = lend_symbols(arguments, debian, nvidia, directory)
    for name in CASES:
        check_case(arguments, cases.CASES[name], debian, nvidia, symbols, f"{directory}/{name}")


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__), run))
