// SPDX-License-Identifier: Apache-2.0
// The layout of a stripped file with the code of another build: its functions are equal, one by
// one, so the layout is its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "userspace/elf/function_hashes.h"
#include "userspace/nccl/layout/library_layout.h"
#include "userspace/nccl/library/library_file.h"

namespace collwire::nccl {

// Sets `layout.code`, if the file has an exception table. `layout` has the addresses of this file.
// About a second of CPU time.
void add_code_identity(const LibraryFile &file, LibraryLayout &layout);

// Compares the code of one file with that of layouts. The file must outlive it.
class CodeComparison {
public:
    explicit CodeComparison(const LibraryFile &file) : file_(file) {}

    // `other`: a layout with `code`. First all bytes are compared, then the functions one by one
    // (about a second, once for all layouts). The addresses of the result are those of the file,
    // and its capabilities are those of `other`. BadInput, with the difference: other code, or
    // something that `other` names is not found.
    Result<LibraryLayout> layout_from(const LibraryLayout &other);

    // "1200 of 1210 functions have the same code"; empty if that is not known: a layout without
    // `code`, or a file without an exception table.
    [[nodiscard]] std::string count_same(const LibraryLayout &other);

private:
    const std::vector<elf::CodeRange> &functions();
    const elf::FunctionHashes &hashes();
    const std::string &bytes_sha256();
    const std::map<std::uint64_t, std::uint64_t> &pointers();
    [[nodiscard]] bool has_same_bytes(const CodeIdentity &code);
    Result<LibraryLayout> moved(const LibraryLayout &other);
    [[nodiscard]] Result<void> move_probes(const CodeIdentity &code, LibraryLayout &layout);
    [[nodiscard]] Result<std::uint64_t> moved_variable(const CodeIdentity &code,
                                                       std::uint64_t address);
    [[nodiscard]] std::optional<std::uint64_t> with_pointer_to(const CodePlace &place);

    const LibraryFile &file_;
    std::optional<std::vector<elf::CodeRange>> functions_;
    std::optional<elf::FunctionHashes> hashes_;
    std::string bytes_sha256_;
    std::optional<std::map<std::uint64_t, std::uint64_t>> pointers_;
};

} // namespace collwire::nccl
