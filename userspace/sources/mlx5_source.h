// SPDX-License-Identifier: Apache-2.0
// DEVX queue pairs and module events of mlx5 (bpf/mlx5.bpf.c). docs/sources/mlx5.md
#pragma once

#include "userspace/sources/probed_source.h"

struct mlx5; // the skeleton of bpf/mlx5.bpf.c

namespace collwire::sources {

struct Mlx5SourceOptions {
    bool filter_by_tgid = false;
    std::string layout_unknown; // of module_origin.h: why its modules must not be read
    loader::HookMode mode = loader::default_hook_mode();
};

class Mlx5Source : public ProbedSource<mlx5> {
public:
    Mlx5Source(const loader::SharedMaps &maps, Mlx5SourceOptions options);
    ~Mlx5Source() override;

private:
    [[nodiscard]] source::ProbeUse use() const override { return source::ProbeUse::Control; }
    bool applicable() override;
    bool configure() override;
    Mlx5SourceOptions options_;
};

} // namespace collwire::sources
