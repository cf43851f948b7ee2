# SPDX-License-Identifier: Apache-2.0
"""Builds an RDMA core that is not the kernel's own: the stack of the lab's kernel, outside of its tree, with one more field in front
of struct ib_qp, so that every offset in it is another."""

import glob
import os
import shutil
import subprocess
import sys

import lab_harness as harness

sys.path.insert(0, os.path.join(harness.ROOT, "tools"))
from lab_lib import kernel_tree  # noqa: E402  (the path has to be set first)
from lab_lib.report import LabError  # noqa: E402

MODULES = {"ib_core", "ib_cm", "iw_cm", "ib_umad", "ib_uverbs", "rdma_cm", "rdma_ucm", "rdma_rxe"}
FIELD = "collwire_lab_field"
_BEFORE = "struct ib_qp {\n\tstruct ib_device       *device;\n"
_TOOLS = {"gcc": "build-essential", "make": "build-essential", "objcopy": "binutils", "pahole": "pahole"}


def need_tools():
    missing = sorted({package for tool, package in _TOOLS.items() if not shutil.which(tool)})
    if missing:
        harness.skip(f"not installed: {', '.join(missing)}. Fix: tools/install-deps")


def _run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    assert done.returncode == 0, f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout[-4000:]}"
    return done.stdout


def _insert_field(header):
    with open(header, encoding="utf-8") as source:
        text = source.read()
    assert text.count(_BEFORE) == 1, f"{header}: struct ib_qp does not begin as expected"
    with open(header, "w", encoding="utf-8") as out:
        out.write(text.replace(_BEFORE, _BEFORE.replace("{\n", f"{{\n\tu64 {FIELD};\n")))


def build(series, directory):
    """Compiles the stack below `directory` and returns the modules' paths; they hold debug information and no BTF."""
    try:
        tree = kernel_tree.get(series).copy(os.path.join(directory, "tree"))
    except LabError as error:
        harness.skip(f"nothing to build the modules with: {error}")
    _insert_field(os.path.join(tree.source, "include/rdma/ib_verbs.h"))
    stack = os.path.join(tree.source, "drivers/infiniband")
    with open(os.path.join(stack, "Makefile"), "w", encoding="ascii") as out:
        out.write("obj-m := core/ sw/rxe/\n")
    # Any gcc will do: Debian's headers name the one that the kernel was built with.
    _run("make", "-C", tree.build, f"M={stack}", "CC=gcc", "-j2", "modules")
    built = glob.glob(os.path.join(stack, "**", "*.ko"), recursive=True)
    assert {os.path.basename(path)[:-3] for path in built} == MODULES, built
    return built


def undescribed(built, directory):
    """Copies the modules without debug information and BTF, as DKMS makes them. Returns the directory."""
    os.makedirs(directory)
    for path in built:
        module = os.path.join(directory, os.path.basename(path))
        _run("objcopy", "--strip-debug", path, module)
        assert ".BTF" not in _run("readelf", "-SW", module), f"{module} has BTF"
    return directory


def described(built, kernel_btf, directory):
    """The same with BTF on top of the kernel's, as its own modules have it. Returns the directory."""
    os.makedirs(directory)
    for path in built:
        module = shutil.copy(path, directory)
        _run("pahole", "-J", "--btf_gen_floats", "--btf_base", kernel_btf, module, env=dict(os.environ, LLVM_OBJCOPY="objcopy"))
        _run("objcopy", "--strip-debug", module)
        assert ".BTF" in _run("readelf", "-SW", module), f"{module} has no BTF"
    return directory
