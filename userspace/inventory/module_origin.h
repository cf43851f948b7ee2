// SPDX-License-Identifier: Apache-2.0
// Whether a kernel module is the kernel's own: a rebuilt one (OFED, DKMS) has other struct layouts
// under the same names, and offsets from the kernel's BTF would read garbage from it.
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
    std::string reason; // what it was decided on, in one clause

    [[nodiscard]] bool foreign() const { return present && !trusted; }
    // Offsets may be taken from BTF: the kernel's own, or a foreign one that describes itself.
    [[nodiscard]] bool described() const { return trusted || btf_present; }
};

// `root` goes before every path ("" is the machine itself). An absent module is neither.
ModuleOrigin module_origin(const std::string &root, std::string_view module);

// Names of foreign modules among those that RDMA tracing reads, loaded now.
std::vector<std::string> foreign_rdma_modules(const std::string &root);

// Why offsets must not be taken from BTF in what these modules own, in one clause that names the
// first in the way; empty if nothing is.
std::string layout_unknown(const std::string &root,
                           std::initializer_list<std::string_view> modules);

} // namespace collwire::inventory
