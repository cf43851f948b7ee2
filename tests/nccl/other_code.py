# SPDX-License-Identifier: Apache-2.0
"""Another code in one function of a library, as a patch would change it."""

import re
import subprocess


def other_field(library, whole, function):
    """(file offset, old byte, new byte): a field's distance in one instruction of a function, 8 bytes further."""
    entry = next(probe for probe in whole["probes"] if probe["function"] == function)["entry"]
    listing = subprocess.run(["objdump", "-d", "-w", f"--start-address={entry}", f"--stop-address={entry + 400}", library], capture_output=True, text=True,
                             check=True).stdout
    for line in listing.splitlines():
        found = re.match(r"^\s*([0-9a-f]+):\t((?:[0-9a-f]{2} )+)\s*\tmov\s+0x([0-9a-f]+)\(%r(?:di|bx|bp|1[2-5])\),%r", line)
        code = bytes.fromhex(found[2]) if found else b""
        if found and 0 < (distance := int(found[3], 16)) < 120 and code[-1] == distance:
            return int(found[1], 16) + len(code) - 1, bytes([distance]), bytes([distance + 8])
    raise AssertionError(f"{function}: no field at an offset of one byte")
