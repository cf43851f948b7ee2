#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Official NCCL without symbols and DWARF, as distributions strip it. With its debug file or a layout file of it, collwire reads all it read before, and a
job's bytes equal the double's log. So it is with a layout file of another build-id whose code is the same. With the layouts of another build of its version collwire finds the functions in the file, and nothing is exact.
Without layouts the recording is API-only. collwire refuses files of another build.

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
# Share of the sent bytes.
FEWEST_JOINED = 0.99
# Functions that collwire searches for in a stripped file.
BORROWED = {"ncclCommInitRankFunc", "commCleanup", "ncclEnqueueCheck", "ncclProxyStart", "hostStreamPlanTask", "hostStreamPlanCallback", "ncclIbCloseSend",
            "ncclIbCloseRecv"}
BORROWED_DATA = ("ncclLastError", "ncclNetIb", "ncclNetSocket")
# API-only: the functions that the file exports, and the fields that they read.
EXPORTED_CALLS = ("ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommInitRankScalable", "ncclCommSplit", "ncclCommDestroy", "ncclCommAbort",
                  "ncclAllReduce", "ncclBroadcast", "ncclReduce", "ncclAllGather", "ncclReduceScatter", "ncclSend", "ncclRecv", "ncclAlltoAll", "ncclGather",
                  "ncclScatter")
EXPORTED_FIELDS = ("ncclComm.rank", "ncclComm.nRanks", "ncclComm.cudaDev", "ncclComm.commHash", "ncclComm.startMagic")
SAME = ("version", "build_id", "probes", "data", "parameters", "enumerators")


def plan_of(collwire, library, *options):
    done = subprocess.run([collwire, "doctor", "--nccl", library, "--json", *options], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def strip(library, directory):
    """(the stripped copy, a directory with its debug file as distributions keep it, its build-id)"""
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
    assert all("file's own" not in (capability["source"] or "") or "a saved layout of" in capability["source"] for capability in plan["capabilities"].values())


def check_exported(version, stripped, whole, bare):
    """API-only: addresses of exported functions equal the dynamic symbols, and the fields that its getters return equal the whole file's DWARF."""
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
    # In the library's directory, by its name.
    shutil.copy(plan_of(arguments.collwire, stripped, "--symbols", debug)["debug_file"], f"{directory}/libnccl.so.2.debug")
    expect_same(whole, plan_of(arguments.collwire, stripped, "--symbols", directory), directory)
    plans = f"{directory}/plans"
    kept = subprocess.run([arguments.collwire, "doctor", "--nccl", library, "--export-plan", plans], capture_output=True, text=True, check=True)
    path = kept.stdout.strip()
    expect_same(whole, plan_of(arguments.collwire, stripped, "--symbols", plans), plans)
    expect_same(whole, plan_of(arguments.collwire, stripped, "--symbols", path), path)
    # A layout file that does not fit.
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


def write_same_code(whole, plans, directory):
    """A directory with a layout file that has another build-id. Its code is the library's."""
    with open(f"{plans}/{whole['version']}-{whole['build_id']}.json", encoding="utf-8") as file:
        document = json.load(file)
    place = f"{directory}/same-code"
    os.mkdir(place)
    with open(f"{place}/{whole['version']}-{'0d' * 20}.json", "w", encoding="utf-8") as file:
        json.dump({**document, "build_id": "0d" * 20}, file)
    return place


def check_same_code(arguments, library, stripped, plans, directory):
    whole = plan_of(arguments.collwire, library)
    place = write_same_code(whole, plans, directory)
    same = plan_of(arguments.collwire, stripped, "--symbols", place)
    assert same["fits_by"].startswith("the same code as "), same.get("fits_by")
    assert all(capability["source"].startswith("same code as ") for capability in same["capabilities"].values() if capability["source"])
    for capability in same["capabilities"].values():
        capability["source"] = None
    expect_same(whole, same, place)
    print(f"{arguments.version}: all as of the whole file, by a plan of another build-id with the same code", flush=True)
    return place


def check_borrowed(arguments, library, stripped, plans, directory):
    """With a layout file of another build, of which all but the layouts is made wrong, collwire finds functions and variables where the symbols have
    them. Returns its directory."""
    whole = plan_of(arguments.collwire, library)
    with open(f"{plans}/{whole['version']}-{whole['build_id']}.json", encoding="utf-8") as file:
        document = json.load(file)
    others = f"{directory}/others"
    os.mkdir(others)
    document["build_id"] = "0b" * 20
    document.pop("code")
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
    assert borrowed["debug_file"] == path and not borrowed["not_recorded"] and not borrowed["calls_only"], borrowed
    assert borrowed["build_id"] == whole["build_id"], borrowed
    of_whole = {probe["function"]: probe for probe in whole["probes"]}
    found = {probe["function"]: probe for probe in borrowed["probes"]}
    assert BORROWED <= set(found), set(found)
    # What its symbol is called is not known.
    different = [name for name, probe in found.items() if {**probe, "symbol": ""} != {**of_whole[name], "symbol": ""}]
    assert not different, [(found[name], of_whole[name]) for name in different]
    assert borrowed["data"] == {name: whole["data"][name] for name in BORROWED_DATA}, borrowed["data"]
    assert {capability["rung"] for capability in borrowed["capabilities"].values()} == {"inferred", "process"}, borrowed["capabilities"]
    assert all("another build" in capability["source"] for capability in borrowed["capabilities"].values() if capability["source"])
    # What that layout lacks, or has of the process alone, is no more here.
    lost, weak, *others_of_it = sorted(name for name, capability in borrowed["capabilities"].items() if capability["rung"] == "inferred")
    capabilities = {name: capability for name, capability in document["capabilities"].items() if name != lost}
    write(capabilities={**capabilities, weak: {**capabilities[weak], "rung": "process"}})
    lesser = plan_of(arguments.collwire, stripped, "--symbols", others)["capabilities"]
    assert [lesser[name]["rung"] for name in (lost, weak)] == ["process"] * 2 and lesser[lost]["source"] is lesser[weak]["source"] is None, lesser
    assert others_of_it and all(lesser[name] == borrowed["capabilities"][name] for name in others_of_it), lesser
    offsets = document["offsets"]

    def moved(name):
        return {"offsets": {**offsets, name: {**offsets[name], "value": offsets[name]["value"] + 8}}}

    # Patch releases before and after it with the same layouts.
    def number(step):
        return re.sub(r"\d+$", lambda patch: str(int(patch[0]) + step), whole["version"])

    def write_around(before, after):
        write(version=number(-1), **before)
        with open(f"{others}/{'0c' * 20}.nccl-plan.json", "w", encoding="utf-8") as file:
            json.dump({**document, "build_id": "0c" * 20, "version": number(1), **after}, file)

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
            refuse((change.keys(), "after"))
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
    """The layout files of all other versions: no two around this version are alike, so all are refused."""
    place = f"{directory}/other-versions"
    os.mkdir(place)
    for path in sorted(glob.glob(os.path.join(one_machine.HERE, "..", "..", "nccl-layouts", "*.json"))):
        with open(path, encoding="utf-8") as file:
            if json.load(file)["version"] != arguments.version:
                shutil.copy(path, place)
    refused = plan_of(arguments.collwire, stripped, "--symbols", place)
    assert refused["calls_only"] and not refused["debug_file"] and len(os.listdir(place)) > 10, refused["debug_file"]


def check_borrowed_job(version, library, report, double):
    sent, identity = sum(double.sent.values()), report["identity"]
    figures, different = identity_truth.compare_bytes(report, double)
    print(f"{version}, stripped, with another build's layouts: {figures} figures of bytes, {len(different)} different; {identity}, {sent} sent", flush=True)
    assert not different, "\n".join(different[:20])
    assert sent and identity["exact"] == 0 and identity["inferred"] >= FEWEST_JOINED * sent, identity
    # The report confirms what was measured. It has no measurement of a socket that opened and closed between two samples.
    confirmed = identity["inferred_confirmed"] # None: there are other jobs on the machine
    assert confirmed is None or FEWEST_JOINED * identity["by_source"]["wire"] <= confirmed <= identity["inferred"], identity
    assert not (others := inferred_truth.other_bases(report, inferred_truth.OTHER_BUILD, library)), others


def check_calls_job(version, library, report, jobs):
    """API-only: the calls on each communicator, in order, on all ranks. Over sockets the report has bytes by process alone."""
    calls, out_of_order = identity_truth.compare_order(report, jobs)
    print(f"{version}, stripped, API-only: {calls} calls, {len(out_of_order)} communicators out of order; {report['identity']}", flush=True)
    assert calls and not out_of_order, out_of_order
    assert all(not rank["missing"] and rank["launches"] is None for comm in report["communicators"] for rank in comm["ranks"]), report["communicators"]
    assert not report["identity"]["exact"] and not report["identity"]["inferred"], report["identity"]
    assert all(operation["tx_payload_bytes"] is None for operation in report["collectives"] if operation["count"]), "bytes that no source measured"
    assert not (others := inferred_truth.other_bases(report, inferred_truth.EXPORTED, library)), others


def check_job(version, name, report, jobs, doubles):
    line, problems = join_truth.judge(CASE, report, jobs, doubles, identity_truth.same_node(jobs, 1), one_machine.processes_of(report, jobs),
                                      report["loss"]["entries"])
    print(f"{version}, stripped, with {name}: {line}", flush=True)
    assert not problems, "\n".join(problems[:20])


def check_jobs(arguments, library, stripped, places, directory):
    """One job under five recorders, each with another source of layouts: none, another build, the debug file, a kept plan, a build with the same code."""
    os.mkdir(directory)
    job = double_job.Job(stripped, arguments.build, RANKS, environment={"COLLWIRE_CUDA_SYMBOLS": library, **CASE.environment})
    double_job.Job(library, arguments.build, RANKS).write_layout(directory)
    job.write_layout = lambda _: None # the stripped file has no types to read a layout from
    reports, jobs, _ = one_machine.record_at_once(arguments.collwire, job, directory, ["--plan", CASE.plan_path, *CASE.job_options], {
        "calls": (), **{name: ("--symbols", place) for name, place in places.items()}})
    doubles = one_machine.logs_of(directory, "truth", RANKS)
    check_calls_job(arguments.version, stripped, reports["calls"], jobs)
    check_borrowed_job(arguments.version, stripped, reports["others"], identity_truth.Truth(doubles, identity_truth.same_node(jobs, 1)))
    for name in ("debug", "plans", "same-code"):
        check_job(arguments.version, name, reports[name], jobs, doubles)


def without_plans(collwire, directory):
    """A copy of the program without its layout files."""
    return shutil.copy(collwire, f"{directory}/collwire")


def run(arguments, library, directory):
    stripped, debug, build_id = strip(library, directory)
    own = plan_of(arguments.collwire, stripped)
    place = f"{os.path.dirname(os.path.realpath(arguments.collwire))}/nccl-layouts"
    assert own["debug_file"] == f"{place}/{own['version']}-{build_id}.json", own["debug_file"]
    expect_same(plan_of(arguments.collwire, library), own, place)
    arguments.collwire = without_plans(arguments.collwire, directory)
    plans = check_plans(arguments, library, stripped, debug, directory)
    same = check_same_code(arguments, library, stripped, plans, directory)
    others = check_borrowed(arguments, library, stripped, plans, directory)
    check_other_versions(arguments, stripped, directory)
    if double_job.version_of(library) >= FIRST_WITH_KERNELS:
        check_jobs(arguments, library, stripped, {"others": others, "debug": debug, "plans": plans, "same-code": same}, f"{directory}/jobs")


if __name__ == "__main__":
    sys.exit(one_machine.main(one_machine.arguments_of(__doc__), run))
