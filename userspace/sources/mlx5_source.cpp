// SPDX-License-Identifier: Apache-2.0
#include "collwire/node_records.h"
#include "mlx5.skel.h"

#include "userspace/sources/mlx5_source.h"

namespace collwire::sources {
namespace {

constexpr const char *devx_create = "mlx5_ib_handler_MLX5_IB_METHOD_DEVX_OBJ_CREATE";

std::vector<loader::Hook> mlx5_hooks() {
    return {
        {.function = devx_create,
         .parameters = 1,
         .fentry = "devx_fentry",
         .fexit = "devx_fexit",
         .kprobe = "devx_kprobe",
         .kretprobe = "devx_kretprobe",
         .without = "queue pairs created through DEVX are missing"},
        {.function = "mlx5_cmd_do",
         .parameters = 5,
         .fentry = "do_fentry",
         .fexit = "do_fexit",
         .kprobe = "do_kprobe",
         .kretprobe = "do_kretprobe"},
        {.function = "mlx5_cmd_exec",
         .parameters = 5,
         .fentry = "exec_fentry",
         .fexit = "exec_fexit",
         .kprobe = "exec_kprobe",
         .kretprobe = "exec_kretprobe"},
        {.function = "port_module",
         .parameters = 3,
         .fentry = "module_fentry",
         .fexit = {},
         .kprobe = "module_kprobe",
         .kretprobe = {},
         .without = "no module events"},
    };
}

} // namespace

Mlx5Source::Mlx5Source(const loader::SharedMaps &maps, Mlx5SourceOptions options)
    : ProbedSource(maps, "mlx5", mlx5_hooks(), options.mode), options_(std::move(options)) {}

Mlx5Source::~Mlx5Source() = default;

bool Mlx5Source::applicable() {
    if (!loader::module_is_loaded("mlx5_core"))
        return unusable(CW_SOURCE_UNAVAILABLE,
                        "no mlx5 device on this node (mlx5_core is not loaded)");
    if (!options_.layout_unknown.empty())
        return unusable(CW_SOURCE_REFUSED,
                        options_.layout_unknown +
                            ": queue pairs created through DEVX are missing. Fix: load the in-tree "
                            "module, or rebuild that module with BTF");
    return true;
}

bool Mlx5Source::configure() {
    if (!hooks_.present("mlx5_cmd_do") && !need("mlx5_cmd_exec"))
        return false;
    skeleton_->rodata->filter_by_tgid = options_.filter_by_tgid;
    return true;
}

} // namespace collwire::sources
