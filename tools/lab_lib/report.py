# SPDX-License-Identifier: Apache-2.0
"""What the lab says to its user: progress and notes on stderr, one error line at the end."""

import sys
import time

_START = time.monotonic()


class LabError(Exception):
    """A failure with one clear line: what, where, and what to do about it."""


def progress(text):
    print(f"lab {time.monotonic() - _START:6.1f}s  {text}", file=sys.stderr, flush=True)
