#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which sources of a target cannot be compiled as one with those before them, because both have a name of their own file, static or in an unnamed
namespace. Reads names by their layout (.clang-format), not as a compiler does: what it misses is an error of the compiler.

shared_names.py FILE    lines of FILE: TARGET DIRECTORY SOURCE...    prints: TARGET SOURCE..."""

import os
import re
import sys

TYPE = re.compile(r"(?:struct|class|enum class|enum|union) (?:\[\[\w+\]\] )?(\w+)|using (\w+) =")
WORDS = r"(?:\[\[\w+\]\] |static |constinit |constexpr |inline |const |thread_local |template <[^>]*> )*"
VALUE = re.compile(WORDS + r"[\w:<>,*& \[\]]+?[ *&](\w+)(?:\[[^\]]*\])*(?: =|\{|\(|;)")
MORE = re.compile(r", (\w+) = ")
NO_VALUE = (" ", "}", "using ", "return ", "//", "#", "TEST", "namespace ", "friend ", "extern ")


def names_of(path):
    names, is_unnamed = set(), False
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith(("namespace {", "} // namespace\n")):
                is_unnamed = line.startswith("namespace {")
            elif line.startswith("#define "):
                names.add(re.match(r"#define (\w+)", line).group(1))
            elif of_type := TYPE.match(line):
                names.add(of_type.group(1) or of_type.group(2))
            elif (is_unnamed or line.startswith(("static ", "constexpr "))) and not line.startswith(NO_VALUE):
                if value := VALUE.match(line):
                    names.add(value.group(1))
                    names.update(MORE.findall(line))
    return names


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        for target, directory, *sources in map(str.split, file):
            taken, apart = set(), []
            for source in sources:
                names = names_of(os.path.join(directory, source))
                if taken & names:
                    apart.append(os.path.join(directory, source))
                else:
                    taken |= names
            if apart:
                print(target, *apart)


if __name__ == "__main__":
    main()
