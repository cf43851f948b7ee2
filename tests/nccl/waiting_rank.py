#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a job that hangs in NCCL's host code, on the test double of CUDA. Prints "at WORD" before each step.

waiting_rank.py --library FILE --rank R --ranks N --ids DIRECTORY --hang init|second|split|shrink|grow|order|destroy|abort|pool [--late RANK]"""

import argparse
import ctypes
import os
import time

COUNT, FLOAT32, SUM = 4096, 7, 0
FOREVER_S = 3600


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Rank:
    def __init__(self, options):
        self.options, self.rank, self.ranks = options, options.rank, options.ranks
        self.nccl, self.cuda = ctypes.CDLL(options.library), ctypes.CDLL("libcuda_double.so")
        self.nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]
        self.nccl.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self.nccl.ncclCommSplit.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p]
        if options.hang == "shrink":
            self.nccl.ncclCommShrink.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.POINTER(ctypes.c_void_p),
                                                 ctypes.c_void_p, ctypes.c_int]
        if options.hang == "grow":
            self.nccl.ncclCommGetUniqueId.argtypes = [ctypes.c_void_p, ctypes.POINTER(UniqueId)]
            self.nccl.ncclCommGrow.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(UniqueId), ctypes.c_int, ctypes.POINTER(ctypes.c_void_p),
                                               ctypes.c_void_p]
        self.nccl.ncclCommDestroy.argtypes = [ctypes.c_void_p]
        self.nccl.ncclCommAbort.argtypes = [ctypes.c_void_p]
        self.cuda.cudaStreamSynchronize.argtypes = [ctypes.c_void_p]
        self.call(self.cuda.cudaSetDevice, 0)
        self.buffer = ctypes.c_void_p()
        self.call(self.cuda.cudaMalloc, ctypes.byref(self.buffer), ctypes.c_size_t(COUNT * 4))

    @staticmethod
    def call(function, *arguments):
        result = function(*arguments)
        assert result == 0, f"{function.__name__}: {result}"

    def say(self, word):
        print(f"at {word}", flush=True)

    def stand_if_late(self):
        if self.rank == self.options.late:
            self.say("late")
            time.sleep(FOREVER_S)

    def communicator(self, number):
        path, made = f"{self.options.ids}/id.{number}", UniqueId()
        if self.rank == 0:
            self.call(self.nccl.ncclGetUniqueId, ctypes.byref(made))
            with open(f"{path}.part", "wb") as file:
                file.write(ctypes.string_at(ctypes.byref(made), 128))
            os.rename(f"{path}.part", path)
        while not os.path.exists(path):
            time.sleep(0.02)
        with open(path, "rb") as file:
            ctypes.memmove(ctypes.byref(made), file.read(), 128)
        communicator = ctypes.c_void_p()
        self.say(f"init {number}")
        self.call(self.nccl.ncclCommInitRank, ctypes.byref(communicator), self.ranks, made, self.rank)
        return communicator

    def stream(self):
        stream = ctypes.c_void_p()
        self.call(self.cuda.cudaStreamCreate, ctypes.byref(stream))
        return stream

    def all_reduce(self, communicator, stream, wait=True):
        self.call(self.nccl.ncclAllReduce, self.buffer, self.buffer, COUNT, FLOAT32, SUM, communicator, stream)
        if wait:
            self.call(self.cuda.cudaStreamSynchronize, stream)

    def init(self):
        self.communicator(0)

    def second(self):
        self.communicator(0)
        self.stand_if_late()
        self.communicator(1)

    def split(self):
        world = self.communicator(0)
        self.stand_if_late()
        self.say("split")
        child = ctypes.c_void_p()
        self.call(self.nccl.ncclCommSplit, world, 0, self.rank, ctypes.byref(child), None)

    def shrink(self):
        """Without the last rank."""
        world = self.communicator(0)
        if self.rank == self.ranks - 1:
            self.say("left out")
            time.sleep(FOREVER_S)
        self.stand_if_late()
        self.say("shrink")
        child, excluded = ctypes.c_void_p(), ctypes.c_int(self.ranks - 1)
        self.call(self.nccl.ncclCommShrink, world, ctypes.byref(excluded), 1, ctypes.byref(child), None, 0)

    def grow(self):
        """By one rank. The first rank is the root."""
        world = self.communicator(0)
        self.stand_if_late()
        grown, made = ctypes.c_void_p(), UniqueId()
        if self.rank == 0:
            self.call(self.nccl.ncclCommGetUniqueId, world, ctypes.byref(made))
        self.say("grow")
        self.call(self.nccl.ncclCommGrow, world, self.ranks + 1, ctypes.byref(made) if self.rank == 0 else None, -1, ctypes.byref(grown), None)

    def order(self):
        pairs = [(self.communicator(number), self.stream()) for number in range(2)]
        for _ in range(2):
            for communicator, stream in pairs:
                self.all_reduce(communicator, stream)
        self.say("order")
        for communicator, stream in reversed(pairs) if self.rank % 2 else pairs:
            self.all_reduce(communicator, stream)

    def destroy(self):
        world, stream = self.communicator(0), self.stream()
        self.all_reduce(world, stream)
        self.stand_if_late()
        self.all_reduce(world, stream, wait=False)
        self.say("destroy")
        self.call(self.nccl.ncclCommDestroy, world)

    def abort(self):
        """The first rank aborts a communicator whose kernel does not end."""
        world, stream = self.communicator(0), self.stream()
        self.all_reduce(world, stream)
        self.wait_for_go("running")
        self.all_reduce(world, stream, wait=self.rank != 0)
        self.say("abort")
        self.call(self.nccl.ncclCommAbort, world)

    def wait_for_go(self, word):
        """Goes on when the file "go" is there."""
        self.say(word)
        while not os.path.exists(f"{self.options.ids}/go"):
            time.sleep(0.02)

    def pool(self):
        world, stream = self.communicator(0), self.stream()
        self.all_reduce(world, stream)
        self.wait_for_go("pool")
        self.say("next")
        self.all_reduce(world, stream)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--ids", required=True)
    parser.add_argument("--hang", required=True, choices=("init", "second", "split", "shrink", "grow", "order", "destroy", "abort", "pool"))
    parser.add_argument("--late", type=int, default=-1)
    options = parser.parse_args()
    rank = Rank(options)
    getattr(rank, options.hang)()
    rank.say("end")


if __name__ == "__main__":
    main()
