#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layouts of official NCCL libraries against independent readers: gdb for every offset, size and enumerator, readelf for build-id and symbols, objdump for
the addresses of instructions. And the certainty that each version must reach.

plan_offsets_test.py --collwire BINARY [--version VERSION ...] [--library FILE ...]"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
LAYOUTS = os.path.join(TOOLS, "..", "nccl-layouts")
ALL = ["all", "between", "cu13"]  # "between": versions that collwire was not developed with
QUICK = ["2.20.5", "2.32.3"]
ALWAYS_EXACT = {"communicators", "connections", "errors"}
EXACT_FROM_2_24 = ALWAYS_EXACT | {"operations", "graphs"}
ALWAYS_PLACED = {"ncclLocalOpAppend", "ncclCommInitRankFunc", "commCleanup", "ncclEnqueueCheck", "ncclProxyStart", "ncclSocketClose"}
SOCKET_TYPES = {f"ncclSocketType{name}" for name in ("Unknown", "Bootstrap", "Proxy", "NetSocket", "NetIb")}
# CPU time to read a layout, without a cache.
MOST_CPU_S = 0.05
TIMES = 5
MOST_TIMES = 25 # a busy machine adds to a time, and takes nothing from it
SKIPPED = 77


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def plan_of(collwire, library):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    plan = json.loads(output_of(collwire, "doctor", "--nccl", library, "--json"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return plan, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def kept_plan_differs(plan):
    """Names of the fields that differ from the layout file of collwire."""
    path = os.path.join(LAYOUTS, f"{plan['version']}-{plan['build_id']}.json")
    if not os.path.exists(path):
        return ["there is no file"]
    with open(path, encoding="utf-8") as file:
        kept = json.load(file)
    return [name for name in plan if name not in ("file", "tool_version") and plan[name] != kept.get(name)]


BIT_FIELDS = ("ncclTaskColl.algorithm", "ncclTaskColl.protocol")
# coll_net.cc has another type of this name, and gdb takes either: ask for the type of a connection's field.
WITHIN = {"connectMapMem": "map.mems[0]"}


def expressions_of(plan, kind, field):
    """Expressions for the offset and size of a field, or for the size of a type."""
    if kind in WITHIN:
        holder = "sendNetResources" if "sendNetResources.map.mems" in plan["offsets"] else "sendResources"
        place = f"(('{holder}'*)0)->{WITHIN[kind]}"
    else:
        place = f"*('{kind}'*)0"
    if not field:
        return [f"sizeof({place})"]
    return [f"(unsigned long)&(({place}).{field}) - (unsigned long)&({place})", f"sizeof(({place}).{field})"]

# Runs in gdb.
ASK_GDB = """
import gdb, json
def ask(expression):
    try:
        if isinstance(expression, list):  # a bit field has no address
            field = gdb.lookup_type(expression[0])[expression[1]]
            return field.bitpos // 8 if expression[2] == "offset" else field.bitsize // 8
        return int(gdb.parse_and_eval(expression))
    except gdb.error as problem:
        return str(problem)
print(json.dumps([ask(expression) for expression in json.load(open(EXPRESSIONS))]))
"""


def values_of_gdb(library, expressions):
    with tempfile.TemporaryDirectory() as directory:
        listed = os.path.join(directory, "expressions.json")
        script = os.path.join(directory, "ask.py")
        with open(listed, "w", encoding="utf-8") as file:
            json.dump(expressions, file)
        with open(script, "w", encoding="utf-8") as file:
            file.write(ASK_GDB.replace("EXPRESSIONS", repr(listed)))
        return json.loads(output_of("gdb", "-batch", "-nx", "-iex", "set auto-load off", "-x", script, library).splitlines()[-1])


def compare_with_gdb(plan, library):
    expressions, expected = [], []
    for name, offset in plan["offsets"].items():
        kind, _, field = name.partition(".")
        if f"{kind}.{field}" in BIT_FIELDS:
            expressions += [[kind, field, "offset"], [kind, field, "size"]]
            expected += [offset["value"], offset["size_bytes"]]
        else:
            expressions += expressions_of(plan, kind, field)
            expected += [offset["value"], offset["size_bytes"]] if field else [offset["value"]]
    for name, value in plan["enumerators"].items():
        expressions.append(f"(int){name}")
        expected.append(value)
    values = values_of_gdb(library, expressions)
    different = [(expression, value, other) for expression, value, other in zip(expressions, expected, values) if value != other]
    assert not different, different
    return len(expressions)


def compare_with_readelf(plan, library):
    notes = output_of("readelf", "--notes", "--wide", library)
    assert f"Build ID: {plan['build_id']}" in notes, plan["build_id"]
    symbols = {}
    for line in output_of("readelf", "--symbols", "--wide", library).splitlines():
        words = line.split()
        if len(words) >= 8 and words[3] in ("FUNC", "OBJECT"):
            symbols.setdefault(words[7].split("@")[0], set()).add((int(words[1], 16), int(words[2], 0)))
    for probe in plan["probes"]:
        assert any(begin <= probe["address"] < begin + size for begin, size in symbols[probe["symbol"]]), probe
    for name, address in plan["parameters"].items():
        at = {begin for symbol, places in symbols.items() if re.fullmatch(rf"_ZZ\d+ncclParam{name}vE5cache", symbol) for begin, _ in places}
        assert at == {address}, (name, address, at)
    for name, address in plan["data"].items():
        at = {begin for symbol, places in symbols.items() if re.fullmatch(rf"(_ZL?\d+)?{name}", symbol) for begin, _ in places}
        assert address in at, (name, address, at)
    return 1 + len(plan["probes"]) + len(plan["data"]) + len(plan["parameters"])


def compare_with_disassembler(plan, library):
    """objdump finds the same instruction at each probe's address, so no probe is in the middle of one."""
    for probe in plan["probes"]:
        text = output_of("objdump", "--disassemble", "--no-show-raw-insn", f"--start-address={probe['address'] - 64}",
                         f"--stop-address={probe['address'] + 16}", library)
        lines = {int(match[1], 16): match[2].split()[0] for match in re.finditer(r"^\s+([0-9a-f]+):\s+(.+)$", text, re.MULTILINE)}
        mnemonic = probe["instruction"].split()[0]
        assert lines.get(probe["address"], "").rstrip("q") == mnemonic.rstrip("q"), (probe, lines.get(probe["address"]))
    return len(plan["probes"])


def check_rungs(plan, version):
    exact = {name for name, capability in plan["capabilities"].items() if capability["rung"] == "exact"}
    from_2_24 = tuple(int(part) for part in version.split(".")) >= (2, 24)
    wanted = EXACT_FROM_2_24 if from_2_24 else ALWAYS_EXACT
    assert wanted <= exact, (version, wanted - exact, plan["capabilities"])
    assert plan["not_recorded"] is None and plan["calls_only"] is None, plan["not_recorded"]
    inspected = "exact" if from_2_24 else "process"
    assert plan["capabilities"]["inspect"]["rung"] == inspected, plan["capabilities"]["inspect"]
    # A certainty below exact names what is missing, and its source unless it is `process`.
    for name, capability in plan["capabilities"].items():
        assert (capability["source"] is None) == (capability["rung"] == "process"), (name, capability)
        assert capability["rung"] == "exact" or capability["missing"], (name, capability)
    assert {probe["function"] for probe in plan["probes"] if probe["placed"] == "always"} == ALWAYS_PLACED, plan["probes"]
    assert all(probe["emulated"] for probe in plan["probes"]), plan["probes"]
    # gdb checks their values, too.
    assert "ncclSocket.type" in plan["offsets"] and SOCKET_TYPES <= set(plan["enumerators"]), plan["enumerators"]
    assert ("ncclSocketTypeRasNetwork" in plan["enumerators"]) == from_2_24, plan["enumerators"]
    return "".join(plan["capabilities"][name]["rung"][0] for name in plan["capabilities"])


def check_stripped(collwire, library):
    """A copy without symbols and types is API-only."""
    with tempfile.TemporaryDirectory() as directory:
        stripped = os.path.join(directory, "libnccl.so.2")
        output_of("strip", "-o", stripped, library)
        # A copy of collwire without its layout files.
        plan = plan_of(shutil.copy(collwire, directory), stripped)[0]
    assert plan["calls_only"] and "Fix: " in plan["calls_only"] and plan["not_recorded"] is None, plan["calls_only"]
    for name, capability in plan["capabilities"].items():
        assert capability["rung"] == ("inferred" if name in ("communicators", "operations") else "process"), (name, capability)
        assert "types (DWARF)" in capability["missing"], (name, capability)
    assert all(probe["placed"] == "always" for probe in plan["probes"]), plan["probes"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--collwire", required=True)
    parser.add_argument("--version", action="append")
    parser.add_argument("--library", action="append", default=[], help="of any version, instead")
    arguments = parser.parse_args()
    for tool in ("gdb", "readelf", "objdump", "strip"):
        if not shutil.which(tool):
            print(f"skip: no {tool}. Fix: tools/install-deps test")
            return SKIPPED
    libraries = [(None, library) for library in arguments.library]
    for version in arguments.version or ([] if libraries else ALL if os.environ.get("COLLWIRE_FULL") == "1" else QUICK):
        fetched = subprocess.run([os.path.join(TOOLS, "fetch-nccl"), version], capture_output=True, text=True, check=False)
        if fetched.returncode != 0:
            print(f"skip: {fetched.stderr.strip()}")
            return SKIPPED
        libraries += [(os.path.basename(os.path.dirname(library)).removeprefix("cu13-"), library) for library in fetched.stdout.split()]
    for version, library in libraries:
        plans = [plan_of(arguments.collwire, library) for _ in range(TIMES)]
        plan, cpu_s = plans[0][0], min(cpu_s for _, cpu_s in plans)  # the first one reads the file from disk
        for _ in range(MOST_TIMES - TIMES):
            if cpu_s >= MOST_CPU_S:
                cpu_s = min(cpu_s, plan_of(arguments.collwire, library)[1])
        assert version in (None, plan["version"]), (version, plan["version"])
        rungs = check_rungs(plan, plan["version"])
        differs = kept_plan_differs(plan) if version else []
        assert not differs, f"{plan['version']}: differs from nccl-layouts: {differs}. Fix: tools/make-layouts"
        compared = compare_with_gdb(plan, library) + compare_with_readelf(plan, library) + compare_with_disassembler(plan, library)
        print(f"{plan['version']:>7}: {rungs}  {compared} figures compared, 0 different, {cpu_s * 1000:.0f} ms of CPU", flush=True)
        assert cpu_s < MOST_CPU_S, cpu_s
        check_stripped(arguments.collwire, library)
    return 0


if __name__ == "__main__":
    sys.exit(main())
