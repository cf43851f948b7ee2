#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Root tests of NCCL's programs and images on a kernel of the lab: the machine's own may not have what they need, and is one of many
whose verifier has to take the programs.

root_tests_test.py [--kernel SERIES]"""

import os

import lab_harness as harness

PROGRAMS = [os.path.join(harness.ROOT, "build", "release", "tests", "root", name)
            for name in ("nccl_images_test", "nccl_programs_test", "nccl_source_test")]
# By one of two programs each, of which one is for kernels without bpf_loop.
ONE_OF_TWO = "Walks/"


def check(out, program):
    name = os.path.basename(program)
    told = harness.load(out, "node0", f"{name}.json")
    tests = {f"{suite['name']}.{test['name']}": test for suite in told["testsuites"] for test in suite["testsuite"]}
    failed = [test for test, result in tests.items() if "failures" in result]
    skipped = [test for test, result in tests.items() if result["result"] == "SKIPPED"]
    print(f"{name}: {len(tests)} tests, {len(failed)} failed, {len(skipped)} skipped")
    unexpected = [test for test in skipped if not test.startswith(ONE_OF_TWO)]
    assert tests and len(skipped) < len(tests) and not failed and not unexpected, (failed, unexpected)


def check_run(arguments, out):
    harness.run_job(out, arguments.kernel, 1, "root_tests.py", "--env", f"ROOT_TESTS={':'.join(PROGRAMS)}")
    for program in PROGRAMS:
        check(out, program)


if __name__ == "__main__":
    harness.run_on_a_kernel(check_run)
