#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""own_stack_test.py DIRECTORY: each program on a uprobe in it keeps the stack of its thread (bpf/own_stack.h)."""

import glob
import re
import sys

BODY = re.compile(r'SEC\("u(?:ret)?probe[^"]*"\)[\s\\]*int (\w+)\(struct pt_regs \*ctx\)[\s\\]*\{[\s\\]*(\w+)')


def main():
    programs, without = 0, []
    for path in sorted(glob.glob(f"{sys.argv[1]}/*.[ch]")):
        with open(path, encoding="utf-8") as source:
            text = source.read()
        found = BODY.findall(text)
        assert len(found) == len(re.findall(r'SEC\("u(?:ret)?probe', text)), f"{path}: a program that is not understood"
        programs += len(found)
        without += [f"{path}: {name}" for name, first in found if first != "KEEP_OWN_STACK"]
    assert programs, "no programs on uprobes"
    assert not without, f"these do not begin with KEEP_OWN_STACK(ctx): {', '.join(without)}"
    print(f"{programs} programs on uprobes keep the stack of their thread")


if __name__ == "__main__":
    main()
