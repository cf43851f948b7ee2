#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tools/test-summary counts the tests inside a GoogleTest program, keeps a crash as a failure, and fails when nothing ran."""

import os
import subprocess
import sys
import tempfile
import unittest

SUMMARY = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "tools", "test-summary")

SUITE = """<testsuite>
<testcase name="bytes_test" time="3" status="run"><system-out/></testcase>
<testcase name="crashed_test" time="1" status="fail"><system-out>ERROR: AddressSanitizer: heap-use-after-free</system-out></testcase>
<testcase name="script" time="2" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>skip: no gdb. Fix: install gdb</system-out></testcase>
</testsuite>"""

PROGRAM = """<testsuites><testsuite name="Bytes">
<testcase name="AreCounted" classname="Bytes" status="run" result="completed" time="0.5"/>
<testcase name="Differ" classname="Bytes" status="run" result="completed" time="2"><failure message="expected 7, was 8" type=""/></testcase>
<testcase name="NeedBpf" classname="Bytes" status="run" result="skipped" time="0"><skipped message="f.cpp:3&#x0A;no BPF here"/></testcase>
<testcase name="Off" classname="Bytes" status="notrun" result="suppressed" time="0"/>
</testsuite></testsuites>"""


class TestSummary(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        os.makedirs(os.path.join(self.directory.name, "programs", "unit"))

    def write(self, name, text):
        path = os.path.join(self.directory.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def summary(self, *arguments):
        return subprocess.run([sys.executable, SUMMARY, *arguments], capture_output=True, text=True, check=False)

    def test_lists_tests_of_programs(self):
        suite = self.write("unit.xml", SUITE)
        self.write("programs/unit/bytes_test.xml", PROGRAM)
        steps = self.write("steps", "61 build dev\n3 tests unit\n")
        done = self.summary("--steps", steps, "--programs", os.path.join(self.directory.name, "programs"), suite)
        self.assertEqual(done.returncode, 1)
        self.assertIn("tests: 1 passed, 2 failed, 2 skipped", done.stdout)
        self.assertIn("unit: Bytes.Differ\n    expected 7, was 8", done.stdout)
        self.assertIn("unit: crashed_test\n    ERROR: AddressSanitizer", done.stdout)
        self.assertIn("unit: Bytes.NeedBpf: no BPF here", done.stdout)
        self.assertIn("unit: script: no gdb. Fix: install gdb", done.stdout)
        self.assertIn("61 s  build dev", done.stdout)
        self.assertIn("64 s  together", done.stdout)

    def test_crash_after_the_tests_is_a_failure(self):
        suite = self.write("unit.xml", SUITE.replace('name="bytes_test" time="3" status="run"', 'name="bytes_test" time="3" status="fail"'))
        self.write("programs/unit/bytes_test.xml", PROGRAM.replace('<failure message="expected 7, was 8" type=""/>', ""))
        done = self.summary("--programs", os.path.join(self.directory.name, "programs"), suite)
        self.assertIn("tests: 2 passed, 2 failed, 2 skipped", done.stdout)

    def test_parts_of_a_label_are_one_row(self):
        first, second = self.write("lab.000.xml", SUITE), self.write("lab.001.xml", SUITE)
        steps = self.write("steps", "61 build dev\n3 tests lab\n5 tests lab\n")
        done = self.summary("--steps", steps, first, second)
        self.assertRegex(done.stdout, r"\nlab +2 +2 +2 +12\.0\n")
        self.assertIn("8 s  tests lab", done.stdout)
        self.assertIn("tests: 2 passed, 2 failed, 2 skipped", done.stdout)

    def test_nothing_ran(self):
        done = self.summary(self.write("lab.xml", "<testsuite/>"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("tests: 0 passed, 0 failed, 0 skipped", done.stdout)


if __name__ == "__main__":
    unittest.main()
