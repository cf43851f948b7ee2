# SPDX-License-Identifier: Apache-2.0
"""A library whose data lie at other addresses, with the same code: all that objdump and readelf know to depend on these addresses is changed. No collwire code.
It is for readers of files: unwinding in it was never tried."""

import re
import struct
import subprocess

PROGRAM_HEADER, SECTION_HEADER = struct.Struct("<IIQQQQQQ"), struct.Struct("<IIQQQQIIQQ")
RELOCATION, DYNAMIC, SYMBOL = struct.Struct("<QQq"), struct.Struct("<qQ"), struct.Struct("<IBBHQQ")
PT_LOAD, SHT_RELA, SHT_DYNAMIC, SHT_DYNSYM, SHF_ALLOC, STT_TLS = 1, 4, 6, 11, 2, 6
R_RELATIVE, R_IRELATIVE = 8, 37
POINTERS = {3, 12, 13, 25, 26}  # DT_PLTGOT, DT_INIT, DT_FINI, DT_INIT_ARRAY, DT_FINI_ARRAY
OPERAND = re.compile(r"^\s*([0-9a-f]+):\t((?:[0-9a-f]{2} )+)\s*\t.*\(%rip\).*# ([0-9a-f]+)")


def move_data(library, path, distance):
    """Writes a copy of which the writable segment lies `distance` bytes further. Returns the number of instructions that were changed."""
    with open(library, "rb") as file:
        image = bytearray(file.read())
    program_at, sections_at = struct.unpack_from("<QQ", image, 32)
    n_programs, n_sections = struct.unpack_from("<H", image, 56)[0], struct.unpack_from("<H", image, 60)[0]
    programs = [program_at + i * PROGRAM_HEADER.size for i in range(n_programs)]
    begin = next(fields[3] for fields in map(lambda at: PROGRAM_HEADER.unpack_from(image, at), programs) if fields[0] == PT_LOAD and fields[1] & 2)

    def moved(address):
        return address + distance if address >= begin else address

    for at in programs:
        kind, flags, offset, virtual, physical, *rest = PROGRAM_HEADER.unpack_from(image, at)
        PROGRAM_HEADER.pack_into(image, at, kind, flags, offset, moved(virtual), moved(physical), *rest)
    for i in range(n_sections):
        at = sections_at + i * SECTION_HEADER.size
        name, kind, flags, address, offset, size, *rest = SECTION_HEADER.unpack_from(image, at)
        if not flags & SHF_ALLOC:
            continue
        SECTION_HEADER.pack_into(image, at, name, kind, flags, moved(address), offset, size, *rest)
        if kind == SHT_RELA:
            for entry in range(offset, offset + size, RELOCATION.size):
                place, info, addend = RELOCATION.unpack_from(image, entry)
                is_address = info & 0xffffffff in (R_RELATIVE, R_IRELATIVE)
                RELOCATION.pack_into(image, entry, moved(place), info, moved(addend) if is_address else addend)
        elif kind == SHT_DYNAMIC:
            for entry in range(offset, offset + size, DYNAMIC.size):
                tag, value = DYNAMIC.unpack_from(image, entry)
                DYNAMIC.pack_into(image, entry, tag, moved(value) if tag in POINTERS else value)
        elif kind == SHT_DYNSYM:
            for entry in range(offset, offset + size, SYMBOL.size):
                symbol, info, other, section, value, symbol_bytes = SYMBOL.unpack_from(image, entry)
                SYMBOL.pack_into(image, entry, symbol, info, other, section, value if info & 15 == STT_TLS else moved(value), symbol_bytes)
    return _move_operands(library, image, begin, distance, path)


def _move_operands(library, image, begin, distance, path):
    """Code lies in the first segment, at offsets that are its addresses."""
    changed = 0
    with subprocess.Popen(["objdump", "-d", "-w", library], stdout=subprocess.PIPE, text=True) as listing:
        for line in listing.stdout:
            found = OPERAND.match(line)
            if not found or (target := int(found[3], 16)) < begin:
                continue
            address, code = int(found[1], 16), bytes.fromhex(found[2])
            old = struct.pack("<i", target - address - len(code))
            assert image[address:address + len(code)] == code and code.count(old) == 1, line
            at = address + code.index(old)
            struct.pack_into("<i", image, at, target + distance - address - len(code))
            changed += 1
    assert listing.returncode == 0
    with open(path, "wb") as file:
        file.write(image)
    return changed
