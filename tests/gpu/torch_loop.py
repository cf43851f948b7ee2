#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank of PyTorch: a loop of DistributedDataParallel (--plan ddp), or replays of a CUDA graph with AllReduces (--plan graph). Every result is checked.

torch_loop.py --rank R --ranks N --id file:PATH --device D --plan ddp|graph [--count N] [--log FILE]"""

import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist

WIDTH, LAYERS, BATCH = 1024, 4, 32
CAPTURED = 3  # AllReduces in the graph
ELEMENTS = 1 << 18


def ddp(arguments):
    """The ranks start with different data and end with equal weights."""
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), device_ids=[arguments.device])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(1 + arguments.rank)
    for _ in range(arguments.count):
        loss = model(torch.randn(BATCH, WIDTH, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    of_first = weights.clone()
    dist.broadcast(of_first, 0)
    return bool(torch.equal(weights, of_first)), {}


def graph(arguments):
    """Each replay multiplies the values by the number of ranks once for each AllReduce."""
    values = torch.ones(ELEMENTS, device="cuda")
    dist.all_reduce(torch.ones(1, device="cuda"))  # connects
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for _ in range(CAPTURED):
            dist.all_reduce(values)
    right = True
    for _ in range(arguments.count):
        values.fill_(1)
        captured.replay()
        torch.cuda.synchronize()
        right = right and bool((values == float(arguments.ranks ** CAPTURED)).all())
    return right, {"captured": CAPTURED, "replays": arguments.count}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--plan", choices=("ddp", "graph"), required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--log", default=os.devnull)
    arguments = parser.parse_args()
    torch.cuda.set_device(arguments.device)
    dist.init_process_group("nccl", init_method="file://" + arguments.id.removeprefix("file:"), rank=arguments.rank, world_size=arguments.ranks)
    print(f"rank {arguments.rank}: running", flush=True)
    right, said = {"ddp": ddp, "graph": graph}[arguments.plan](arguments)
    with open(arguments.log, "w", encoding="utf-8") as log:
        line = {"event": "job", "rank": arguments.rank, "ranks": arguments.ranks, "pid": os.getpid(), "at_ns": time.monotonic_ns(),
                "torch": torch.__version__, "nccl_version": torch.cuda.nccl.version(), **said}
        log.write(json.dumps(line) + "\n")
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {arguments.rank}: {'all data right' if right else 'wrong'}", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
