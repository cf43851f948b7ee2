#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The documents: every link between them leads somewhere, lines outside tables have 160 characters at most, the README has 120 lines at most, and the
words that docs/style.md replaces are gone."""

import os
import re
import subprocess
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
LINE_CHARACTERS, README_LINES = 160, 120
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
# docs/style.md lists them, so it is exempt.
OLD_WORDS = re.compile(r"\b(tells?|told|telling|nobody|whoever|is none|are none|under way|of NCCL's(?=[,.;:)]))\b")


def documents():
    """Path from the root: text."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "*.md"], capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        paths = listed.stdout.split()
    else:  # not a clone: an archive of the sources
        paths = [os.path.relpath(os.path.join(directory, name), ROOT) for directory, _, names in os.walk(ROOT) for name in names
                 if name.endswith(".md") and f"{os.sep}build{os.sep}" not in directory]
    texts = {}
    for path in paths:
        if os.path.exists(os.path.join(ROOT, path)):
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                texts[path] = file.read()
    return texts


def anchor(heading):
    """As hosting sites make it of a heading."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"[`*]", "", heading.strip())).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def lines_outside_tables(text):
    return [(number, line) for number, line in enumerate(text.splitlines(), 1) if not line.lstrip().startswith("|")]


class Documents(unittest.TestCase):
    def setUp(self):
        self.documents = documents()
        self.assertIn("README.md", self.documents)

    def test_links_lead_somewhere(self):
        anchors = {path: {anchor(heading) for heading in HEADING.findall(text)} for path, text in self.documents.items()}
        dead = []
        for path, text in self.documents.items():
            for target, fragment in LINK.findall(text):
                if target.startswith("http"):
                    continue
                file = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
                if not os.path.exists(os.path.join(ROOT, file)) or (fragment and fragment not in anchors.get(file, set())):
                    dead.append(f"{path}: {target}#{fragment}")
        self.assertEqual(dead, [])

    def test_lines_are_short(self):
        long = [f"{path}:{number}: {len(line)} characters" for path, text in self.documents.items()
                for number, line in lines_outside_tables(text) if len(line) > LINE_CHARACTERS]
        self.assertEqual(long, [])

    def test_readme_is_short(self):
        self.assertLessEqual(len(self.documents["README.md"].splitlines()), README_LINES)

    def test_words_are_those_of_the_style_page(self):
        old = [f"{path}:{number}: {found.group(0)}" for path, text in self.documents.items() if path != "docs/style.md"
               for number, line in enumerate(text.splitlines(), 1) if (found := OLD_WORDS.search(line))]
        self.assertEqual(old, [])


if __name__ == "__main__":
    unittest.main()
