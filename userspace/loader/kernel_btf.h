// SPDX-License-Identifier: Apache-2.0
// The kernel's own description of its functions (BTF), and that of its modules.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

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
    // The module's BTF on top of the kernel's, or nullptr. Stays owned by this.
    [[nodiscard]] btf *of(std::string_view module);

private:
    [[nodiscard]] std::optional<std::uint32_t> find(const btf *types, std::string_view name,
                                                    unsigned kind) const;
    btf *vmlinux_ = nullptr;
    std::map<std::string, btf *, std::less<>> modules_;
};

} // namespace collwire
