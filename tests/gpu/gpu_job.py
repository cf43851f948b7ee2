# SPDX-License-Identifier: Apache-2.0
"""Jobs of NCCL on one GPU, over sockets, each rank a node of its own for NCCL (NCCL_HOSTID); or the same on the test double of CUDA."""

import dataclasses
import glob
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "nccl"), os.path.join(HERE, "..", "cuda_double")]

import double_job  # noqa: E402  (the path has to be set first)

# Directories in the packages of a Python, as in NVIDIA's wheels, then of the system.
PLACES = ("nvidia/nccl/lib", "nvidia/cuda_runtime/lib", "nvidia/cu1*/lib")
SYSTEM = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/cuda/lib64")
TORCH_LOOP = os.path.join(HERE, "torch_loop.py")


def gpus():
    """The driver's line for each GPU; empty: no GPU."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.startswith("GPU ")] if done.returncode == 0 else []


def python_with_torch():
    """The first Python of PATH, else the system's, if it has PyTorch; else None."""
    for name in ("python3", "/usr/bin/python3"):
        python = shutil.which(name)
        if python and subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
            return python
    return None


def find_library(pattern, python):
    """Real path of a library of PyTorch's Python, else of the system; None: not found."""
    places = list(SYSTEM)
    if python:
        words = [python, "-c", "import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))"]
        packages = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
        places = [os.path.join(packages, place) for place in PLACES] + places
    for place in places:
        for path in sorted(glob.glob(os.path.join(place, pattern))):
            return os.path.realpath(path)
    return None


@dataclasses.dataclass
class GpuJob(double_job.Job):
    """`build`: where the double was built; `programs`: this folder. `runtime`: libcudart.so; empty: the double is the GPU."""
    programs: str = ""
    runtime: str = ""

    def command(self, program):
        return [f"{self.programs}/{program}"]

    def write_layout(self, directory):
        if not self.runtime:
            super().write_layout(directory)

    def preloaded(self):
        return [self.runtime, f"{self.build}/libsend_counter.so"]

    def environment_of(self, rank, directory):
        environment = super().environment_of(rank, directory)
        places = [self.programs]
        if self.runtime:
            environment = {name: value for name, value in environment.items() if not name.startswith("COLLWIRE_CUDA_")}
            environment["LD_PRELOAD"] = ":".join(self.preloaded())
            places += [os.path.dirname(self.library), os.path.dirname(self.runtime), os.environ.get("LD_LIBRARY_PATH", "")]
        else:
            places.append(environment["LD_LIBRARY_PATH"])
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, places))
        environment.setdefault("NCCL_NET", "Socket")
        environment.setdefault("NCCL_MNNVL_ENABLE", "0")
        return environment


@dataclasses.dataclass
class TorchJob(GpuJob):
    """torch_loop.py in place of the job: PyTorch has its own CUDA runtime and NCCL."""
    python: str = ""

    def command(self, program):
        return [self.python, TORCH_LOOP]

    def preloaded(self):
        return [f"{self.build}/libsend_counter.so"]
