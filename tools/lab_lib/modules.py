# SPDX-License-Identifier: Apache-2.0
"""Kernel modules that replace the kernel's own, installed as an administrator does it: in updates/, which depmod prefers."""

import glob
import os
import shutil
import subprocess

from .report import LabError


def merge(kernel, directory, target):
    """Creates a /lib/modules in `target` from the kernel's modules (as links) and those in `directory`. Returns its path. Raises
    LabError."""
    others = sorted(glob.glob(os.path.join(directory, "*.ko")))
    if not others:
        raise LabError(f"--modules {directory}: no *.ko in it. Fix: give a directory of modules built for {kernel.release}")
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
            raise LabError(f"{module} is not preferred by depmod for {kernel.release}. Fix: give a module that depmod can read")
    return top
