// SPDX-License-Identifier: Apache-2.0
// Loads an empty program and the one that counts posts.
#pragma once

#include <memory>

#include <bpf/libbpf.h>

#include "base/result.h"

namespace collwire::calibrate {

class PostPrograms {
public:
    [[nodiscard]] static Result<std::unique_ptr<PostPrograms>> load();
    PostPrograms(const PostPrograms &) = delete;
    PostPrograms &operator=(const PostPrograms &) = delete;
    ~PostPrograms();

    [[nodiscard]] bpf_program *empty() const;
    [[nodiscard]] bpf_program *ours() const;

private:
    struct Loaded;
    PostPrograms();
    std::unique_ptr<Loaded> loaded_;
};

} // namespace collwire::calibrate
