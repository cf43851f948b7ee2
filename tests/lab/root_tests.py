# SPDX-License-Identifier: Apache-2.0
"""Judge of jobs/root_tests.py: the root tests of NCCL's programs and libraries, and of the GPU source, on a kernel of the lab. The machine's own kernel
may not have what they need, and is one of many whose verifier has to accept the programs."""

import os
import subprocess

import lab_harness as harness

# Of the job, and of its folder in each node's results.
NAME = "root_tests"
PROGRAMS = [os.path.join(harness.ROOT, "build", "release", "tests", "root", name)
            for name in ("gpu_source_test", "nccl_images_test", "nccl_programs_test", "nccl_source_test")]
# These tests run with one of two programs each; one of the two is for kernels without bpf_loop.
ONE_OF_TWO = "Walks/"


def options():
    """For tools/lab."""
    return ["--env", f"ROOT_TESTS={':'.join(PROGRAMS)}"]


def tests_in(program):
    """Names of all tests of the program, by its own list."""
    listed = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    names, suite = set(), ""
    for line in listed.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith("  "):
            names.add(suite + name)
        elif name.endswith("."):
            suite = name
    return names


def check_program(out, program, nodes):
    """Each node has run a part of the tests."""
    name = os.path.basename(program)
    tests = {}
    for node in range(nodes):
        found = harness.load(out, f"node{node}", NAME, f"{name}.json")
        tests.update({f"{suite['name']}.{test['name']}": test for suite in found["testsuites"] for test in suite["testsuite"]})
    assert set(tests) == tests_in(program) != set(), set(tests) ^ tests_in(program)
    failed = [test for test, result in tests.items() if "failures" in result]
    skipped = [test for test, result in tests.items() if result["result"] == "SKIPPED"]
    print(f"{name}: {len(tests)} tests, {len(failed)} failed, {len(skipped)} skipped")
    unexpected = [test for test in skipped if not test.startswith(ONE_OF_TWO)]
    assert len(skipped) < len(tests) and not failed and not unexpected, (failed, unexpected)


def check(out, nodes):
    print("--- root tests", flush=True)
    for program in PROGRAMS:
        check_program(out, program, nodes)
