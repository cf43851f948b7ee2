// SPDX-License-Identifier: Apache-2.0
// The libnccl that this process has mapped: its symbols, and the layout of its structures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/cuda_double/layout.h"

namespace collwire::cuda_double {

struct Symbol {
    std::string name;
    std::uintptr_t address = 0; // in this process
    std::size_t size_bytes = 0;
    bool is_function = false;
};

class Library {
public:
    // Nothing where none is mapped yet; fatal where one is that cannot be read.
    static std::optional<Library> find_mapped();

    [[nodiscard]] const std::string &path() const { return path_; }
    [[nodiscard]] const std::string &build_id() const { return build_id_; }
    [[nodiscard]] const Layout &layout() const { return layout_; }
    [[nodiscard]] const std::vector<Symbol> &symbols() const { return symbols_; }

    [[nodiscard]] const Symbol *find(std::string_view name) const;
    // Demangled; empty where no function is.
    [[nodiscard]] std::string function_name_at(const void *address) const;
    // As the linker has it; empty where no function is. Stays in memory.
    [[nodiscard]] const char *symbol_name_at(const void *address) const;

private:
    void read_file();
    [[nodiscard]] const Symbol *function_at(const void *address) const;

    std::string path_;
    std::uintptr_t base_ = 0;
    std::string build_id_;
    Layout layout_;
    std::vector<Symbol> symbols_; // by address
    std::unordered_map<std::string_view, std::size_t> index_of_;
};

// The one that redirect.cpp adopted.
const Library &library();

} // namespace collwire::cuda_double
