#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""More input never gives less: the capabilities of an official library that is stripped, with its debug file, with its layout, and whole; as it is, and
without the name of a function that a fork's compiler inlined. Its build-id is another one, and a function has other code, so that no bundled layout is of this build.

monotone_test.py --collwire FILE --build DIRECTORY --version VERSION [--keep DIRECTORY] [--only-full]"""

import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True  # it may run as root

import one_machine
import other_code

ORDER = ("process", "inferred", "exact")
# What needs commCleanup. All else stays as it is in the whole file.
NEEDS_CLEANUP = {"communicators"}


def run_quietly(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def rungs_of(collwire, library, *options):
    done = subprocess.run([collwire, "doctor", "--nccl", library, "--json", *options], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("{"), f"doctor --nccl {library} {options}: {done.stderr}"
    return {name: ORDER.index(capability["rung"]) for name, capability in json.loads(done.stdout)["capabilities"].items()}


def copy_of_another_build(collwire, library, path):
    plan = json.loads(subprocess.run([collwire, "doctor", "--nccl", library, "--json"], capture_output=True, text=True, check=True).stdout)
    offset, old, new = other_code.other_field(library, plan, "ncclEnqueueCheck")
    with open(library, "rb") as file:
        content = bytearray(file.read())
    assert content[offset:offset + len(old)] == old
    content[offset:offset + len(old)] = new
    notes = subprocess.run(["readelf", "-n", library], capture_output=True, text=True, check=True).stdout
    build_id = bytes.fromhex(re.search(r"Build ID: (\w+)", notes)[1])
    assert content.count(build_id) == 1
    with open(path, "wb") as file:
        file.write(content.replace(build_id, build_id[::-1]))


def variants_of(collwire, whole, directory):
    """name -> capabilities, and the pairs (less input, more input)."""
    stripped, debug, layouts = f"{directory}/stripped.so", f"{directory}/whole.debug", f"{directory}/layouts"
    run_quietly("strip", "-s", "-o", stripped, whole)
    run_quietly("objcopy", "--only-keep-debug", whole, debug)
    rungs = {"whole": rungs_of(collwire, whole), "stripped": rungs_of(collwire, stripped),
             "stripped, with the whole file": rungs_of(collwire, stripped, "--symbols", whole),
             "stripped, with its debug file": rungs_of(collwire, stripped, "--symbols", debug),
             "whole, with itself": rungs_of(collwire, whole, "--symbols", whole)}
    pairs = [("stripped", "whole"), ("stripped", "stripped, with the whole file"), ("stripped", "stripped, with its debug file"),
             ("stripped, with the whole file", "whole"), ("whole", "whole, with itself")]
    os.mkdir(layouts)
    exported = subprocess.run([collwire, "doctor", "--nccl", whole, "--export-plan", layouts], capture_output=True, text=True, check=False)
    if exported.returncode == 0:
        rungs["stripped, with its layout"] = rungs_of(collwire, stripped, "--symbols", layouts)
        pairs.append(("stripped", "stripped, with its layout"))
    return rungs, pairs


def run(arguments, library, directory):
    problems, whole, compared = [], {}, 0
    for name in ("as it is", "without commCleanup"):
        place = f"{directory}/{name.replace(' ', '-')}"
        os.mkdir(place)
        copy_of_another_build(arguments.collwire, library, f"{place}/whole.so")
        if name != "as it is":
            run_quietly("objcopy", "-w", "--strip-symbol=*commCleanup*", f"{place}/whole.so")
        rungs, pairs = variants_of(arguments.collwire, f"{place}/whole.so", place)
        whole[name] = rungs["whole"]
        for less, more in pairs:
            for capability, rung in rungs[less].items():
                compared += 1
                if rungs[more][capability] < rung:
                    problems.append(f"{name}: {capability} is {ORDER[rung]} {less}, and {ORDER[rungs[more][capability]]} {more}")
    for capability, rung in whole["as it is"].items():
        if capability not in NEEDS_CLEANUP and whole["without commCleanup"][capability] != rung:
            problems.append(f"{capability} is {ORDER[rung]}, and without commCleanup {ORDER[whole['without commCleanup'][capability]]}")
    print(f"{arguments.version}: {compared} capabilities compared with those of less input, {len(problems)} problems")
    assert not problems, "\n".join(problems)


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__), run))
