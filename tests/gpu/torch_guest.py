#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of PyTorch with the guest library in its process, whose semaphore it sets by hand, as a recorder's probe does.

torch_guest.py --rank R --ranks N --id FILE --log FILE --plan profiler|allreduce [--order none|dormant|guest-first|profiler-first]

profiler: what torch.profiler sees of NCCL's kernels, while the guest is armed before it or in its middle. allreduce: times of AllReduces in turns,
the guest armed in every second one."""

import argparse
import ctypes
import json
import os
import sys
import time

import torch
import torch.distributed as dist

STEPS_PROFILED, STEPS_BETWEEN = 10, 40
SIZES = ((8, 1200), (1 << 20, 800), (1 << 28, 12)) # bytes, AllReduces a turn
SETTLE_S = 0.7


class Guest:
    """The semaphore of the guest library in this process; without the library nothing happens."""

    def __init__(self):
        self.semaphore = None
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split()[-1] for line in maps if "libcollwire_cupti.so" in line}
        # A preloaded receiver's takes the place of the guest's.
        for library in [None, *paths] if paths else []:
            try:
                self.semaphore = ctypes.c_ushort.in_dll(ctypes.CDLL(library), "collwire_gpu_arm_semaphore")
                break
            except ValueError:
                continue

    def set(self, value):
        if self.semaphore is not None:
            self.semaphore.value = value


def model_of():
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(1024, 1024), torch.nn.GELU())]
    return torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).cuda())


def profiler(order, guest, log):
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def run(name, steps):
        begin = time.monotonic_ns()
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()
        log(what=name, steps=steps, begin_ns=begin, end_ns=time.monotonic_ns(), step_us=(time.monotonic_ns() - begin) / steps / 1e3)

    def profiled(name, middle=None):
        kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=kinds) as profile:
            run(name, STEPS_PROFILED)
            if middle:
                middle()
                run(name + ", second half", STEPS_PROFILED)
        on_gpu = [event for event in profile.events() if str(event.device_type).endswith("CUDA")]
        nccl = [event for event in on_gpu if "nccldevkernel" in event.name.lower()]
        calls = [event for event in profile.events() if "cudaLaunchKernel" in event.name]
        # Kernels run after their launch: true only if both are on one axis.
        first_launch = min((event.time_range.start for event in calls), default=0)
        first_kernel = min((event.time_range.start for event in on_gpu), default=0)
        log(what=f"profile of {name}", nccl=len(nccl), on_gpu=len(on_gpu), launches=len(calls), first_kernel_after_us=first_kernel - first_launch,
            bad_times=sum(event.time_range.end < event.time_range.start for event in on_gpu))

    def arm():
        guest.set(1)
        time.sleep(SETTLE_S)

    run("warm up", 5)
    if order == "guest-first":
        arm()
    run("before", STEPS_BETWEEN)
    profiled("first")
    run("between", STEPS_BETWEEN)
    time.sleep(2.5)
    run("between, 2.5 s later", STEPS_BETWEEN)
    profiled("second", arm if order == "profiler-first" else None)
    time.sleep(2.5)
    run("after", STEPS_BETWEEN)
    profiled("third")
    run("end", STEPS_BETWEEN)
    guest.set(0)
    time.sleep(1.5)
    run("disarmed", STEPS_BETWEEN)


def allreduce(_, guest, log):
    turns = int(os.environ.get("TURNS", "8"))
    for size, count in SIZES:
        values = torch.zeros(size // 4, device="cuda")
        for turn in range(turns):
            is_armed = turn % 2 == 1
            guest.set(1 if is_armed else 0)
            end = time.monotonic() + SETTLE_S
            # Both ranks leave the settling together.
            going = torch.ones(1, device="cuda")
            while going.item() != 0:
                for _ in range(10):
                    dist.all_reduce(values)
                going.fill_(1 if time.monotonic() < end else 0)
                dist.all_reduce(going, op=dist.ReduceOp.MIN)
            took = []
            for _ in range(count):
                torch.cuda.synchronize()
                begin = time.perf_counter_ns()
                dist.all_reduce(values)
                torch.cuda.synchronize()
                took.append(time.perf_counter_ns() - begin)
            took.sort()
            log(what="turn", bytes=size, turn=turn, is_armed=is_armed, median_us=took[len(took) // 2] / 1e3, p90_us=took[len(took) * 9 // 10] / 1e3,
                mean_us=sum(took) / len(took) / 1e3, slowest_us=took[-1] / 1e3)
    guest.set(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--plan", choices=("profiler", "allreduce"), required=True)
    parser.add_argument("--order", choices=("none", "dormant", "guest-first", "profiler-first"), default="none")
    arguments = parser.parse_args()
    with open(arguments.log, "w", encoding="utf-8") as file:

        def log(**line):
            file.write(json.dumps({**line, "pid": os.getpid(), "at_ns": time.monotonic_ns()}) + "\n")
            file.flush()

        torch.cuda.set_device(0)
        dist.init_process_group("nccl", init_method="file://" + arguments.id, rank=arguments.rank, world_size=arguments.ranks)
        dist.all_reduce(torch.ones(1, device="cuda"))
        torch.cuda.synchronize()
        log(what="start", torch=torch.__version__, nccl=torch.cuda.nccl.version(), order=arguments.order)
        {"profiler": profiler, "allreduce": allreduce}[arguments.plan](arguments.order, Guest(), log)
        dist.barrier()
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
