// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/kernel_btf.h"

#include <algorithm>
#include <mutex>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>

#include "userspace/loader/kernel_functions.h"
#include "userspace/loader/libbpf_log.h"

namespace collwire::loader {

KernelBtf::KernelBtf() {
    const LibbpfLog quiet;
    vmlinux_ = btf__load_vmlinux_btf();
}

KernelBtf::~KernelBtf() {
    // Split BTF refers to the kernel's: free that last.
    for (const auto &[name, module] : modules_)
        btf__free(module);
    btf__free(vmlinux_);
    for (const auto &[name, fd] : fds_)
        close(fd);
}

btf *KernelBtf::of(std::string_view module) {
    if (module == "vmlinux" || vmlinux_ == nullptr)
        return vmlinux_;
    if (const auto known = modules_.find(module); known != modules_.end())
        return known->second;
    const LibbpfLog quiet;
    const std::string name(module);
    btf *loaded = module_has_btf(module) ? btf__load_module_btf(name.c_str(), vmlinux_) : nullptr;
    modules_.emplace(name, loaded);
    return loaded;
}

std::shared_ptr<KernelBtf> KernelBtf::shared() {
    static std::mutex mutex;
    static std::weak_ptr<KernelBtf> current;
    const std::lock_guard lock(mutex);
    auto btf = current.lock();
    if (!btf)
        current = btf = std::make_shared<KernelBtf>();
    return btf;
}

// Only the module's own types: they are few, and the kernel's are 100,000.
std::optional<std::uint32_t> KernelBtf::find_function(const btf *types, std::string_view name) {
    const auto [entry, is_new] = functions_.try_emplace({types, std::string(name)});
    auto &found = entry->second;
    const std::uint32_t begin = types == vmlinux_ ? 1 : btf__type_cnt(vmlinux_);
    for (std::uint32_t id = begin; is_new && !found && id < btf__type_cnt(types); ++id) {
        const auto *type = btf__type_by_id(types, id);
        if (btf_is_func(type) && name == btf__name_by_offset(types, type->name_off))
            found = id;
    }
    return found;
}

int KernelBtf::fd_of(std::string_view module) {
    for (std::uint32_t id = 0; !asked_for_fds_ && bpf_btf_get_next_id(id, &id) == 0;) {
        const int fd = bpf_btf_get_fd_by_id(id);
        if (fd < 0)
            continue; // the module was removed
        bpf_btf_info info = {};
        std::array<char, 64> name{};
        info.name = reinterpret_cast<std::uint64_t>(name.data());
        info.name_len = name.size();
        std::uint32_t length = sizeof(info);
        const bool is_wanted =
            bpf_obj_get_info_by_fd(fd, &info, &length) == 0 && info.kernel_btf != 0 &&
            std::ranges::find(RDMA_MODULES, std::string_view(name.data())) != RDMA_MODULES.end();
        if (!is_wanted || !fds_.emplace(name.data(), fd).second)
            close(fd);
    }
    asked_for_fds_ = true;
    const auto known = fds_.find(module);
    return known == fds_.end() ? -1 : known->second;
}

std::optional<KernelBtf::AttachTarget> KernelBtf::attach_target(std::string_view function) {
    for (const auto module : RDMA_MODULES) {
        const btf *types = of(module);
        const auto id = types == nullptr ? std::nullopt : find_function(types, function);
        const int fd = id ? fd_of(module) : -1;
        if (fd >= 0)
            return AttachTarget{fd, *id};
    }
    const auto id = vmlinux_ == nullptr ? std::nullopt : find_function(vmlinux_, function);
    return id ? std::optional(AttachTarget{0, *id}) : std::nullopt;
}

std::optional<unsigned> KernelBtf::parameters(std::string_view module, std::string_view function) {
    const btf *types = of(module);
    if (types == nullptr)
        return std::nullopt;
    const auto id = find_function(types, function);
    if (!id)
        return std::nullopt;
    const auto *type = btf__type_by_id(types, *id);
    const auto *prototype = btf__type_by_id(types, type->type);
    return btf_vlen(prototype);
}

namespace {

const btf_type *without_modifiers(const btf *types, std::uint32_t id) {
    const auto *type = btf__type_by_id(types, id);
    while (type != nullptr && (btf_is_mod(type) || btf_is_typedef(type)))
        type = btf__type_by_id(types, type->type);
    return type;
}

// Searches anonymous members as C does.
std::optional<std::uint32_t> find_member(const btf *types, const btf_type *type,
                                         std::string_view name, const btf_type **member_type) {
    if (type == nullptr || !btf_is_composite(type))
        return std::nullopt;
    for (std::uint32_t i = 0; i < btf_vlen(type); ++i) {
        const auto &member = btf_members(type)[i];
        const char *member_name = btf__name_by_offset(types, member.name_off);
        const auto offset_bits = btf_member_bit_offset(type, i);
        const auto *inner = without_modifiers(types, member.type);
        if (member_name == nullptr || *member_name == '\0') {
            if (const auto within = find_member(types, inner, name, member_type))
                return offset_bits / 8 + *within;
        } else if (name == member_name) {
            if (btf_member_bitfield_size(type, i) != 0)
                return std::nullopt;
            *member_type = inner;
            return offset_bits / 8;
        }
    }
    return std::nullopt;
}

} // namespace

std::optional<std::uint32_t>
KernelBtf::member_offset(std::string_view module, std::string_view type, std::string_view path) {
    const btf *types = of(module);
    if (types == nullptr)
        return std::nullopt;
    auto ids = own_types(module, type);
    if (ids.empty()) {
        types = vmlinux_;
        ids = own_types("vmlinux", type);
    }
    if (ids.empty())
        return std::nullopt;
    const auto *at = btf__type_by_id(types, ids.front());
    std::uint32_t offset_bytes = 0;
    while (!path.empty()) {
        const auto dot = path.find('.');
        const auto found = find_member(types, at, path.substr(0, dot), &at);
        if (!found)
            return std::nullopt;
        offset_bytes += *found;
        path.remove_prefix(dot == std::string_view::npos ? path.size() : dot + 1);
    }
    return offset_bytes;
}

std::optional<std::uint32_t> KernelBtf::enumerator(std::string_view module, std::string_view type,
                                                   std::string_view name) {
    const btf *types = of(module);
    for (const auto id : own_types(module, type)) {
        const auto *found = btf__type_by_id(types, id);
        for (std::uint32_t i = 0; btf_is_enum(found) && i < btf_vlen(found); ++i)
            if (name == btf__name_by_offset(types, btf_enum(found)[i].name_off))
                return static_cast<std::uint32_t>(btf_enum(found)[i].val);
    }
    return std::nullopt;
}

std::vector<std::uint32_t> KernelBtf::own_types(std::string_view module, std::string_view name) {
    const btf *types = of(module);
    if (types == nullptr)
        return {};
    const auto [entry, is_new] = indices_.try_emplace(types);
    auto &index = entry->second;
    const std::uint32_t begin = types == vmlinux_ ? 1 : btf__type_cnt(vmlinux_);
    for (std::uint32_t id = begin; is_new && id < btf__type_cnt(types); ++id) {
        const auto *type = btf__type_by_id(types, id);
        if ((btf_is_composite(type) || btf_is_any_enum(type)) && type->name_off != 0)
            index[btf__name_by_offset(types, type->name_off)].push_back(id);
    }
    const auto found = index.find(name);
    return found == index.end() ? std::vector<std::uint32_t>{} : found->second;
}

} // namespace collwire::loader
