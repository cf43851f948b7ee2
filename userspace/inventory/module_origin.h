// SPDX-License-Identifier: Apache-2.0
// Whether a kernel module belongs to the kernel package: a rebuilt one (OFED, DKMS) has other
// struct layouts under the same names, and offsets from the kernel's BTF would read garbage from
// it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace collwire::inventory {

struct ModuleOrigin {
    bool present = false; // loaded, or built into the kernel
    bool trusted = false; // the kernel's own
    bool btf_present = false;
    std::string reason; // the evidence, in one clause

    [[nodiscard]] bool foreign() const { return present && !trusted; }
    // Offsets may be taken from BTF: the module is the kernel's own, or foreign with its own BTF.
    [[nodiscard]] bool described() const { return trusted || btf_present; }
};

// `root` goes before every path ("" is the machine itself). An absent module is neither.
ModuleOrigin module_origin(const std::string &root, std::string_view module);

// Names of foreign modules among those that RDMA tracing reads, loaded now.
std::vector<std::string> foreign_rdma_modules(const std::string &root);

// The reason against offsets from BTF for these modules, in one clause that names the first such
// module; empty: none.
std::string layout_unknown(const std::string &root,
                           std::initializer_list<std::string_view> modules);

} // namespace collwire::inventory
