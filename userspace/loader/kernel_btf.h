// SPDX-License-Identifier: Apache-2.0
// The kernel's own description of its functions (BTF), and that of its modules.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

struct btf;

namespace collwire {

class KernelBtf {
public:
    // Without BTF in the kernel this knows nothing; that is no error.
    KernelBtf();
    KernelBtf(const KernelBtf &) = delete;
    KernelBtf &operator=(const KernelBtf &) = delete;
    ~KernelBtf();

    // The one that somebody else holds, or a new one: it costs 20 MiB and some milliseconds.
    static std::shared_ptr<KernelBtf> shared();

    // Number of parameters of a function of `module` ("vmlinux": the kernel proper); nothing if the
    // BTF is missing or does not have it. A function without BTF cannot have fentry.
    [[nodiscard]] std::optional<unsigned> parameters(std::string_view module,
                                                     std::string_view function);
    // Where a member of a struct lies, by its path ("resp.psn"), in bytes from the struct's start;
    // nothing if there is no such type or member, or if it is a bit field.
    [[nodiscard]] std::optional<std::uint32_t>
    member_offset(std::string_view module, std::string_view type, std::string_view path);
    // What an enumerator of the module's own is; nothing if there is none.
    [[nodiscard]] std::optional<std::uint32_t>
    enumerator(std::string_view module, std::string_view type, std::string_view name);
    // The module's BTF on top of the kernel's, or nullptr. Stays owned by this.
    [[nodiscard]] btf *of(std::string_view module);

    // The structs, unions and enums of that name which the module itself defines ("vmlinux": the
    // kernel proper), not those of the kernel under it. Numbers in of(module).
    [[nodiscard]] std::vector<std::uint32_t> own_types(std::string_view module,
                                                       std::string_view name);

private:
    using TypeIndex = std::unordered_map<std::string_view, std::vector<std::uint32_t>>;
    [[nodiscard]] std::optional<std::uint32_t> find_function(const btf *types,
                                                             std::string_view name) const;
    btf *vmlinux_ = nullptr;
    std::map<std::string, btf *, std::less<>> modules_;
    std::map<const btf *, TypeIndex> indices_; // by name, of what each defines itself
};

} // namespace collwire
