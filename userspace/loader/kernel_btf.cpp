// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/kernel_btf.h"

#include <bpf/btf.h>

#include "userspace/loader/kernel_functions.h"
#include "userspace/loader/libbpf_log.h"

namespace collwire {

KernelBtf::KernelBtf() {
    const LibbpfLog quiet;
    vmlinux_ = btf__load_vmlinux_btf();
}

KernelBtf::~KernelBtf() {
    // Split BTF refers to the kernel's: that goes last.
    for (const auto &[name, module] : modules_)
        btf__free(module);
    btf__free(vmlinux_);
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

std::optional<unsigned> KernelBtf::parameters(std::string_view module, std::string_view function) {
    const btf *types = of(module);
    if (types == nullptr)
        return std::nullopt;
    const auto id = btf__find_by_name_kind(types, std::string(function).c_str(), BTF_KIND_FUNC);
    if (id < 0)
        return std::nullopt;
    const auto *type = btf__type_by_id(types, static_cast<unsigned>(id));
    const auto *prototype = btf__type_by_id(types, type->type);
    return btf_vlen(prototype);
}

} // namespace collwire
