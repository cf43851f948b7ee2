#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stripped official NCCL with another build-id. If its code is that of a build whose layout collwire has, the layout is the file's own, at the file's
addresses. If one instruction of it is another it is not, and no version is taken for another one.

same_code_test.py --collwire BINARY [--version VERSION ...] [--only-full]"""

import argparse
import glob
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # it may run as root

import moved_data
import other_code

HERE = os.path.dirname(os.path.abspath(__file__))
FETCH = os.path.join(HERE, "..", "..", "tools", "fetch-nccl")
LAYOUTS = os.path.join(HERE, "..", "..", "nccl-layouts")
DISTANCE_BYTES = 6 << 20
# The CPU time of a comparison, function by function.
MOST_CPU_S = 2
BUILD_ID_BYTES = 20
SKIPPED = 77


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def plan_of(collwire, library, *options):
    """The layout and the CPU seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    plan = json.loads(output_of(collwire, "doctor", "--nccl", library, "--json", *options))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return plan, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def build_id_of(library):
    return output_of("readelf", "-n", library).split("Build ID: ")[1].split()[0]


def strip(library, path, changes=()):
    """A stripped copy with another build-id, and other bytes at some file offsets."""
    subprocess.run(["objcopy", "--strip-all", library, path], check=True)
    build_id = bytes.fromhex(build_id_of(path))
    with open(path, "r+b") as file:
        at = file.read(4096).index(build_id)
        file.seek(at)
        file.write(bytes(byte ^ 0x5a for byte in build_id))
        for offset, old, new in changes:
            file.seek(offset)
            assert file.read(len(old)) == old
            file.seek(offset)
            file.write(new)
    return path


def repackage(library, path):
    """As another packaging changes a file: stripped by another tool, the note of the build-id replaced, .comment and the section headers elsewhere, a link to
    a debug file."""
    note, comment = f"{path}.note", f"{path}.comment"
    subprocess.run(["objcopy", "--dump-section", f".note.gnu.build-id={note}", "--dump-section", f".comment={comment}", library, f"{path}.dumped"], check=True)
    os.unlink(f"{path}.dumped")
    with open(note, "r+b") as file:
        content = file.read()
        file.seek(len(content) - BUILD_ID_BYTES)
        file.write(os.urandom(BUILD_ID_BYTES))
    with open(comment, "ab") as file:
        file.write(b"another linker\0" * 20)
    subprocess.run(["strip", "--strip-unneeded", "--remove-section=.comment", "-o", path, library], check=True)
    subprocess.run(["objcopy", "--update-section", f".note.gnu.build-id={note}", "--add-section", f".comment={comment}", f"--add-gnu-debuglink={note}", path],
                   check=True)
    return path


def rungs_of(plan):
    return {name: capability["rung"] for name, capability in plan["capabilities"].items()}


def without_sources(plan):
    return {name: {key: value for key, value in offset.items() if key != "source"} for name, offset in plan["offsets"].items()}


def expect_own(whole, plan, distance, what):
    """All as in the whole file; its data are `distance` bytes further."""
    by = "its \\d+ functions, one by one" if distance else "all bytes of code and constants"
    assert re.fullmatch(rf"the same code as {whole['version']} \({whole['build_id'][:12]}\): {by}", plan.get("fits_by") or ""), (what, plan.get("fits_by"))
    assert rungs_of(plan) == rungs_of(whole), (what, rungs_of(plan))
    assert without_sources(plan) == without_sources(whole) and plan["enumerators"] == whole["enumerators"] and plan["version"] == whole["version"], what
    for names in ("data", "parameters"):
        assert plan[names] == {name: address + distance for name, address in whole[names].items()}, (what, names)
    assert plan["host_functions"] == whole["host_functions"], what
    assert plan["probes"] == whole["probes"], (what, [pair for pair in zip(plan["probes"], whole["probes"]) if pair[0] != pair[1]])
    assert {name: capability["missing"] for name, capability in plan["capabilities"].items()} == \
        {name: capability["missing"] for name, capability in whole["capabilities"].items()}, what


def expect_inferred(plan, what):
    assert not (plan.get("fits_by") or "").startswith("the same code as "), (what, plan["fits_by"])
    assert "exact" not in rungs_of(plan).values(), (what, rungs_of(plan))


def check_version(collwire, library, directory):
    whole, _ = plan_of(collwire, library)
    copy = f"{directory}/libnccl.so.2"
    plan, cpu_s = plan_of(collwire, strip(library, copy))
    assert plan["build_id"] != whole["build_id"] and plan["debug_file"].endswith(f"{whole['version']}-{whole['build_id']}.json"), plan["debug_file"]
    expect_own(whole, plan, 0, "another build-id")
    plan, repackaged_cpu_s = plan_of(collwire, repackage(library, copy))
    assert plan["build_id"] != whole["build_id"] and plan["debug_link"], plan
    expect_own(whole, plan, 0, "repackaged")
    moved = f"{directory}/moved"
    n_moved = moved_data.move_data(library, moved, DISTANCE_BYTES)
    plan, moved_cpu_s = plan_of(collwire, strip(moved, copy))
    os.unlink(moved)
    expect_own(whole, plan, DISTANCE_BYTES, "other addresses")
    for function in ("ncclEnqueueCheck", "ncclProxyStart"):
        plan, _ = plan_of(collwire, strip(library, copy, [other_code.other_field(library, whole, function)]))
        expect_inferred(plan, function)
        named = re.search(r"(\d+) of (\d+) known functions have the same code, (\w+) has not$", plan["fits_by"])
        assert named and int(named[1]) == int(named[2]) - 1 and named[3] == function, (function, plan["fits_by"])
    print(f"{whole['version']}: {len(whole['probes'])} probes, {len(whole['data'])} variables, {len(whole['parameters'])} parameters of a stripped copy as in "
          f"the whole file, with another build-id ({cpu_s:.2f} s of CPU), repackaged ({repackaged_cpu_s:.2f} s), and with its data elsewhere ({n_moved} "
          f"operands, {moved_cpu_s:.2f} s); a copy with another field in one function is inferred, and names it", flush=True)
    assert max(cpu_s, repackaged_cpu_s, moved_cpu_s) < MOST_CPU_S


def check_others(collwire, library, directory):
    """The layouts of all other versions are not the file's."""
    version = os.path.basename(os.path.dirname(library)).removeprefix("cu13-")
    alone = shutil.copy(collwire, f"{directory}/collwire")
    others = f"{directory}/others-{version}"
    os.mkdir(others)
    paths = [path for path in glob.glob(f"{LAYOUTS}/*.json") if not os.path.basename(path).startswith(f"{version}-")]
    for path in paths:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        # As if they were of this version: then only the code says otherwise.
        document["version"] = version
        with open(f"{others}/{os.path.basename(path)}", "w", encoding="utf-8") as file:
            json.dump(document, file)
    assert len(paths) >= 27, paths
    plan, _ = plan_of(alone, strip(library, f"{directory}/libnccl.so.2"), "--symbols", others)
    expect_inferred(plan, version)
    print(f"{version}: its code is not that of {len(paths)} other versions: {plan.get('fits_by') or 'API-only'}", flush=True)


def check_lender(collwire, library, directory):
    """Of two builds of the version, that lends which has more in common with the file."""
    alone = shutil.copy(collwire, f"{directory}/collwire")
    whole, _ = plan_of(collwire, library)
    lenders = f"{directory}/lenders-{whole['version']}"
    os.mkdir(lenders)
    own = shutil.copy(f"{LAYOUTS}/{whole['version']}-{whole['build_id']}.json", lenders)
    with open(own, encoding="utf-8") as file:
        document = json.load(file)
    document["build_id"] = "00" * BUILD_ID_BYTES
    document["code"]["entries"] = [[address, number, value ^ 1] for address, number, value in document["code"]["entries"]]
    with open(f"{lenders}/{whole['version']}-{document['build_id']}.json", "w", encoding="utf-8") as file:
        json.dump(document, file)
    changed = strip(library, f"{directory}/libnccl.so.2", [other_code.other_field(library, whole, "ncclProxyStart")])
    plan, _ = plan_of(alone, changed, "--symbols", lenders)
    expect_inferred(plan, "lender")
    assert plan["debug_file"] == own and whole["build_id"][:12] in plan["fits_by"], (plan["debug_file"], plan["fits_by"])
    print(f"{whole['version']}: lent by the build that has more in common with the file", flush=True)


def check_layout_files():
    """No two builds have the same code, and each file has all that a comparison needs."""
    digests = {}
    for path in sorted(glob.glob(f"{LAYOUTS}/*.json")):
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        code = document["code"]
        entries, references = {entry for entry, *_ in code["entries"]}, {address for address, *_ in code["references"] + code["pointers"]}
        pieces = {address for pieces in document["host_functions"].values() for address, _ in pieces}
        assert {probe["entry"] for probe in document["probes"]} | pieces == entries, (path, pieces - entries)
        lost = {name for names in ("data", "parameters") for name, address in document[names].items() if address not in references}
        assert not lost, (path, lost)
        for digest in (code["bytes_sha256"], code["functions_sha256"]):
            assert digest and digests.setdefault(digest, path) == path, (path, digests[digest])
    print(f"{len(digests)} digests of code in the layout files, all different", flush=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--collwire", required=True)
    arguments.add_argument("--version", nargs="*", default=["2.28.9"])
    arguments.add_argument("--only-full", action="store_true")
    arguments = arguments.parse_args()
    if arguments.only_full and os.environ.get("COLLWIRE_FULL") != "1":
        print("only with tools/test --full")
        return SKIPPED
    fetched = subprocess.run([sys.executable, FETCH, *arguments.version], capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        print(fetched.stderr)
        return SKIPPED
    check_layout_files()
    for library in fetched.stdout.split():
        with tempfile.TemporaryDirectory() as directory:
            check_version(arguments.collwire, library, directory)
            check_others(arguments.collwire, library, directory)
            check_lender(arguments.collwire, library, directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
