# SPDX-License-Identifier: Apache-2.0
"""The lab's messages: progress and notes on stderr, one error line at the end."""

import os
import sys
import time

_START = time.monotonic()


class LabError(Exception):
    """A failure with one line: what failed, where, and what to do."""


class NotPossible(LabError):
    """This machine lacks something that every lab needs; nothing was started."""


def progress(text):
    print(f"lab {time.monotonic() - _START:6.1f}s  {text}", file=sys.stderr, flush=True)


def failure(error):
    """Prints the one line and returns the exit status: EX_UNAVAILABLE (69) where this machine cannot run a lab, else 1."""
    print(f"lab: error: {error}", file=sys.stderr)
    return os.EX_UNAVAILABLE if isinstance(error, NotPossible) else 1
