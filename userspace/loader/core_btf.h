// SPDX-License-Identifier: Apache-2.0
// The kernel types that one BPF object reads, as a BTF of its own. libbpf resolves CO-RE against it
// at once; it would walk the kernel's 100,000 types once per type. A type of the RDMA core is taken
// from the module that defines it (a rebuilt ib_core with BTF), not from the kernel.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "userspace/loader/kernel_btf.h"

struct btf;

namespace collwire::loader {

// The names of the structs, unions and enums in an object's BTF, without the part after a triple
// underscore (CO-RE's flavours).
[[nodiscard]] std::vector<std::string> type_names(const btf *object_types);

// A BTF with those types, as a file with the lifetime of this object.
class CoreBtf {
public:
    static Result<CoreBtf> make(KernelBtf &kernel, const std::vector<std::string> &names);
    CoreBtf(CoreBtf &&other) noexcept;
    CoreBtf &operator=(CoreBtf &&) = delete;
    ~CoreBtf();
    // For bpf_object_open_opts.btf_custom_path.
    [[nodiscard]] std::string path() const;

private:
    explicit CoreBtf(int fd) : fd_(fd) {}
    int fd_;
};

} // namespace collwire::loader
