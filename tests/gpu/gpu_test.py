#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NCCL on a real GPU, several ranks on one GPU, over sockets, under collwire: operations against a profiler plugin, bytes against those given to send(),
order against the program's, the time of AllReduce with and without a recorder, and loops of PyTorch. Without eBPF: `plan` and `inspect` only.

gpu_test.py --build DIRECTORY [--collwire FILE] [--nccl libnccl.so.2] [--steps STEP,...] [--keep DIRECTORY] [--double VERSION [--only-full]]

--double: the test double of CUDA in place of the GPU, with fewer sizes and rounds, without PyTorch."""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # it runs as root

import gpu_job  # before the next ones: it sets their path
import double_job
import gpu_cost
import gpu_guest
import gpu_inspect
import suite_truth
import one_machine

RANKS = 2
PROTOCOLS = ("", "Simple", "LL", "LL128")
OPERATIONS = ("allreduce", "allgather", "reducescatter", "broadcast", "reduce", "sendrecv", "allpairs")
# The profiler plugin has its sends and receives, so it runs on a communicator of its own.
APART = "alltoall"
SIZES = ("8", "1KiB", "64KiB", "1MiB", "16MiB", "256MiB")
SIZES_ON_DOUBLE = ("8", "1KiB", "1MiB")
COST_SIZES = {"8": 20, "1KiB": 20, "64KiB": 20, "1MiB": 10, "16MiB": 2} # and how many times in a row
REPLAYS = 5
LIMIT_S = 600


@dataclasses.dataclass
class Bench:
    collwire: str
    programs: str
    double: str
    plugin: str
    library: str
    directory: str
    runtime: str = ""
    python: str = ""
    of_torch: str = "" # the NCCL that PyTorch loads

    @property
    def sizes(self):
        return SIZES if self.runtime else SIZES_ON_DOUBLE

    def job(self, directory, kind=gpu_job.GpuJob, is_profiled=True, **environment):
        is_torch = kind is gpu_job.TorchJob
        words = {"python": self.python} if is_torch else {}
        if is_profiled:
            environment.update({"NCCL_PROFILER_PLUGIN": self.plugin, "COLLWIRE_PROFILER_LOG": f"{directory}/profiler"})
        return kind(self.of_torch if is_torch else self.library, self.double, RANKS, programs=self.programs, runtime=self.runtime, limit_s=LIMIT_S,
                    environment=environment, **words)

    def make_directory(self, name):
        os.mkdir(f"{self.directory}/{name}")
        return f"{self.directory}/{name}"


def write_plan(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, ""]))
    return path


def plan(bench):
    """What collwire reads in the library."""
    path = f"{bench.directory}/plan.json"
    with open(path, "w", encoding="utf-8") as file:
        subprocess.run([bench.collwire, "doctor", "--nccl", bench.library, "--json"], stdout=file, check=True)
    with open(path, encoding="utf-8") as file:
        said = json.load(file)
    rungs = {name: capability["rung"] for name, capability in said["capabilities"].items()}
    print(f"plan: NCCL {said['version']}, build-id {said['build_id']}: {rungs}", flush=True)
    return [reason for reason in (said["not_recorded"], said["calls_only"]) if reason]


def inspect(bench):
    directory = bench.make_directory("inspect")
    path = write_plan(f"{directory}/loop.plan", ["loop", "world allreduce 1MiB", "world allgather 1KiB", "wait"])
    return gpu_inspect.check(bench.collwire, bench.job(directory), directory, path)


def collectives(bench):
    problems = []
    for protocol in PROTOCOLS:
        directory = bench.make_directory(f"collectives-{protocol or 'default'}")
        lines = ["communicator apart whole"]
        lines += [line for size in bench.sizes for operation in OPERATIONS for line in (f"world {operation} {size}", "wait")]
        lines += [line for size in bench.sizes for line in (f"apart {APART} {size}", "wait")]
        lines += ["capture world 3", "world allreduce 64KiB", "world allgather 1KiB", "end"]
        job = bench.job(directory, **({"NCCL_PROTO": protocol} if protocol else {}))
        report, jobs, _ = one_machine.record(bench.collwire, job, directory, ["--plan", write_plan(f"{directory}/all.plan", lines)])
        line, of_run = suite_truth.judge(report, jobs, directory, protocol)
        print(f"collectives, {protocol or 'NCCL chooses the protocol'}: {line}", flush=True)
        problems += of_run
    return problems


def cost(bench):
    directory = bench.make_directory("cost")
    lines = ["loop", *(line for size, times in COST_SIZES.items() if bench.runtime or size in bench.sizes
                       for line in (f"world allreduce {size}", "wait") * times)]
    return gpu_cost.measure(bench.collwire, bench.job(directory, is_profiled=False), directory, write_plan(f"{directory}/cost.plan", lines),
                            gpu_cost.ROUNDS if bench.runtime else gpu_cost.ROUNDS_ON_DOUBLE)


def torch(bench):
    if not bench.python:
        raise StepSkipped("no Python of PATH has PyTorch with its own NCCL")
    problems = []
    for name, count in (("ddp", 20), ("graph", REPLAYS)):
        directory = bench.make_directory(f"torch-{name}")
        report, jobs, _ = one_machine.record(bench.collwire, bench.job(directory, gpu_job.TorchJob), directory, ["--plan", name, "--count", str(count)])
        line, of_run = suite_truth.judge(report, jobs, directory, "", of_torch=True)
        print(f"torch, {name}: {line}", flush=True)
        problems += of_run
    return problems


class StepSkipped(Exception):
    """A step cannot run here, for this reason."""


def of_guest(step):
    """A step of the guest library: with PyTorch, on a GPU."""

    def run_step(bench):
        if not bench.python:
            raise StepSkipped("no GPU, or no Python of PATH has PyTorch with its own NCCL")
        return step(bench)

    return run_step


STEPS = {"plan": plan, "inspect": inspect, "collectives": collectives, "cost": cost, "torch": torch, "kernels": of_guest(gpu_guest.kernels),
         "profilers": of_guest(gpu_guest.profilers), "guest_cost": of_guest(gpu_guest.guest_cost), "records": of_guest(gpu_guest.records)}
# Those that place probes.
NEED_BPF = ("collectives", "cost", "torch", "kernels")


def bench_of(arguments, directory):
    build = os.path.realpath(arguments.build)
    common = {"collwire": arguments.collwire or f"{build}/collwire", "programs": f"{build}/tests/gpu", "double": f"{build}/tests/cuda_double",
              "plugin": f"{build}/tests/nccl/libnccl_test_profiler_plugin.so", "directory": directory}
    if arguments.double:
        try:
            return Bench(library=double_job.fetched(arguments.double), **common)
        except RuntimeError as problem:
            raise one_machine.Skip(problem) from problem
    found = gpu_job.gpus()
    if not found:
        raise one_machine.Skip("no GPU (nvidia-smi -L)")
    python = gpu_job.python_with_torch()
    library = arguments.nccl or gpu_job.find_library("libnccl.so.2", python)
    runtime = gpu_job.find_library("libcudart.so.1[0-9]", python)
    if not library or not runtime:
        raise one_machine.Skip(f"no {'libcudart.so' if library else 'libnccl.so.2'} of PyTorch or the system. Fix: pip install torch, or --nccl")
    print(f"{found[0]}; {library}; {runtime}; {os.uname().release}", flush=True)
    of_torch = gpu_job.find_library("libnccl.so.2", python) if python else None
    return Bench(library=library, runtime=runtime, python=python if of_torch else "", of_torch=of_torch or "", **common)


def run(arguments, directory):
    bench = bench_of(arguments, directory)
    problems, no_bpf, ran = [], "", []
    for name in arguments.steps.split(","):
        if no_bpf and name in NEED_BPF:
            print(f"{name}: skip: {no_bpf}", flush=True)
            continue
        try:
            problems += [f"{name}: {problem}" for problem in STEPS[name](bench)]
            ran.append(name)
        except StepSkipped as reason:
            print(f"{name}: skip: {reason}", flush=True)
        except one_machine.Skip as reason:
            no_bpf = str(reason)
            print(f"{name}: skip: {no_bpf}", flush=True)
        except Exception as problem: # pylint: disable=broad-exception-caught  (the other steps still run)
            problems.append(f"{name}: {type(problem).__name__}: {problem}")
    print("\n".join([f"run: {', '.join(ran)}", *problems[:60]]), flush=True)
    assert not problems, f"{len(problems)} problems"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True, help="the release build")
    parser.add_argument("--collwire", default="")
    parser.add_argument("--nccl", default="")
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--keep", default="", metavar="DIRECTORY", help="keep the results there")
    parser.add_argument("--double", default="", metavar="VERSION")
    parser.add_argument("--only-full", action="store_true", help="skip unless COLLWIRE_FULL=1")
    arguments = parser.parse_args()
    try:
        if arguments.only_full and os.environ.get("COLLWIRE_FULL") != "1":
            raise one_machine.Skip("runs with COLLWIRE_FULL=1")
        if os.geteuid() != 0:
            raise one_machine.Skip("needs root")
        if arguments.keep:
            os.makedirs(arguments.keep)
            run(arguments, arguments.keep)
        else:
            with tempfile.TemporaryDirectory() as directory:
                run(arguments, directory)
    except one_machine.Skip as reason:
        print(f"skip: {reason}")
        return one_machine.SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
