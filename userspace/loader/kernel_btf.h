// SPDX-License-Identifier: Apache-2.0
// The kernel's BTF (types and functions), and that of its modules.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

struct btf;

namespace collwire::loader {

// The modules whose types are read and whose functions are probed, in the order of search.
inline constexpr std::array<std::string_view, 5> RDMA_MODULES = {"ib_core", "ib_uverbs", "rdma_rxe",
                                                                 "mlx5_core", "mlx5_ib"};

class KernelBtf {
public:
    // The target of fentry and fexit.
    struct AttachTarget {
        int btf_fd; // of the module, owned by KernelBtf; 0: the kernel itself
        std::uint32_t type_id;
    };

    // Without BTF in the kernel this is empty; that is no error.
    KernelBtf();
    // For another kernel than this one: its types, or nullptr. Takes ownership.
    explicit KernelBtf(btf *vmlinux) : vmlinux_(vmlinux) {}
    KernelBtf(const KernelBtf &) = delete;
    KernelBtf &operator=(const KernelBtf &) = delete;
    ~KernelBtf();

    // The shared one if somebody holds it, else a new one: it costs 20 MiB and some milliseconds.
    static std::shared_ptr<KernelBtf> shared();

    // Number of parameters of a function of `module` ("vmlinux": the kernel itself); nothing if the
    // BTF is missing or lacks it. A function without BTF cannot have fentry.
    [[nodiscard]] std::optional<unsigned> parameters(std::string_view module,
                                                     std::string_view function);
    // The function in one of RDMA_MODULES or, if none has it, in the kernel itself; nothing if the
    // BTF is missing or lacks it.
    [[nodiscard]] std::optional<AttachTarget> attach_target(std::string_view function);
    // The offset of a struct member, by its path ("resp.psn"), in bytes from the struct's start;
    // nothing if type or member is missing, or the member is a bit field.
    [[nodiscard]] std::optional<std::uint32_t>
    member_offset(std::string_view module, std::string_view type, std::string_view path);
    // The value of an enumerator that the module itself defines; nothing if it is missing.
    [[nodiscard]] std::optional<std::uint32_t>
    enumerator(std::string_view module, std::string_view type, std::string_view name);
    // The module's BTF on top of the kernel's, or nullptr. Stays owned by this.
    [[nodiscard]] btf *of(std::string_view module);

    // The structs, unions and enums of that name which the module itself defines ("vmlinux": the
    // kernel itself), without the kernel's. Numbers in of(module).
    [[nodiscard]] std::vector<std::uint32_t> own_types(std::string_view module,
                                                       std::string_view name);

private:
    using TypeIndex = std::unordered_map<std::string_view, std::vector<std::uint32_t>>;
    [[nodiscard]] std::optional<std::uint32_t> find_function(const btf *types,
                                                             std::string_view name);
    // -1: refused by the kernel.
    [[nodiscard]] int fd_of(std::string_view module);
    btf *vmlinux_ = nullptr;
    std::map<std::string, btf *, std::less<>> modules_;
    std::map<const btf *, TypeIndex> indices_; // by name, of what each defines itself
    // Results of find_function: a walk through all of the kernel's types is expensive.
    std::map<std::pair<const btf *, std::string>, std::optional<std::uint32_t>> functions_;
    std::map<std::string, int, std::less<>> fds_; // of RDMA_MODULES, once asked for
    bool asked_for_fds_ = false;
};

} // namespace collwire::loader
