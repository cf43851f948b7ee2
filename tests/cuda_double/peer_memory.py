#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Device memory that processes share by CUDA IPC, without NCCL: what the double promises of cudaIpcGetMemHandle and its relatives.

peer_memory.py, under the preloaded double with COLLWIRE_CUDA_P2P and COLLWIRE_CUDA_DEVICES=2. It starts itself as the owner of the memory."""

import ctypes
import signal
import subprocess
import sys

SUCCESS, INVALID_VALUE, OF_THIS_PROCESS, NOT_MAPPED, UNKNOWN_HANDLE, ALREADY_ENABLED = 0, 1, 201, 205, 400, 704
BYTES, OFFSET = 3 << 20, 5000
CUDA = ctypes.CDLL(None)


class Handle(ctypes.Structure):
    _fields_ = [("content", ctypes.c_ubyte * 64)]


CUDA.cudaIpcOpenMemHandle.argtypes = [ctypes.POINTER(ctypes.c_void_p), Handle, ctypes.c_uint]


def expect(error, name, *arguments):
    got = getattr(CUDA, name)(*arguments)
    assert got == error, f"{name}: {got}, not {error}"


def allocate():
    address = ctypes.c_void_p()
    expect(SUCCESS, "cudaMalloc", ctypes.byref(address), ctypes.c_size_t(BYTES))
    return address


def handle_of(address):
    handle = Handle()
    expect(SUCCESS, "cudaIpcGetMemHandle", ctypes.byref(handle), ctypes.c_void_p(address))
    return handle


def bytes_of(address):
    return (ctypes.c_ubyte * BYTES).from_address(address.value)


def own():
    """Fills one allocation and never touches another, prints their handles, and on each line that arrives prints how many bytes of the first another process
    has changed."""
    filled, untouched = allocate(), allocate()
    memory = bytes_of(filled)
    expect(SUCCESS, "cudaMemset", filled, 0x11, ctypes.c_size_t(BYTES))
    print(*(bytes(handle_of(address.value + OFFSET).content).hex() for address in (filled, untouched)), flush=True)
    for line in sys.stdin:
        if line == "clear\n":
            for address in (filled, untouched):
                expect(SUCCESS, "cudaMemset", ctypes.c_void_p(address.value + 1), 0, ctypes.c_size_t(BYTES - 2))
        elif line == "replace\n":
            expect(SUCCESS, "cudaFree", filled)
            allocate() # its file gets the number of the one before
            memory = b""
        print(sum(1 for byte in memory if byte != 0x11), flush=True)


class Owner:
    def __init__(self):
        self._process = subprocess.Popen([sys.executable, __file__, "own"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.filled, self.untouched = (Handle.from_buffer_copy(bytes.fromhex(word)) for word in self._process.stdout.readline().split())

    def tell(self, line):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


def opened(handle, error=SUCCESS):
    address = ctypes.c_void_p()
    expect(error, "cudaIpcOpenMemHandle", ctypes.byref(address), handle, 1)
    return address


def lines_of_maps():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return [line for line in maps if "cuda_double" in line and "memfd" in line]


def check_sharing():
    owner = Owner()
    address, other_address = opened(owner.filled), opened(owner.untouched)
    memory, other_memory = bytes_of(address), bytes_of(other_address)
    assert memory[0] == memory[OFFSET] == memory[BYTES - 1] == 0x11, "the handle is not of the whole allocation"
    memory[OFFSET] = 0x22
    memory[BYTES - 1] = 0x22
    assert owner.tell("count") == 2, "the owner does not see what was written"
    assert not any(other_memory), "new memory is not clear"
    ctypes.memset(other_address.value, 0x33, BYTES)
    owner.tell("clear")
    for one, first, last in ((memory, 0x11, 0x22), (other_memory, 0x33, 0x33)):
        assert one[0] == first and one[BYTES - 1] == last and not any(one[1:BYTES - 1]), "cudaMemset of memory that another process has written"
    expect(INVALID_VALUE, "cudaFree", address)
    owner.tell("replace")
    assert memory[0] == 0x11, "freed memory has gone while it is mapped"
    opened(owner.filled, NOT_MAPPED)
    expect(SUCCESS, "cudaIpcCloseMemHandle", other_address)
    owner.kill()
    assert memory[0] == 0x11 and "(deleted)" in lines_of_maps()[0], lines_of_maps()
    expect(SUCCESS, "cudaIpcCloseMemHandle", address)
    expect(INVALID_VALUE, "cudaIpcCloseMemHandle", address)
    assert not lines_of_maps(), lines_of_maps()


def check_killed_owner():
    owner = Owner()
    address = opened(owner.filled)
    owner.kill()
    assert bytes_of(address)[BYTES - 1] == 0x11
    opened(owner.filled, NOT_MAPPED)
    expect(SUCCESS, "cudaIpcCloseMemHandle", address)


def check_own():
    address = allocate()
    opened(handle_of(address.value), OF_THIS_PROCESS)
    opened(Handle(), UNKNOWN_HANDLE)
    expect(INVALID_VALUE, "cudaIpcCloseMemHandle", address)
    expect(SUCCESS, "cudaFree", address)
    expect(INVALID_VALUE, "cudaIpcGetMemHandle", ctypes.byref(Handle()), address)
    can = ctypes.c_int()
    expect(SUCCESS, "cudaDeviceCanAccessPeer", ctypes.byref(can), 0, 1)
    assert can.value == 1
    expect(SUCCESS, "cudaDeviceCanAccessPeer", ctypes.byref(can), 1, 1)
    assert can.value == 0
    expect(SUCCESS, "cudaDeviceEnablePeerAccess", 1, 0)
    expect(ALREADY_ENABLED, "cudaDeviceEnablePeerAccess", 1, 0)


def main():
    if sys.argv[1:] == ["own"]:
        own()
        return 0
    check_sharing()
    check_killed_owner()
    check_own()
    print("all memory right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
