# SPDX-License-Identifier: Apache-2.0
"""Judge of jobs/root_tests.py: the root tests of NCCL's programs and libraries on a kernel of the lab. The machine's own kernel may not have what
they need, and is one of many whose verifier has to accept the programs."""

import os

import lab_harness as harness

# Of the job, and of its folder in each node's results.
NAME = "root_tests"
PROGRAMS = [os.path.join(harness.ROOT, "build", "release", "tests", "root", name)
            for name in ("nccl_images_test", "nccl_programs_test", "nccl_source_test")]
# These tests run with one of two programs each; one of the two is for kernels without bpf_loop.
ONE_OF_TWO = "Walks/"


def options():
    """For tools/lab."""
    return ["--env", f"ROOT_TESTS={':'.join(PROGRAMS)}"]


def check_program(out, program):
    name = os.path.basename(program)
    found = harness.load(out, "node0", NAME, f"{name}.json")
    tests = {f"{suite['name']}.{test['name']}": test for suite in found["testsuites"] for test in suite["testsuite"]}
    failed = [test for test, result in tests.items() if "failures" in result]
    skipped = [test for test, result in tests.items() if result["result"] == "SKIPPED"]
    print(f"{name}: {len(tests)} tests, {len(failed)} failed, {len(skipped)} skipped")
    unexpected = [test for test in skipped if not test.startswith(ONE_OF_TWO)]
    assert tests and len(skipped) < len(tests) and not failed and not unexpected, (failed, unexpected)


def check(out):
    print("--- root tests", flush=True)
    for program in PROGRAMS:
        check_program(out, program)
