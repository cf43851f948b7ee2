# SPDX-License-Identifier: Apache-2.0
"""What is in captures, for jobs and for tests."""

import subprocess


def count_records(collwire: str, directory: str, *kinds: str) -> int:
    """Records of these kinds in the captures of a directory."""
    words = [collwire, "dump", directory]
    for kind in kinds:
        words += ["--kind", kind]
    done = subprocess.run(words, capture_output=True, check=False)
    return done.stdout.count(b"\n")
