# SPDX-License-Identifier: Apache-2.0
"""How much slower this machine is at this moment than a quiet one: what a bound of time is multiplied with, where a test needs one."""

import subprocess
import sys

# On quiet CPUs this work takes QUIET_S, or less.
WORK, QUIET_S = "import time; b = time.monotonic(); sum(i * i for i in range(5_000_000)); print(time.monotonic() - b)", 0.3


def slowness():
    """1 or more."""
    took_s = float(subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, check=True).stdout)
    return max(1.0, took_s / QUIET_S)


def is_within(took_s, bound_s):
    """Whether that was within the bound, which is longer as far as the machine is slower now."""
    return took_s < bound_s or took_s < bound_s * slowness()
