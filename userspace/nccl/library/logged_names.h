// SPDX-License-Identifier: Apache-2.0
// Functions of a stripped file, by the names that they give to NCCL's log: each check of a result
// (NCCLCHECK and the like, INFO) hands on __func__, which is a text in the file.
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
    // Called, or its address is taken: not so what was split off a function.
    bool is_entered = false;
};

class LoggedNames {
public:
    // Reads all code, twice. `names` in order, and as long as this.
    LoggedNames(const LibraryFile &file, std::span<const std::string_view> names);

    // The one that has the name in its code: itself, or whoever it was inlined into. Of several the
    // one that is not known to be another function, as it alone has that name. nullptr: none, or
    // several are left.
    [[nodiscard]] const LoggingFunction *find(std::string_view name) const;
    // From this address on to the next function; no bytes: there is none.
    [[nodiscard]] CodeRange function_at(std::uint64_t address) const;

private:
    void find_users(std::span<const std::string_view> names);
    void look_who_calls();

    const LibraryFile &file_;
    std::vector<std::uint64_t> starts_;
    std::multimap<std::string_view, LoggingFunction> functions_;
};

} // namespace collwire::nccl
