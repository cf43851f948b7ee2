// SPDX-License-Identifier: Apache-2.0
// The functions of the running kernel and its modules.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace collwire::loader {

class KernelFunctions {
public:
    struct Function {
        std::string module;        // "vmlinux" for the kernel itself
        unsigned symbols = 0;      // how many functions have this name
        std::uint64_t address = 0; // of the last of them; 0: hidden
    };

    // Finds the names in /proc/kallsyms. The file has 200,000 lines, which the kernel writes
    // slowly: a caller that holds `kallsyms` shares its contents with the next one.
    static Result<KernelFunctions> read(const std::vector<std::string_view> &names,
                                        std::shared_ptr<const std::string> *kallsyms = nullptr);
    // The same from any text in that format.
    static KernelFunctions parse(std::string_view kallsyms,
                                 const std::vector<std::string_view> &names);

    // Removes these functions, as if the kernel did not have them.
    void forget(const std::vector<std::string_view> &names);
    // nullptr: no such function here, or its module is not loaded.
    [[nodiscard]] const Function *find(std::string_view name) const;

private:
    std::map<std::string, Function, std::less<>> functions_;
};

[[nodiscard]] bool module_is_loaded(std::string_view module);
// Whether the module has BTF of its own: fentry needs it.
[[nodiscard]] bool module_has_btf(std::string_view module);

} // namespace collwire::loader
