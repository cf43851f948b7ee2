#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""include_rules_test.py ROOT: each #include between rooms is in the rooms table of docs/architecture.md, and each entry there is used."""
import os
import re
import sys

SOURCES = (".c", ".cpp", ".h")
EVERYTHING = "everything"


def rooms_of(document):
    """The table: each room's path, and the paths that it may use."""
    rooms = {}
    for line in document.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 3 or not cells[0].startswith("`"):
            continue
        uses = [EVERYTHING] if cells[2] == EVERYTHING else re.findall(r"`([^`]+)`", cells[2])
        for room in re.findall(r"`([^`]+)`", cells[0]):
            rooms[room] = uses
    return rooms


def sources_below(root, rooms):
    for top in sorted({room.split("/")[0] for room in rooms}):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith(SOURCES):
                    yield os.path.relpath(os.path.join(folder, name), root)


def room_of(path, rooms):
    """The innermost room of the table that a file is in."""
    return max((room for room in rooms if path.startswith(room)), key=len, default=None)


def included_file(root, path, name):
    for folder in ("", "bpf", "bpf/include", os.path.dirname(path)):
        candidate = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(os.path.join(root, candidate)):
            return candidate
    return None


def check(root, rooms):
    errors = []
    used = set()
    for path in sources_below(root, rooms):
        room = room_of(path, rooms)
        if room is None:
            errors.append(f"{path}:1: is in no room of docs/architecture.md")
            continue
        with open(os.path.join(root, path), encoding="utf-8") as file:
            lines = file.readlines()
        for number, line in enumerate(lines, 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match or match[1].endswith(".skel.h"):
                continue
            target = included_file(root, path, match[1])
            if target is None:
                errors.append(f'{path}:{number}: "{match[1]}" is not in the project: include it with <>')
                continue
            other = room_of(target, rooms)
            if other == room or rooms[room] == [EVERYTHING]:
                continue
            if other in rooms[room]:
                used.add((room, other))
            else:
                errors.append(f"{path}:{number}: {room} may use {', '.join(rooms[room]) or 'no other room'}: not {target}")
    for room, uses in rooms.items():
        errors += [f"docs/architecture.md: {room} may use {entry}, and no file of it does: take it out of the table"
                   for entry in uses if entry != EVERYTHING and (room, entry) not in used]
    return errors


def main():
    root = sys.argv[1]
    with open(os.path.join(root, "docs/architecture.md"), encoding="utf-8") as file:
        rooms = rooms_of(file.read())
    if len(rooms) < 20:
        sys.exit(f"docs/architecture.md: {len(rooms)} rooms found: the table is not read")
    errors = check(root, rooms)
    for error in errors:
        print(error)
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
