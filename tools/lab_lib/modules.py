# SPDX-License-Identifier: Apache-2.0
"""A kernel's modules with some others put before them, as an administrator does it: below updates/, which depmod prefers."""

import glob
import os
import shutil
import subprocess

from .report import LabError


def merge(kernel, directory, target):
    """Makes a /lib/modules of the kernel's modules and those of `directory` below `target` and returns its path. The kernel's own
    stay where they are and are linked to. Raises LabError."""
    others = sorted(glob.glob(os.path.join(directory, "*.ko")))
    if not others:
        raise LabError(f"--modules {directory}: no *.ko there. Fix: give a directory of modules built for {kernel.release}")
    stock = os.path.join(kernel.modules, kernel.release)
    top = os.path.join(target, "lib", "modules")
    merged = os.path.join(top, kernel.release)
    os.makedirs(os.path.join(merged, "updates"))
    for name in os.listdir(stock):
        if name == "kernel" or name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
            os.symlink(os.path.join(stock, name), os.path.join(merged, name))
    for module in others:
        shutil.copy(module, os.path.join(merged, "updates"))
    done = subprocess.run(["depmod", "-b", target, kernel.release], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"depmod failed for {directory}: {done.stderr.strip()[:200]}. Fix: build the modules for {kernel.release}")
    with open(os.path.join(merged, "modules.dep"), encoding="utf-8") as source:
        known = {line.partition(":")[0] for line in source}
    for module in others:
        if f"updates/{os.path.basename(module)}" not in known:
            raise LabError(f"{module} is not what depmod prefers for {kernel.release}. Fix: a module that depmod can read")
    return top
