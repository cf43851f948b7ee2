# SPDX-License-Identifier: Apache-2.0
"""What the exit status of `collwire record` says of this machine."""

NOT_PERMITTED, UNSUPPORTED = 3, 4
# A directory that is refused has the first status, too. It is a fault of the test.
OF_DIRECTORY = " with -o"


def lacks(status, said):
    """What this machine lacks, so that no recorder runs here, in the recorder's last line; empty if that is not why it ended, or it has not."""
    line = (said.strip().splitlines() or [""])[-1]
    return line if status in (NOT_PERMITTED, UNSUPPORTED) and OF_DIRECTORY not in line else ""
