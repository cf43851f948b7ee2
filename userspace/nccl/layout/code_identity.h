// SPDX-License-Identifier: Apache-2.0
// What is saved of a file's code with its layout: another file with the same code has the same
// layout, at other addresses perhaps.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace collwire::nccl {

struct CodePlace {
    std::uint32_t function = 0; // its number, in the order of addresses
    std::uint32_t offset_bytes = 0;
};

struct KnownFunction {
    std::uint32_t number = 0; // in the order of addresses
    std::uint32_t hash = 0;   // elf::FunctionHashes::each
    friend bool operator==(const KnownFunction &, const KnownFunction &) = default;
};

struct CodeIdentity {
    // From the first function to the end of the last one, and the SHA-256 of these bytes and of
    // .rodata: files with the same bytes at the same address have the same addresses.
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
    std::string bytes_sha256;
    // Without where the linker put it (elf::FunctionHashes).
    std::string functions_sha256;
    std::uint32_t n_functions = 0;
    // By their addresses: the functions of the layout's probes, and the pieces of those in which
    // threads may wait.
    std::map<std::uint64_t, KnownFunction> entries;
    // Instructions that refer to the layout's variables and parameters, by addresses of these.
    std::map<std::uint64_t, CodePlace> references;
    // Of variables that no instruction refers to: a function to which only this variable has a
    // pointer, and where in the variable.
    std::map<std::uint64_t, CodePlace> pointers;

    [[nodiscard]] bool is_known() const { return n_functions != 0; }
};

} // namespace collwire::nccl
