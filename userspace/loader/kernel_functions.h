// SPDX-License-Identifier: Apache-2.0
// Which functions the running kernel and its modules have.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "correlate/base/result.h"

namespace collwire {

class KernelFunctions {
public:
    struct Function {
        std::string module;        // "vmlinux" for the kernel proper
        unsigned symbols = 0;      // how many functions have this name
        std::uint64_t address = 0; // of the last of them; 0: hidden from us
    };

    // Looks the names up in /proc/kallsyms, all in one pass (the file has 200,000 lines).
    static Result<KernelFunctions> read(const std::vector<std::string_view> &names);
    // The same from any text in that format.
    static KernelFunctions parse(std::istream &kallsyms,
                                 const std::vector<std::string_view> &names);

    // As if the kernel did not have these.
    void forget(const std::vector<std::string_view> &names);
    // nullptr: no such function here, or its module is not loaded.
    [[nodiscard]] const Function *find(std::string_view name) const;

private:
    std::map<std::string, Function, std::less<>> functions_;
};

[[nodiscard]] bool module_is_loaded(std::string_view module);
// The module's own BTF: fentry works on its functions only with that.
[[nodiscard]] bool module_has_btf(std::string_view module);

} // namespace collwire
