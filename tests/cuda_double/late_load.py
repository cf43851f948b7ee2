#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NCCL as Python programs load it: by dlopen, long after the start, in one process with several devices, a communicator each.

late_load.py LIBRARY [--devices N] [--wait SECONDS] [--count N]

Runs under the preloaded double with COLLWIRE_CUDA_DEVICES=N; every element of every AllReduce is checked."""

import argparse
import ctypes
import sys
import time

FLOAT32, SUM = 7, 0
ELEMENTS = 100_000


class Device:
    def __init__(self, cuda, number):
        self.cuda, self.number = cuda, number
        self.stream = ctypes.c_void_p()
        self.call("cudaSetDevice", number)
        self.call("cudaStreamCreateWithFlags", ctypes.byref(self.stream), 1)
        self.send, self.receive = self.floats(), self.floats()

    def call(self, name, *arguments):
        error = getattr(self.cuda, name)(*arguments)
        assert error == 0, f"{name}: CUDA error {error}"

    def floats(self):
        address = ctypes.c_void_p()
        self.call("cudaMalloc", ctypes.byref(address), ctypes.c_size_t(4 * ELEMENTS))
        return (ctypes.c_float * ELEMENTS).from_address(address.value)


def all_reduce(nccl, devices, comms, iteration):
    for device in devices:
        value = float(iteration + device.number)
        device.send[:] = [value] * ELEMENTS
        ctypes.memset(device.receive, 0xa5, ctypes.sizeof(device.receive))
    nccl.ncclGroupStart()
    for device, comm in zip(devices, comms):
        result = nccl.ncclAllReduce(device.send, device.receive, ctypes.c_size_t(ELEMENTS), FLOAT32, SUM, ctypes.c_void_p(comm), device.stream)
        assert result == 0, f"ncclAllReduce: {result}"
    result = nccl.ncclGroupEnd()
    assert result == 0, f"ncclGroupEnd: {result}"
    wanted = float(sum(iteration + device.number for device in devices))
    for device in devices:
        device.call("cudaStreamSynchronize", device.stream)
        wrong = sum(1 for value in device.receive if value != wanted)
        assert wrong == 0, f"device {device.number}: {wrong} wrong elements in iteration {iteration}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--wait", type=float, default=0)
    parser.add_argument("--count", type=int, default=3)
    arguments = parser.parse_args()
    cuda = ctypes.CDLL(None)
    devices = [Device(cuda, number) for number in range(arguments.devices)]
    time.sleep(arguments.wait)
    nccl = ctypes.CDLL(arguments.library)
    comms = (ctypes.c_void_p * arguments.devices)()
    result = nccl.ncclCommInitAll(comms, arguments.devices, None)
    assert result == 0, f"ncclCommInitAll: {result}"
    for iteration in range(arguments.count):
        all_reduce(nccl, devices, comms, iteration)
    for comm in comms:
        nccl.ncclCommDestroy(ctypes.c_void_p(comm))
    print("all data right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
