#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""class_names_test.py ROOT: no class of collwire has the name of another type, as docs/style.md asks.

A `class` needs a name of its own, also in an anonymous namespace. A `struct` or an enumeration needs one within its namespace; in the
anonymous namespace of a .cpp it is exempt. Tests and their doubles are exempt: they take names from what they imitate.
"""
import collections
import os
import re
import sys

ROOMS = ("base", "correlate", "outputs", "tools", "userspace")
TYPE = re.compile(r"(class|struct|enum class|enum|union)\s+(?:alignas\([^)]*\)\s+)?(\w+)(?:\s+final)?\s*(?::(?!:)|\{)")
NAMESPACE = re.compile(r"namespace\s*([\w:]*)\s*\{")


def types_of(path):
    """(keyword, name, namespace, line) of each type at namespace level; clang-format leaves those at column 0."""
    namespaces = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if match := NAMESPACE.match(line):
                namespaces.append(match[1] or "(anonymous)")
            elif line.startswith("} // namespace"):
                namespaces.pop()
            elif match := TYPE.match(line):
                yield match[1], match[2], "::".join(namespaces), number


def main():
    root = sys.argv[1]
    found = collections.defaultdict(list)
    for room in ROOMS:
        for folder, _, names in os.walk(os.path.join(root, room)):
            for name in sorted(names):
                if name.endswith((".h", ".cpp")):
                    path = os.path.join(folder, name)
                    for keyword, type_name, namespace, line in types_of(path):
                        found[type_name].append((keyword, namespace, f"{os.path.relpath(path, root)}:{line}"))
    if sum(map(len, found.values())) < 300:
        sys.exit("almost no types found: the sources are not read")
    errors = 0
    for name, places in sorted(found.items()):
        named = [place for place in places if place[0] == "class" or "(anonymous)" not in place[1]]
        has_class = any(keyword == "class" for keyword, _, _ in places)
        same_namespace = len({namespace for _, namespace, _ in named}) < len(named)
        if (has_class and len(places) > 1) or same_namespace:
            errors += 1
            print("\n".join(f"{place}: {keyword} {namespace}::{name} is one of {len(places)}" for keyword, namespace, place in places))
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
