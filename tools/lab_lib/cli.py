# SPDX-License-Identifier: Apache-2.0
"""The command line of tools/lab."""

import argparse
import fcntl
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass, field

from . import boot_image, faults, initramfs, kernels, modules, needs, sandbox
from .fabric import Fabric
from .node import check_path, check_visible
from .report import LabError, failure, progress

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
_OURS = re.compile(r"node\d|fabric|modules|topology\.json|lab\.json")


@dataclass
class Setup:
    """The settings of one run. Paths are absolute."""

    nodes: int
    nics: int
    mtu: int
    cpus: int
    memory_mib: int
    job: str
    out: str
    pcap: bool
    limit_s: float
    boot_limit_s: float
    faults: list
    path: list
    env: dict
    modules: str = ""         # a directory of modules that go before the kernel's own
    systemd: bool = False     # it is the first process of each node
    kernel: object = None
    module_tree: str = ""     # what the nodes have as /lib/modules
    image: str = ""
    initramfs: str = ""
    prepared_s: float = field(default=0.0)


def _arguments(words):
    parser = argparse.ArgumentParser(prog="tools/lab", description="Boots a virtual RDMA cluster (QEMU, rdma_rxe, leaf/spine fabric) and "
                                     "runs a job on every node. Exit 0 if and only if every node booted and every job returned 0. See docs/lab.md.")
    parser.add_argument("--nodes", type=int, choices=range(1, 5), default=2, help="number of nodes (default 2)")
    parser.add_argument("--kernel", choices=list(kernels.catalogue()), default="6.1", help="kernel series (default 6.1)")
    parser.add_argument("--job", metavar="SCRIPT", help="runs on every node as root, with the node's number as argument")
    parser.add_argument("--out", metavar="DIR", help="where the results go; those of an earlier run there are replaced")
    parser.add_argument("--nics", type=int, choices=(1, 2), default=1, help="NICs of a node (default 1)")
    parser.add_argument("--pcap", action="store_true", help="capture the packets of every link into DIR/fabric")
    parser.add_argument("--limit", type=float, default=300, metavar="S", help="seconds for the whole run (default 300)")
    parser.add_argument("--boot-limit", type=float, default=180, metavar="S", help="seconds for the boot of all nodes, and for each later step but the jobs (default 180)")
    parser.add_argument("--fault", action="append", default=[], metavar="FAULT", help=f"{faults.USAGE}; may be repeated")
    parser.add_argument("--path", action="append", default=[], metavar="DIR", help="a further directory for the job's PATH; may be repeated")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="environment of the job; may be repeated")
    parser.add_argument("--mtu", type=int, default=1500, help="MTU of all links (default 1500: RoCE path MTU 1024; 4200: 4096)")
    parser.add_argument("--cpus", type=int, default=1, help="CPUs of a node (default 1)")
    parser.add_argument("--memory", type=int, default=2048, metavar="MIB", help="memory of a node (default 2048)")
    parser.add_argument("--modules", metavar="DIR", help="kernel modules (*.ko) that the nodes load instead of the kernel's own of the same name")
    parser.add_argument("--systemd", action="store_true", help="systemd is the first process of each node, and starts the job")
    parser.add_argument("--fetch", action="store_true", help="only fetch the kernel into the cache")
    args = parser.parse_args(words)
    if not args.fetch and not (args.job and args.out):
        parser.error("--job and --out are needed")
    if not 1280 <= args.mtu <= 9000:
        parser.error("--mtu: 1280 to 9000")
    for pair in args.env:
        if not re.match(r"[A-Za-z_][A-Za-z0-9_]*=", pair):
            parser.error(f"--env {pair}: NAME=VALUE is needed")
    return args


def _setup(args):
    job = os.path.abspath(args.job)
    if not os.path.isfile(job):
        raise LabError(f"--job {args.job}: no such file. Fix: give the path of a script")
    check_visible(job, "--job")
    check_visible(_ROOT, "this project's directory")
    for entry in args.path:
        check_visible(entry, "--path")
    if args.modules:
        check_visible(args.out, "--modules: what is made of them below --out")
        if os.path.commonpath([os.path.realpath(args.modules), os.path.realpath(args.out)]) == os.path.realpath(args.out):
            raise LabError(f"--modules {args.modules} is below --out, where it would be replaced. Fix: keep it elsewhere")
    path = [os.path.join(_ROOT, "build/release"), os.path.join(_ROOT, "build/release/tests/lab")]
    path = [os.path.abspath(entry) for entry in args.path] + path
    for entry in path + [os.path.abspath(args.out)]:
        check_path(entry, "the path")
    return Setup(nodes=args.nodes, nics=args.nics, mtu=args.mtu, cpus=args.cpus, memory_mib=args.memory, job=job, out=os.path.abspath(args.out),
                 pcap=args.pcap, limit_s=args.limit, boot_limit_s=args.boot_limit, faults=args.fault, path=path,
                 env=dict(pair.split("=", 1) for pair in args.env), modules=os.path.abspath(args.modules) if args.modules else "", systemd=args.systemd)


def _claim(out):
    """Prepares `out` and locks it until this process and its child end. Only a lab's own results are ever removed."""
    os.makedirs(out, exist_ok=True)
    handle = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LabError(f"another lab is writing to {out}. Fix: use another --out") from error
    marker = os.path.join(out, ".collwire-lab")
    there = [name for name in os.listdir(out) if _OURS.fullmatch(name)]
    if there and not os.path.exists(marker):
        raise LabError(f"{out} holds {there[0]}, which no lab made. Fix: use another --out")
    with open(marker, "w", encoding="ascii"):
        pass
    for name in there:
        path = os.path.join(out, name)
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def main(words):
    args = _arguments(words)
    try:
        if args.fetch:
            kernel = kernels.get(args.kernel)
            progress(f"kernel {kernel.release} ({kernel.version}) is in {kernel.directory}")
            return 0
        setup = _setup(args)
        needs.check(setup.pcap, setup.systemd)
        for text in setup.faults:
            faults.Fault(text, Fabric(setup.nodes, setup.nics, setup.mtu))
        _claim(setup.out)
        check_visible(kernels.cache_directory(), "the lab's cache")
        start = time.monotonic()
        setup.kernel = kernels.get(args.kernel)
        setup.module_tree = setup.kernel.modules
        if setup.modules:
            setup.module_tree = modules.merge(setup.kernel, setup.modules, os.path.join(setup.out, "modules"))
        setup.image = boot_image.build(setup.kernel)
        setup.initramfs = initramfs.build(setup.kernel)
        setup.limit_s = max(1.0, setup.limit_s - (time.monotonic() - start))

        def body():
            from .run import Run
            return Run(setup).go()

        return sandbox.run(body)
    except LabError as error:
        return failure(error)
    except KeyboardInterrupt:
        print("lab: interrupted", file=sys.stderr)
        return 130
