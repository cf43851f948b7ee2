#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL, stripped of symbols and DWARF as distributions do: with its debug file, or with a plan that was kept of it, collwire knows what it
knew before, and of a job what the double's log says. With the layouts of another build of its version alone, it finds the functions in the file, and
nothing is exact. Without any it says what is missing. Files of another build are not taken for its own.

stripped_test.py --collwire FILE --build DIRECTORY --version VERSION [--keep DIRECTORY] [--only-full]"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True  # it runs as root

import one_machine
import cases
import double_job
import identity_truth
import inferred_truth
import join_truth

RANKS = 4
CASE = cases.CASES["sockets-ring-simple"]
# Before it NCCL's kernels have no double.
FIRST_WITH_KERNELS = (2, 20)
# Of what it sends.
FEWEST_JOINED = 0.99
# What a stripped file is searched for.
BORROWED = {"ncclCommInitRankFunc", "commCleanup", "ncclEnqueueCheck", "ncclProxyStart", "hostStreamPlanTask", "hostStreamPlanCallback", "ncclIbCloseSend",
            "ncclIbCloseRecv"}
BORROWED_DATA = ("ncclLastError", "ncclNetIb", "ncclNetSocket")
# What is left where nothing else is there.
EXPORTED_CALLS = ("ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommInitRankScalable", "ncclCommSplit", "ncclCommDestroy", "ncclCommAbort", "ncclAllReduce", "ncclBroadcast", "ncclReduce", "ncclAllGather", "ncclReduceScatter", "ncclSend", "ncclRecv",
                  "ncclAlltoAll", "ncclGather", "ncclScatter")
EXPORTED_FIELDS = ("ncclComm.rank", "ncclComm.nRanks", "ncclComm.cudaDev", "ncclComm.commHash", "ncclComm.startMagic")
SAME = ("version", "build_id", "probes", "data", "parameters", "enumerators")


def plan_of(collwire, library, *options):
    done = subprocess.run([collwire, "doctor", "--nccl", library, "--json", *options], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def strip(library, directory):
    """(the stripped copy, a directory with its debug file as distributions keep it)"""
    os.makedirs(f"{directory}/lib")
    stripped = f"{directory}/lib/libnccl.so.2"
    subprocess.run(["objcopy", "--strip-all", library, stripped], check=True)
    build_id = subprocess.run(["readelf", "-n", stripped], capture_output=True, text=True, check=True).stdout.split("Build ID: ")[1].split()[0]
    place = f"{directory}/debug/.build-id/{build_id[:2]}"
    os.makedirs(place)
    subprocess.run(["objcopy", "--only-keep-debug", library, f"{place}/{build_id[2:]}.debug"], check=True)
    return stripped, f"{directory}/debug", build_id


def expect_same(whole, plan, place):
    different = [name for name in SAME if plan[name] != whole[name]]
    offsets = {name: [offset[key] for key in ("value", "size_bytes", "elements")] for name, offset in whole["offsets"].items()}
    found = {name: [offset[key] for key in ("value", "size_bytes", "elements")] for name, offset in plan["offsets"].items()}
    assert not different and found == offsets, (different, {name for name in offsets if found.get(name) != offsets[name]})
    rungs = {name: capability["rung"] for name, capability in whole["capabilities"].items()}
    assert {name: capability["rung"] for name, capability in plan["capabilities"].items()} == rungs
    assert plan["debug_file"].startswith(place), plan["debug_file"]
    assert all("file's own" not in (capability["source"] or "") or "a plan of" in capability["source"] for capability in plan["capabilities"].values())


def check_exported(version, stripped, whole, bare):
    """Nothing but the functions that it exports: where they are the table of dynamic symbols says, and what its getters hand on the whole file's DWARF."""
    assert "it was stripped" in bare["calls_only"] and "--symbols" in bare["calls_only"] and not bare["not_recorded"], bare
    rungs = {name: capability["rung"] for name, capability in bare["capabilities"].items()}
    assert rungs == {name: "inferred" if name in ("communicators", "operations") else "process" for name in rungs}, rungs
    offsets = {name: offset["value"] for name, offset in bare["offsets"].items()}
    wanted = {name for name in EXPORTED_FIELDS if name in whole["offsets"]}
    assert offsets == {name: whole["offsets"][name]["value"] for name in wanted}, (offsets, wanted)
    symbols = subprocess.run(["nm", "--dynamic", "--defined-only", stripped], capture_output=True, text=True, check=True).stdout
    addresses = {words[2].split("@")[0]: int(words[0], 16) for words in (line.split() for line in symbols.splitlines()) if len(words) == 3}
    found = {probe["function"]: probe for probe in bare["probes"]}
    assert set(found) == {name for name in EXPORTED_CALLS if name in addresses}, set(found)
    assert all(probe["entry"] == addresses[name] and probe["placed"] == "always" for name, probe in found.items()), found
    assert all(probe["emulated"] for probe in found.values()), [probe for probe in found.values() if not probe["emulated"]]
    assert bare["data"] == {"ncclLastError": whole["data"]["ncclLastError"]}, bare["data"]
    print(f"{version}: {len(found)} exported functions and {len(offsets)} fields of the stripped file alone, as its symbols and DWARF said", flush=True)


def check_plans(arguments, library, stripped, debug, directory):
    whole, bare = plan_of(arguments.collwire, library), plan_of(arguments.collwire, stripped)
    check_exported(arguments.version, stripped, whole, bare)
    expect_same(whole, plan_of(arguments.collwire, stripped, "--symbols", debug), debug)
    # Beside the library, by its name.
    shutil.copy(plan_of(arguments.collwire, stripped, "--symbols", debug)["debug_file"], f"{directory}/libnccl.so.2.debug")
    expect_same(whole, plan_of(arguments.collwire, stripped, "--symbols", directory), directory)
    plans = f"{directory}/plans"
    kept = subprocess.run([arguments.collwire, "doctor", "--nccl", library, "--export-plan", plans], capture_output=True, text=True, check=True)
    path = kept.stdout.strip()
    expect_same(whole, plan_of(arguments.collwire, stripped, "--symbols", plans), plans)
    expect_same(whole, plan_of(arguments.collwire, stripped, "--symbols", path), path)
    # A plan that is wrong for this file.
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    for change in ({"offsets": {**document["offsets"], "ncclComm.nRanks": {**document["offsets"]["ncclComm.nRanks"], "value": 8}}},
                   {"probes": [{**probe, "address": probe["address"] + 1} for probe in document["probes"]]}):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**document, **change}, file)
        refused = plan_of(arguments.collwire, stripped, "--symbols", plans)
        assert refused["calls_only"] and not refused["debug_file"], (change.keys(), refused["debug_file"])
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file)
    nothing = subprocess.run([arguments.collwire, "doctor", "--nccl", stripped, "--export-plan", plans], capture_output=True, text=True, check=False)
    assert nothing.returncode == 1 and nothing.stderr.count("\n") == 1 and "no layout to save" in nothing.stderr, nothing.stderr
    print(f"{arguments.version}: {len(whole['offsets'])} offsets, {len(whole['probes'])} probes, {len(whole['parameters'])} parameters as of the whole file, "
          "by its debug file and by a plan of it; wrong plans are refused", flush=True)
    return plans


def check_borrowed(arguments, library, stripped, plans, directory):
    """A plan of another build: of this one's all but the layouts is made wrong in it. What is found in the stripped file is what its symbols said.
    Returns where it is."""
    whole = plan_of(arguments.collwire, library)
    with open(f"{plans}/{whole['version']}-{whole['build_id']}.json", encoding="utf-8") as file:
        document = json.load(file)
    others = f"{directory}/others"
    os.mkdir(others)
    document["build_id"] = "0b" * 20
    for probe in document["probes"]:
        probe.update(address=probe["address"] + 64, entry=probe["entry"] + 64, offset=probe["offset"] + 64)
        if "plan" in probe["registers"]:
            probe["registers"]["plan"] = "r15" if probe["registers"]["plan"] != "r15" else "rbx"
    document["data"] = {name: address + 64 for name, address in document["data"].items()}
    path = f"{others}/{document['build_id']}.nccl-plan.json"

    def write(**change):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**document, **change}, file)

    write()
    borrowed = plan_of(arguments.collwire, stripped, "--symbols", others)
    assert borrowed["debug_file"] == path and not borrowed["not_recorded"] and not borrowed["calls_only"] and borrowed["build_id"] == whole["build_id"], borrowed
    of_whole = {probe["function"]: probe for probe in whole["probes"]}
    found = {probe["function"]: probe for probe in borrowed["probes"]}
    assert BORROWED <= set(found), set(found)
    # What its symbol is called is not known.
    different = [name for name, probe in found.items() if {**probe, "symbol": ""} != {**of_whole[name], "symbol": ""}]
    assert not different, [(found[name], of_whole[name]) for name in different]
    assert borrowed["data"] == {name: whole["data"][name] for name in BORROWED_DATA}, borrowed["data"]
    assert {capability["rung"] for capability in borrowed["capabilities"].values()} == {"inferred", "process"}, borrowed["capabilities"]
    assert all("another build" in capability["source"] for capability in borrowed["capabilities"].values() if capability["source"])
    offsets = document["offsets"]

    def moved(name):
        return {"offsets": {**offsets, name: {**offsets[name], "value": offsets[name]["value"] + 8}}}

    # Patch releases around it that have the same layouts.
    def number(step):
        return re.sub(r"\d+$", lambda patch: str(int(patch[0]) + step), whole["version"])

    def write_around(before, behind):
        write(version=number(-1), **before)
        with open(f"{others}/{'0c' * 20}.nccl-plan.json", "w", encoding="utf-8") as file:
            json.dump({**document, "build_id": "0c" * 20, "version": number(1), **behind}, file)

    def refuse(what):
        refused = plan_of(arguments.collwire, stripped, "--symbols", others)
        assert refused["calls_only"] and not refused["debug_file"], (what, refused["debug_file"])

    has_size = "ncclComm.endMagic" in offsets
    write_around({}, {})
    if has_size:
        between = plan_of(arguments.collwire, stripped, "--symbols", others)
        assert between["debug_file"] == path and all(between[name] == borrowed[name] for name in SAME), between["calls_only"]
        assert all(f"another version, {number(-1)}" in capability["source"] for capability in between["capabilities"].values() if capability["source"])
        for change in (moved("ncclProxyState.proxyOps"), {"enumerators": {**document["enumerators"], "PATTERN_OTHER": 99}}):
            write_around({}, change)
            refuse((change.keys(), "behind"))
        write_around(moved("ncclComm.endMagic"), moved("ncclComm.endMagic"))
    refuse("another size")
    os.unlink(f"{others}/{'0c' * 20}.nccl-plan.json")
    write(version=number(-1))
    refuse("one alone")
    wrong = [{"version": "2.1.0"}, moved("ncclComm.nRanks"), moved("ncclComm.proxyState"), {"debug_types": False}]
    wrong += [moved("ncclComm.endMagic")] if has_size else []
    for change in wrong:
        write(**change)
        refuse(change.keys())
    write()
    print(f"{arguments.version}: {len(found)} functions and {len(borrowed['data'])} variables found in the stripped file, as its symbols said", flush=True)
    return others


def check_other_versions(arguments, stripped, directory):
    """Of the plans that come with collwire those of all other versions: no two are around this one and alike."""
    place = f"{directory}/other-versions"
    os.mkdir(place)
    for path in sorted(glob.glob(os.path.join(one_machine.HERE, "..", "..", "nccl-layouts", "*.json"))):
        with open(path, encoding="utf-8") as file:
            if json.load(file)["version"] != arguments.version:
                shutil.copy(path, place)
    refused = plan_of(arguments.collwire, stripped, "--symbols", place)
    assert refused["calls_only"] and not refused["debug_file"] and len(os.listdir(place)) > 10, refused["debug_file"]


def check_borrowed_job(arguments, library, stripped, place, directory):
    report, jobs, doubles = record_job(arguments, library, stripped, place, directory)
    double = identity_truth.Truth(doubles, identity_truth.same_node(jobs, 1))
    sent, identity = sum(double.sent.values()), report["identity"]
    figures, different = identity_truth.compare_bytes(report, double)
    print(f"{arguments.version}, stripped, with another build's layouts: {figures} figures of bytes, {len(different)} different; {identity}, {sent} sent", flush=True)
    assert not different, "\n".join(different[:20])
    assert sent and identity["exact"] == 0 and identity["inferred"] >= FEWEST_JOINED * sent, identity
    # What the double's log bears out is what the report is sure of; of sockets that came and went between two samples nothing was measured.
    assert FEWEST_JOINED * identity["by_source"]["wire"] <= identity["inferred_confirmed"] <= identity["inferred"], identity
    assert not (others := inferred_truth.other_bases(report, inferred_truth.OTHER_BUILD)), others


def record_job(arguments, library, stripped, place, directory):
    os.mkdir(directory)
    job = double_job.Job(stripped, arguments.build, RANKS, environment={"COLLWIRE_CUDA_SYMBOLS": library, **CASE.environment})
    whole = double_job.Job(library, arguments.build, RANKS)
    whole.write_layout(directory)
    job.write_layout = lambda _: None # a stripped file says nothing of its layout
    options = ("--symbols", place) if place else ()
    report, jobs, _ = one_machine.record(arguments.collwire, job, directory, ["--plan", CASE.plan_path, *CASE.job_options], *options)
    return report, jobs, one_machine.logs_of(directory, "truth", RANKS)


def check_calls_job(arguments, library, stripped, directory):
    """With nothing else there: what was called on which communicator, in order, on all ranks. Over sockets no more is known of bytes than whose they are."""
    report, jobs, _ = record_job(arguments, library, stripped, None, directory)
    calls, out_of_order = identity_truth.compare_order(report, jobs)
    print(f"{arguments.version}, stripped, calls alone: {calls} calls, {len(out_of_order)} communicators out of order; {report['identity']}", flush=True)
    assert calls and not out_of_order, out_of_order
    assert all(not rank["missing"] and rank["launches"] is None for comm in report["communicators"] for rank in comm["ranks"]), report["communicators"]
    assert not report["identity"]["exact"] and not report["identity"]["inferred"], report["identity"]
    assert all(operation["tx_payload_bytes"] is None for operation in report["collectives"] if operation["count"]), "bytes that nobody measured"
    assert not (others := inferred_truth.other_bases(report, inferred_truth.EXPORTED)), others


def check_job(arguments, library, stripped, place, directory):
    report, jobs, doubles = record_job(arguments, library, stripped, place, directory)
    line, problems = join_truth.judge(CASE, report, jobs, doubles, identity_truth.same_node(jobs, 1), one_machine.processes_of(report, jobs),
                                      report["loss"]["entries"])
    print(f"{arguments.version}, stripped, with {os.path.basename(place)}: {line}", flush=True)
    assert not problems, "\n".join(problems[:20])


def without_plans(collwire, directory):
    """A copy of the program, which the plans are not beside that come with it."""
    return shutil.copy(collwire, f"{directory}/collwire")


def run(arguments, library, directory):
    stripped, debug, build_id = strip(library, directory)
    own = plan_of(arguments.collwire, stripped)
    place = f"{os.path.dirname(os.path.realpath(arguments.collwire))}/nccl-layouts"
    assert own["debug_file"] == f"{place}/{own['version']}-{build_id}.json", own["debug_file"]
    expect_same(plan_of(arguments.collwire, library), own, place)
    arguments.collwire = without_plans(arguments.collwire, directory)
    plans = check_plans(arguments, library, stripped, debug, directory)
    others = check_borrowed(arguments, library, stripped, plans, directory)
    check_other_versions(arguments, stripped, directory)
    if double_job.version_of(library) >= FIRST_WITH_KERNELS:
        check_calls_job(arguments, library, stripped, f"{directory}/job-calls")
        check_borrowed_job(arguments, library, stripped, others, f"{directory}/job-others")
        for place in (debug, plans):
            check_job(arguments, library, stripped, place, f"{directory}/job-{os.path.basename(place)}")


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__), run))
