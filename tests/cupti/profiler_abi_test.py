#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layouts of NCCL's profiler interface that the guest declares equal the debug information of the official libraries, and each library takes the
newest version that it has.

profiler_abi_test.py --layout PROGRAM [--versions VERSION,...]"""

import argparse
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cuda_double"))
from double_job import fetched # pylint: disable=wrong-import-position

SKIPPED = 77
# The newest version of the interface in each library.
LIBRARIES = {"2.26.5": 3, "2.27.7": 4, "2.28.9": 5, "2.29.7": 6, "2.30.7": 6, "2.31.2": 7, "2.32.3": 7}
TYPES = {"descr": "ncclProfilerEventDescr_v{}_t", "plugin": "ncclProfiler_v{}_t", "arguments": "ncclProfilerEventStateArgs_v{}_t"}
# Where the context, the hash and the mask are among the arguments of init.
INITS = {3: "void **, int *", 4: "void **, int *, const char *, uint64_t, int, int, int, ncclDebugLogger_t",
         5: "void **, uint64_t, int *, const char *, int, int, int, ncclDebugLogger_t"}


def expected(program):
    lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    return [(int(line.split()[0]), line.split()[1:-1], int(line.split()[-1])) for line in lines]


def expression(version, words):
    kind = words[0]
    if kind == "value":
        return f"(long){words[1]}"
    if kind == "size":
        return f"(long)sizeof({TYPES['plugin'].format(version)})"
    return f"(long)&(({TYPES[kind].format(version)} *)0)->{words[1]}"


def asked(library, questions):
    """The answers of the debugger, in order."""
    command = ["gdb", "-nx", "-batch", "-ex", "set debuginfod enabled off"]
    for question in questions:
        command += ["-ex", question]
    answer = subprocess.run([*command, library], capture_output=True, text=True, check=False)
    return answer.stdout, answer.stderr


def check(library, newest, wanted):
    first = 4 if newest > 3 else 3 # of older ones a library has only what it converts
    compared = 0
    for version in range(first, newest + 1):
        ours = [(words, value) for at, words, value in wanted if at == version]
        out, problems = asked(library, [f"print {expression(version, words)}" for words, _ in ours])
        values = [int(value, 0) for value in re.findall(r"^\$\d+ = (\S+)$", out, re.MULTILINE)]
        assert len(values) == len(ours), f"version {version}: {problems[:400]}"
        for (words, value), theirs in zip(ours, values):
            assert value == theirs, f"version {version}: {' '.join(words)} is {theirs}, the guest expects {value}"
        out, _ = asked(library, [f"ptype {TYPES['plugin'].format(version)}"])
        init = re.search(r"\(\*init\)\((.*?)\);", out)
        assert init and init[1] == INITS[min(version, 5)], out
        compared += len(ours) + 1
    return compared


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--layout", required=True)
    parser.add_argument("--versions", default=",".join(LIBRARIES))
    arguments = parser.parse_args()
    if not shutil.which("gdb"):
        print("skip: gdb is missing. Fix: install gdb")
        sys.exit(SKIPPED)
    table = expected(arguments.layout)
    for name in arguments.versions.split(","):
        try:
            path = fetched(name)
        except RuntimeError as problem:
            print(f"skip: {problem}")
            sys.exit(SKIPPED)
        n = check(path, LIBRARIES[name], table)
        with open(path, "rb") as file:
            names = {int(number) for number in re.findall(rb"ncclProfiler_v(\d+)\0", file.read())}
        assert max(names) == LIBRARIES[name], f"{name}: {names}"
        print(f"{name}: {n} layouts, values and calls as in its debug information, interface {LIBRARIES[name]}")
