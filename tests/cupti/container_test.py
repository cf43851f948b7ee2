#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`collwire record --gpu` on the host, of ranks of official NCCL in containers of podman, with the guest library as deploy/gpu/README.md gives it to them:
one rank has the host's file, read-only, the other one a copy in its own root file system. The containers' roots have the host's /usr.

container_test.py --collwire FILE --build DIRECTORY --version VERSION [--only-full] [--keep DIRECTORY]"""

import os
import resource
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", name) for name in ("cuda_double", "cupti_double", "nccl")]

import double_job # pylint: disable=wrong-import-position
import gpu_truth # pylint: disable=wrong-import-position
import one_machine # pylint: disable=wrong-import-position
import record_test # pylint: disable=wrong-import-position

# Not below /usr, which is the host's and read-only here.
LIBRARY = "/run/collwire/libcollwire_cupti.so"
COPY = "/opt/collwire/libcollwire_cupti.so"
# Open files and processes.
MOST = 4096
FOLDERS = ("usr", "proc", "sys", "dev", "run", "tmp", "etc", "opt/collwire")
LINKS = ("bin", "sbin", "lib", "lib64")


def make_root(root, library):
    """A root file system whose programs are the host's, with a copy of the guest library."""
    for folder in FOLDERS:
        os.makedirs(os.path.join(root, folder))
    for link in LINKS:
        if os.path.islink(f"/{link}"):
            os.symlink(os.readlink(f"/{link}"), os.path.join(root, link))
    shutil.copy(library, root + COPY)


def limits():
    """As this process has them: podman would raise them."""
    return [f"--ulimit={name}={min(hard, MOST)}:{min(hard, MOST)}" for name, hard in (
        (name, resource.getrlimit(number)[1]) for name, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)))]


def words_of(runtime, *options):
    return ["podman", *(("--runtime", runtime) if runtime else ()), "run", "--rm", "--network=host", "--shm-size=1g", *limits(), *options]


def usable_runtime(root):
    """The runtime that podman can use here; empty: its own choice."""
    if not shutil.which("podman"):
        raise one_machine.Skip("podman is not installed")
    said = ""
    for runtime in ("", "runc", "crun"):
        tried = subprocess.run([*words_of(runtime, "-v", "/usr:/usr:ro", "--rootfs"), f"{root}:O", "/bin/true"], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return runtime
        said = said or tried.stderr.strip().splitlines()[-1]
    raise one_machine.Skip(f"podman runs no container here: {said}")


class ContainerJob(record_test.RecordedJob):
    """Each rank in a container."""

    def __init__(self, arguments, library, root, runtime):
        super().__init__(arguments, library, ranks=2)
        self.container_root, self.runtime = root, runtime

    def start(self, rank, directory, program, arguments, mask=frozenset()):
        host = self.environment_of(rank, directory)
        environment = {name: value for name, value in host.items() if os.environ.get(name) != value}
        own = rank == 1
        environment["CUDA_INJECTION64_PATH"] = COPY if own else LIBRARY
        options = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
        places = ["/usr:/usr:ro", f"{self.root}/tests:{self.root}/tests:ro", f"{os.path.dirname(self.library)}:{os.path.dirname(self.library)}:ro",
                  f"{directory}:{directory}"]
        if not own:
            places.append(f"{self.root}/libcollwire_cupti.so:{LIBRARY}:ro")
        options += [word for place in places for word in ("-v", place)]
        words = [*words_of(self.runtime, *options, "--rootfs"), f"{self.container_root}:O", *self.command(program), "--rank", str(rank), "--ranks",
                 str(self.ranks), "--id", f"file:{directory}/id", *arguments, "--log", f"{directory}/job.{rank}"]
        with open(f"{directory}/output.{rank}", "w", encoding="utf-8") as output:
            return subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)


def run(arguments, library, directory):
    root = f"{directory}/root"
    make_root(root, f"{arguments.build}/libcollwire_cupti.so")
    job = ContainerJob(arguments, library, root, usable_runtime(root))
    with one_machine.Recorder(arguments.collwire, f"{directory}/capture", "--gpu", "--nccl", library) as recorder:
        double_job.run_job(job, directory, "job", ["--plan", "training", "--count", "3"])
    assert recorder.status == 0, recorder.said()
    done = subprocess.run([arguments.collwire, "report", f"{directory}/capture", "--json", f"{directory}/report.json"], stdout=subprocess.DEVNULL,
                          check=False)
    assert done.returncode == 0, done.returncode
    with open(f"{directory}/report.json", encoding="utf-8") as file:
        report = one_machine.json.load(file)
    world = next(comm for comm in report["communicators"] if comm["name"] == "world")
    # A rank's number of its process in the host's pid namespace, which it does not know itself.
    processes = [(rank["host"], rank["pid"]) for rank in sorted(world["ranks"], key=lambda rank: rank["rank"])]
    kernels = [kernel for rank in range(job.ranks) for kernel in gpu_truth.kernels_of(
        rank, double_job.lines_of(f"{directory}/cupti.{rank}"), double_job.lines_of(f"{directory}/truth.{rank}"), True)]
    coverage, problems = gpu_truth.check_coverage(report, processes, kernels, False)
    phases, of_phases = gpu_truth.check_phases(report, kernels, record_test.TOLERANCE_NS)
    assert not problems + of_phases, "\n".join((problems + of_phases)[:20])
    print(f"podman {job.runtime or 'with its own choice of runtime'}: {coverage}; {phases}")


if __name__ == "__main__":
    ARGUMENTS = one_machine.arguments_of(__doc__)
    ARGUMENTS.build, ARGUMENTS.cupti = os.path.realpath(ARGUMENTS.build), 13
    sys.exit(one_machine.main(ARGUMENTS, run))
