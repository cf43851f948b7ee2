#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""library_test.py FILE: the guest library as it is built, which other people's processes load. It needs the C library of 2013 and nothing else, exports
what exports.map lists, stays loaded, and has its two probe sites where the notes say, each on a `nop`."""

import os
import re
import shutil
import subprocess
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
NEWEST_GLIBC = (2, 17)
NEEDED = {"libc.so.6", "libdl.so.2"}
EXPORTED = {"InitializeInjection", "collwire_gpu_arm", "collwire_gpu_batch", "collwire_gpu_arm_semaphore",
            *(f"ncclProfiler_v{version}" for version in range(3, 8))}
FIRST_ARGUMENT = {"Advanced Micro Devices X86-64": "8@%rdi", "AArch64": "8@x0"}
library = ""


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}).stdout


def symbols():
    """Name: address of each symbol that the library exports."""
    found = {}
    for line in output("readelf", "-W", "--dyn-syms", library).splitlines():
        # Num: Value Size Type Bind Vis Ndx Name
        fields = line.split()
        if len(fields) == 8 and fields[6].isdigit() and fields[4] in ("GLOBAL", "WEAK"):
            found[fields[7].split("@")[0]] = int(fields[1], 16)
    return found


def sections():
    """Name: (type, address, bytes, flags) of each section."""
    found = {}
    for line in output("readelf", "-W", "-S", library).splitlines():
        if match := re.match(r"\s*\[\s*\d+\]\s+(\S+)\s+(\S+)\s+([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)\s+[0-9a-f]+\s+([A-Za-z]*)\s", line):
            found[match[1]] = (match[2], int(match[3], 16), int(match[4], 16), match[5])
    return found


def probes():
    """Name: provider, address, base, semaphore and arguments of each note of SystemTap's kind."""
    text = output("readelf", "-W", "-n", library)
    pattern = (r"Provider: (\S+)\s+Name: (\S+)\s+Location: (0x[0-9a-f]+), Base: (0x[0-9a-f]+), Semaphore: (0x[0-9a-f]+)\s+"
               r"Arguments:[ ]*([^\n]*)")
    found = [(name, (provider, int(at, 16), int(base, 16), int(semaphore, 16), arguments.strip()))
             for provider, name, at, base, semaphore, arguments in re.findall(pattern, text)]
    return found


class GuestLibrary(unittest.TestCase):
    def test_it_needs_no_newer_c_library_than_that_of_2013(self):
        needs = re.findall(r"\bGLIBC_(\d+)\.(\d+)", output("readelf", "-W", "-V", library))
        self.assertNotEqual(needs, [])
        self.assertLessEqual(max((int(major), int(minor)) for major, minor in needs), NEWEST_GLIBC)

    def test_every_symbol_that_it_imports_has_a_version_of_the_c_library_or_is_weak(self):
        imported = [line.split() for line in output("readelf", "-W", "--dyn-syms", library).splitlines() if " UND " in line]
        unversioned = [fields[7] for fields in imported if len(fields) >= 8 and fields[4] == "GLOBAL" and "@GLIBC_" not in fields[7]]
        self.assertEqual(unversioned, [])

    def test_it_needs_the_c_library_alone(self):
        needed = re.findall(r"\(NEEDED\)\s+Shared library: \[(.*)\]", output("readelf", "-W", "-d", library))
        self.assertEqual(set(needed), NEEDED)

    def test_it_exports_what_the_version_script_lists(self):
        with open(os.path.join(ROOT, "cupti/exports.map"), encoding="utf-8") as file:
            listed = set(re.findall(r"(\w+);", file.read().split("local:")[0]))
        self.assertEqual(listed, EXPORTED)
        self.assertEqual(set(symbols()), EXPORTED)

    def test_the_loader_never_unloads_it_and_keeps_its_code_read_only(self):
        dynamic = output("readelf", "-W", "-d", library)
        self.assertRegex(dynamic, r"\(FLAGS_1\).*\bNODELETE\b")
        self.assertNotRegex(dynamic, r"\(TEXTREL\)|\b(RPATH|RUNPATH)\b")
        self.assertRegex(output("readelf", "-W", "-l", library), r"GNU_STACK.* RW ")

    def test_a_note_for_each_probe_gives_its_place_and_semaphore(self):
        at = symbols()
        base = sections()[".stapsdt.base"][1]
        machine = re.search(r"Machine:\s+(.*)", output("readelf", "-h", library))[1].strip()
        self.assertEqual(sorted(probes()), [
            ("gpu_arm", ("collwire", at["collwire_gpu_arm"], base, at["collwire_gpu_arm_semaphore"], "")),
            ("gpu_batch", ("collwire", at["collwire_gpu_batch"], base, 0, FIRST_ARGUMENT[machine])),
        ])

    def test_the_semaphore_is_in_the_file_and_writable(self):
        """The kernel counts it up at an offset of the file: the zeroed memory behind the file's data has none."""
        address = symbols()["collwire_gpu_arm_semaphore"]
        inside = [(kind, flags) for kind, begin, size, flags in sections().values() if begin and begin <= address < begin + size]
        self.assertEqual(inside, [("PROGBITS", "WA")])

    def test_a_probe_site_is_a_nop(self):
        """The kernel emulates it: a hit costs no single step."""
        for name in ("collwire_gpu_arm", "collwire_gpu_batch"):
            address = symbols()[name]
            code = output("objdump", "-d", "--no-show-raw-insn", f"--start-address={address}", f"--stop-address={address + 4}", library)
            first = re.search(rf"^\s*{address:x}:\s+(\S+)", code, re.MULTILINE)
            self.assertEqual(first[1], "nop", name)

    def test_a_lookup_by_name_enters_the_c_library_by_a_jump(self):
        """dlsym looks at the address of its caller: a call would make the guest the caller."""
        code = output("objdump", "-d", "-C", "--no-show-raw-insn", library)
        function = re.search(r"on_lookup\(void\*, char const\*\)>:\n(.*?)\n\n", code, re.DOTALL)[1]
        self.assertRegex(function, r"\bjmp\s+\*|\bbr\s+x")


if __name__ == "__main__":
    library = sys.argv.pop(1)
    if not shutil.which("readelf") or not shutil.which("objdump"):
        print("skip: binutils are missing. Fix: tools/install-deps test")
        sys.exit(77)
    unittest.main()
