#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which sources of a target are compiled as one: as many as have no name of their own file, static or in an unnamed namespace, in common. Reads names by
their layout (.clang-format), not as a compiler does: what it misses is an error of the compiler.

unity_groups.py FILE    lines of FILE: TARGET DIRECTORY SOURCE...    prints, for each group: TARGET NUMBER SOURCE..."""

import os
import re
import sys

TYPE = re.compile(r"(?:struct|class|enum class|enum|union) (?:\[\[\w+\]\] )?(\w+)|using (\w+) =")
WORDS = r"(?:\[\[\w+\]\] |static |constinit |constexpr |inline |const |thread_local |template <[^>]*> )*"
VALUE = re.compile(WORDS + r"[\w:<>,*& \[\]]+?[ *&](\w+)(?:\[[^\]]*\])*(?: =|\{|\(|;)")
MORE = re.compile(r", (\w+) = ")
MOST_SOURCES = 20  # of a group: a compiler then takes up to 1.5 GB
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


def groups_of(paths):
    """Each source goes to the first group that has room and none of its names."""
    groups = []
    for path in paths:
        names = names_of(path)
        fitting = (group for group in groups if len(group[0]) < MOST_SOURCES and not group[1] & names)
        members, taken = next(fitting, None) or groups.append(([], set())) or groups[-1]
        members.append(path)
        taken |= names
    return [members for members, _ in groups]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        for target, directory, *sources in map(str.split, file):
            for number, group in enumerate(groups_of([os.path.join(directory, source) for source in sources])):
                print(target, number, *group)


if __name__ == "__main__":
    main()
