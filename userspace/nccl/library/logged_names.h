// SPDX-License-Identifier: Apache-2.0
// Finds functions of a stripped file by the names that they log: each result check (NCCLCHECK and
// the like, INFO) passes __func__, which is a text in the file.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>

#include "userspace/nccl/library/library_file.h"

namespace collwire::nccl {

struct LoggingFunction {
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
    bool is_called = false; // directly
    // Called, or its address is taken. A split-off part is neither.
    bool is_entered = false;
};

class LoggedNames {
public:
    // Reads all code, twice. `names` is sorted and must live as long as this object.
    LoggedNames(const LibraryFile &file, std::span<const std::string_view> names);

    // The function with this name in its code: itself, or the function that it was inlined into. Of
    // several, those that are known to be another function are dropped. nullptr: none or several
    // are left.
    [[nodiscard]] const LoggingFunction *find(std::string_view name) const;
    // From this address to the next function; 0 bytes: no function there.
    [[nodiscard]] elf::CodeRange function_at(std::uint64_t address) const;

private:
    void find_users(std::span<const std::string_view> names);
    void look_who_calls();

    const LibraryFile &file_;
    std::vector<std::uint64_t> starts_;
    std::multimap<std::string_view, LoggingFunction> functions_;
};

} // namespace collwire::nccl
