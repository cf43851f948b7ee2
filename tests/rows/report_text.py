# SPDX-License-Identifier: Apache-2.0
"""Reads tables out of the text report."""

import itertools
import re

# Below a table.
NOTE = re.compile(r"  (\.\.\. and |waiting, transfer: |\w\w\? is guessed: |time: |exact: |\(unknown\): |Not part |[^:]+ x \d+: |[\d.]+ \w+ (measured|computed|posted) )")


def lines_of(text, title):
    """The lines below a title, up to the next empty line; none: there is no such section."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(title)]
    if not starts:
        return []
    assert len(starts) == 1, (title, starts)
    section = []
    for line in lines[starts[0] + 1:]:
        if not line:
            break
        section.append(line)
    return section


def table(text, title, first):
    """The rows below a title, by the names of their columns. The header has the cell `first` first. A column ends where two
    blanks are above each other in every line."""
    section = lines_of(text, title)
    if not section or section[0].split()[:1] != [first]:
        return []
    rows = list(itertools.takewhile(lambda line: not NOTE.match(line), section))
    width = max(map(len, rows))
    is_used = [any(len(line) > at and line[at] != " " for line in rows) for at in range(width)]
    spans = [match.span() for match in re.finditer(r"x(?:x| (?! ))*", "".join("x" if used else " " for used in is_used))]
    names = [rows[0][start:end].strip() for start, end in spans]
    return [dict(zip(names, (line[start:end].strip() for start, end in spans))) for line in rows[1:]]


def human(number):
    """As the report prints bytes."""
    if number is None:
        return "n/a"
    if number < 1024:
        return f"{number} B"
    value = number / 1024
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1023.995:
            break
        value /= 1024
    return f"{value:.2f} {unit}"
