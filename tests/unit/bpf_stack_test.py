#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bpf_stack_test.py [--list] DIRECTORY: each BPF program in it has a stack within the limit of Linux, with the deepest of its chains of calls.

The rule is that of check_max_stack_depth() in kernel/bpf/verifier.c: the frames of a chain together have 512 bytes at most. Up
to Linux 6.7 each frame counts in steps of 32 bytes, and the address of a callback counts as a call of it. The sizes come from
the instructions: a function reaches the objects of its stack only through r10, at constant offsets. The verifier counts no
instruction that it never reaches, so it may find less than this.
"""

import glob
import struct
import sys
from collections import namedtuple

MAX_STACK_BYTES = 512
FRAME_STEP_BYTES = 32

SHT_SYMTAB, SHT_REL, SHF_EXECINSTR = 2, 9, 4
STT_FUNC, STT_SECTION = 2, 3
CLASS_LD, CLASS_LDX, CLASS_ST, CLASS_STX = 0, 1, 2, 3
MOV64_REGISTER, ADD64_CONSTANT, CALL, LOAD64 = 0xBF, 0x07, 0x85, 0x18
FRAME_POINTER, PSEUDO_CALL = 10, 1

Section = namedtuple("Section", "name type flags offset size link info")
Symbol = namedtuple("Symbol", "name kind section value size")
Instruction = namedtuple("Instruction", "code target source offset constant")
Function = namedtuple("Function", "name section begin end")


class Object:
    """Functions of an ELF file for BPF, which functions each names, and the stack of each."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        assert self.data[:4] == b"\x7fELF" and self.data[4] == 2, f"{path}: no ELF file of 64 bits"
        self.path = path
        self.sections = self.read_sections()
        self.symbols = self.read_symbols()
        self.functions = [
            Function(s.name, s.section, s.value // 8, (s.value + s.size) // 8) for s in self.symbols if s.kind == STT_FUNC
        ]
        self.relocated = self.read_relocations()

    def text_at(self, table, offset):
        begin = self.sections[table].offset + offset
        return self.data[begin : self.data.index(b"\0", begin)].decode()

    def read_sections(self):
        (at,) = struct.unpack_from("<Q", self.data, 0x28)
        size, n, names = struct.unpack_from("<HHH", self.data, 0x3A)
        raw = [struct.unpack_from("<IIQQQQIIQQ", self.data, at + i * size) for i in range(n)]
        found = []
        for name, kind, flags, _, offset, length, link, info, _, _ in raw:
            begin = raw[names][4] + name
            text = self.data[begin : self.data.index(b"\0", begin)].decode()
            found.append(Section(text, kind, flags, offset, length, link, info))
        return found

    def read_symbols(self):
        (table,) = [s for s in self.sections if s.type == SHT_SYMTAB]
        found = []
        for at in range(table.offset, table.offset + table.size, 24):
            name, info, _, section, value, size = struct.unpack_from("<IBBHQQ", self.data, at)
            found.append(Symbol(self.text_at(table.link, name), info & 0xF, section, value, size))
        return found

    def read_relocations(self):
        """(section, index of the instruction) -> the symbol that it names."""
        found = {}
        for table in self.sections:
            if table.type == SHT_REL and self.sections[table.info].flags & SHF_EXECINSTR:
                for at in range(table.offset, table.offset + table.size, 16):
                    offset, info = struct.unpack_from("<QQ", self.data, at)
                    found[table.info, offset // 8] = self.symbols[info >> 32]
        return found

    def instruction(self, section, index):
        code, registers, offset, constant = struct.unpack_from("<BBhi", self.data, self.sections[section].offset + index * 8)
        return Instruction(code, registers & 0xF, registers >> 4, offset, constant)

    def function_at(self, section, index):
        (found,) = [f for f in self.functions if f.section == section and f.begin == index]
        return found

    def named(self, function, index, instruction):
        """The function that an instruction calls, or whose address it loads; None: neither."""
        symbol = self.relocated.get((function.section, index))
        if instruction.code == CALL and instruction.source == PSEUDO_CALL:
            if symbol is None:
                return self.function_at(function.section, index + 1 + instruction.constant)
            addend = instruction.constant + 1 if symbol.kind == STT_SECTION else 0
            return self.function_at(symbol.section, symbol.value // 8 + addend)
        if instruction.code == LOAD64 and symbol is not None and symbol.section < len(self.sections):
            if self.sections[symbol.section].flags & SHF_EXECINSTR:
                return self.function_at(symbol.section, (symbol.value + instruction.constant) // 8)
        return None

    def body(self, function):
        index = function.begin
        while index < function.end:
            instruction = self.instruction(function.section, index)
            yield index, instruction
            index += 2 if instruction.code == LOAD64 else 1

    def callees(self, function):
        found = (self.named(function, index, instruction) for index, instruction in self.body(function))
        return list(dict.fromkeys(f for f in found if f))

    def stack_bytes(self, function):
        deepest, copies = 0, {FRAME_POINTER: 0}
        for _, i in self.body(function):
            kind = i.code & 7
            base = i.source if kind == CLASS_LDX else i.target if kind in (CLASS_ST, CLASS_STX) else None
            if base in copies:
                deepest = min(deepest, copies[base] + i.offset)
            if i.code == MOV64_REGISTER and i.source in copies:
                copies[i.target] = copies[i.source]
            elif i.code == ADD64_CONSTANT and i.target in copies:
                copies[i.target] += i.constant
            elif i.code == CALL:
                copies = {r: at for r, at in copies.items() if r > 5}
            elif kind not in (CLASS_ST, CLASS_STX, 5, 6) and i.target != FRAME_POINTER:
                copies.pop(i.target, None)
            deepest = min([deepest, *copies.values()])
        return -deepest

    def deepest(self, function, known, above=()):
        """The chain of calls from a function that has the most stack: [(function, bytes)]."""
        assert function not in above, f"{self.path}: {function.name} calls itself"
        if function not in known:
            chains = [self.deepest(f, known, (*above, function)) for f in self.callees(function)]
            known[function] = [(function, self.stack_bytes(function)), *max(chains, key=counted, default=[])]
        return known[function]

    def programs(self):
        return [f for f in self.functions if self.sections[f.section].name != ".text"]


def counted(chain):
    """Bytes of a chain, as the verifier counts them."""
    return sum(-(-max(size, 1) // FRAME_STEP_BYTES) * FRAME_STEP_BYTES for _, size in chain)


def main():
    lists, directory = "--list" in sys.argv, sys.argv[-1]
    paths, found = sorted(glob.glob(f"{directory}/*.bpf.o")), []
    for path in paths:
        known, an_object = {}, Object(path)
        found += [(counted(chain), path, chain) for chain in (an_object.deepest(p, known) for p in an_object.programs())]
    assert found, f"no BPF programs in {directory}"
    found.sort(key=lambda f: (-f[0], f[1], f[2][0][0].name))
    for bytes_, path, chain in found:
        if lists or bytes_ > MAX_STACK_BYTES:
            print(f"{bytes_} {path}: " + " -> ".join(f"{function.name} {size}" for function, size in chain))
    too_deep = sum(bytes_ > MAX_STACK_BYTES for bytes_, _, _ in found)
    if too_deep:
        sys.exit(f"{too_deep} program(s) with more than {MAX_STACK_BYTES} bytes of stack: Linux up to 6.7 refuses them")
    print(f"{len(found)} programs of {len(paths)} objects have {found[0][0]} bytes of stack at most")


if __name__ == "__main__":
    main()
