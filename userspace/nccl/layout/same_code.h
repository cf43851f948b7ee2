// SPDX-License-Identifier: Apache-2.0
// The layout of a stripped file with the code of another build: its functions are equal, one by
// one, so the layout is its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "userspace/elf/function_hashes.h"
#include "userspace/nccl/layout/library_layout.h"
#include "userspace/nccl/library/library_file.h"

namespace collwire::nccl {

// Sets `layout.code`, if the file has an exception table. `layout` has the addresses of this file.
// About a second of CPU time.
void add_code_identity(const LibraryFile &file, LibraryLayout &layout);

// Functions that a layout names: those with probes, and those in which threads may wait.
struct KnownFunctions {
    std::size_t n_compared = 0;
    std::vector<std::string> different; // by name
    [[nodiscard]] std::size_t n_same() const { return n_compared - different.size(); }
};

// "91 of 92 known functions have the same code, ncclProxyStart has not"; empty: none was compared.
std::string text_of(const KnownFunctions &functions);

// Compares the code of one file with that of layouts. The file must outlive it.
class CodeComparison {
public:
    explicit CodeComparison(const LibraryFile &file) : file_(file) {}

    // `other`: a layout with `code`. First all bytes are compared, then the functions one by one
    // (about a second, once for all layouts). The addresses of the result are those of the file,
    // and its capabilities are those of `other`. BadInput, with the difference: other code, or
    // something that `other` names is not found.
    Result<LibraryLayout> layout_from(const LibraryLayout &other);

    // Which of the functions that `other` names the file has with the same code, wherever they
    // are. Nothing is compared if the layout has no `code`, or the file no exception table.
    [[nodiscard]] KnownFunctions compare_known(const LibraryLayout &other);

private:
    const std::vector<elf::CodeRange> &functions();
    const elf::FunctionHashes &hashes();
    const std::string &bytes_sha256();
    const std::map<std::uint64_t, std::uint64_t> &pointers();
    [[nodiscard]] bool has_same_bytes(const CodeIdentity &code);
    Result<LibraryLayout> moved(const LibraryLayout &other);
    [[nodiscard]] Result<void> move_probes(const CodeIdentity &code, LibraryLayout &layout);
    [[nodiscard]] Result<void> move_host_functions(const CodeIdentity &code, LibraryLayout &layout);
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
