#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the symbols that the test double needs of a stripped NCCL whose symbols are not published: of its CUDA runtime, by the machine code of the same
runtime in another library (equal but for addresses); of the kernels, by the arguments of their registration with CUDA; of NCCL's table of device
functions, by its content in another build of the version.

lend_symbols.py STRIPPED --runtime LIBRARY --version LIBRARY -o FILE

STRIPPED is read and not changed. FILE is an ELF file of nothing but these symbols and STRIPPED's build-id (COLLWIRE_CUDA_SYMBOLS)."""

import argparse
import re
import struct
import sys

import capstone
from elftools.elf.elffile import ELFFile

TABLE = "ncclDevFuncRowToId"
# Functions of the runtime: with fewer matches it is another runtime.
FEWEST_OF_RUNTIME = 300
FUNCTION, OBJECT = 2, 1
LEA = re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]")
LEA_BYTES = 7
TO_RDX, TO_RSI = b"\x48\x8d\x15", b"\x48\x8d\x35"
# Size of a kernel's host function: any will do.
LEAST_OF_KERNEL = 16


class File:
    def __init__(self, path):
        self.path = path
        self.elf = ELFFile(open(path, "rb"))

    def section(self, name):
        """(address, bytes)"""
        section = self.elf.get_section_by_name(name)
        return section["sh_addr"], section.data()

    def symbols(self):
        return self.elf.get_section_by_name(".symtab").iter_symbols()

    def build_id(self):
        for note in self.elf.get_section_by_name(".note.gnu.build-id").iter_notes():
            return bytes.fromhex(note["n_desc"])
        raise SystemExit(f"{self.path}: no build-id. Fix: name a library with one")


def pattern_of(disassembler, code, address):
    """A pattern of a function's code, with any addresses outside of it."""
    wild = set()
    for instruction in disassembler.disasm(code, address):
        at = instruction.address - address
        for operand in instruction.operands:
            if operand.type == capstone.x86.X86_OP_MEM and operand.mem.base == capstone.x86.X86_REG_RIP:
                wild.update(range(at + instruction.disp_offset, at + instruction.disp_offset + 4))
            elif (operand.type == capstone.x86.X86_OP_IMM and instruction.imm_size == 4
                  and (instruction.group(capstone.CS_GRP_CALL) or instruction.group(capstone.CS_GRP_JUMP))
                  and not address <= operand.imm < address + len(code)):
                wild.update(range(at + instruction.imm_offset, at + instruction.imm_offset + 4))
    parts = [b"." if i in wild else re.escape(code[i:i + 1]) for i in range(len(code))]
    return re.compile(b"".join(parts), re.DOTALL)


def of_runtime(stripped, runtime):
    """(name, address, size in bytes) of each function of the CUDA runtime."""
    disassembler = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    disassembler.detail = True
    (base, code), (other_base, other_code) = stripped.section(".text"), runtime.section(".text")
    found = []
    for symbol in runtime.symbols():
        at, size = symbol["st_value"] - other_base, symbol["st_size"]
        if symbol["st_info"]["type"] != "STT_FUNC" or not re.match("cuda[A-Z]", symbol.name) or not 0 <= at < at + size <= len(other_code):
            continue
        places = [match.start() for match in pattern_of(disassembler, other_code[at:at + size], symbol["st_value"]).finditer(code)]
        if len(places) == 1:
            found.append((symbol.name, base + places[0], size))
    if len(found) < FEWEST_OF_RUNTIME:
        raise SystemExit(f"{stripped.path}: {len(found)} functions of {runtime.path}'s CUDA runtime match. Fix: name a library with the same runtime")
    return found


def of_kernels(stripped):
    """A kernel's registration passes its name in %rdx and its host function in %rsi."""
    base, code = stripped.section(".text")
    texts_base, texts = stripped.section(".rodata")
    names = {texts_base + match.start(1): match.group(1).decode()
             for match in re.finditer(rb"\0(_Z[0-9A-Za-z_]*(?:ncclDevKernel_|oneRankReduce)[0-9A-Za-z_]*)(?=\0)", texts)}
    found, name = [], None
    for match in LEA.finditer(code):
        if match.start() + LEA_BYTES > len(code):
            continue
        target = base + match.start() + LEA_BYTES + struct.unpack_from("<i", code, match.start() + 3)[0]
        if name and match.group() == TO_RSI and base <= target < base + len(code):
            found.append((name, target, LEAST_OF_KERNEL))
        name = names.get(target) if match.group() == TO_RDX else None
    return found


def of_table(stripped, same_version):
    for symbol in same_version.symbols():
        if symbol.name == TABLE:
            break
    else:
        return []
    section = same_version.elf.get_section(symbol["st_shndx"])
    begin = symbol["st_value"] - section["sh_addr"]
    content = section.data()[begin:begin + symbol["st_size"]]
    found = []
    for name in (".rodata", ".data", ".data.rel.ro"):
        base, data = stripped.section(name)
        found += [(TABLE, base + match.start(), len(content)) for match in re.finditer(re.escape(content), data)]
    if len(found) != 1:
        raise SystemExit(f"{stripped.path}: {TABLE} of {same_version.path} matches {len(found)} times. Fix: name another build of the same version")
    return found


def write_elf(path, build_id, functions, objects):
    strings, symbols = b"\0", struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    for kind, found in ((FUNCTION, functions), (OBJECT, objects)):
        for name, address, size in found:
            symbols += struct.pack("<IBBHQQ", len(strings), kind, 0, 1, address, size)
            strings += name.encode() + b"\0"
    note = struct.pack("<III4s", 4, len(build_id), 3, b"GNU\0") + build_id
    contents = [b"", note, symbols, strings]
    # type, link, entry size
    kinds = [(0, 0, 0), (7, 0, 0), (2, 3, 24), (3, 0, 0)]
    at, headers, body = 64, b"", b""
    for content, (kind, link, entry) in zip(contents, kinds):
        body += b"\0" * (-len(body) % 8)
        headers += struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, at + len(body) if content else 0, len(content), link, 1, 8 if content else 0, entry)
        body += content
    body += b"\0" * (-len(body) % 8)
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, at + len(body), 0, 64, 0, 0, 64, len(contents), 0)
    with open(path, "wb") as file:
        file.write(head + body + headers)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stripped")
    parser.add_argument("--runtime", required=True, metavar="LIBRARY")
    parser.add_argument("--version", required=True, metavar="LIBRARY")
    parser.add_argument("-o", required=True, dest="output", metavar="FILE")
    arguments = parser.parse_args()
    stripped = File(arguments.stripped)
    exported = [(symbol.name, symbol["st_value"], symbol["st_size"]) for symbol in stripped.elf.get_section_by_name(".dynsym").iter_symbols()
                if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["type"] == "STT_FUNC"]
    runtime, kernels = of_runtime(stripped, File(arguments.runtime)), of_kernels(stripped)
    table = of_table(stripped, File(arguments.version))
    write_elf(arguments.output, stripped.build_id(), exported + runtime + kernels, table)
    print(f"{len(runtime)} functions of CUDA's runtime, {len(kernels)} kernels, {len(table)} table, {len(exported)} exported")


if __name__ == "__main__":
    sys.exit(main())
