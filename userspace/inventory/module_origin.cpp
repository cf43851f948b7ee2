// SPDX-License-Identifier: Apache-2.0
#include "userspace/inventory/module_origin.h"

#include <algorithm>
#include <optional>

#include <sys/utsname.h>

#include "userspace/inventory/files.h"

namespace collwire::inventory {
namespace {

constexpr std::size_t modules_file_bytes = 8UL * 1024 * 1024;

std::string modules_directory(const std::string &root) {
    std::string release = read_line(root + "/proc/sys/kernel/osrelease").value_or("");
    if (release.empty()) {
        utsname name{};
        if (uname(&name) == 0)
            release = name.release;
    }
    return root + "/lib/modules/" + release;
}

// File names write - where module names have _.
bool names_module(std::string_view path, std::string_view module) {
    std::string name(base_name(path));
    const std::size_t suffix = name.find(".ko"); // .ko, .ko.xz, .ko.zst, .ko.gz
    if (suffix == std::string::npos)
        return false;
    name.resize(suffix);
    std::replace(name.begin(), name.end(), '-', '_');
    return name == module;
}

// The path of a module in modules.dep ("PATH: dependencies") or modules.builtin ("PATH").
std::optional<std::string> path_in(const std::string &file, std::string_view module) {
    const auto text = read_file(file, modules_file_bytes);
    if (!text)
        return std::nullopt;
    for (const std::string_view line : split(*text, '\n')) {
        const std::string_view path = line.substr(0, line.find(':'));
        if (names_module(path, module))
            return std::string(path);
    }
    return std::nullopt;
}

// modules.dep is relative to the release's directory, or absolute on some systems.
bool below_kernel(std::string_view path) {
    return path.starts_with("kernel/") || path.find("/kernel/") != std::string_view::npos;
}

bool any_module_has_btf(const std::string &root) {
    const auto names = list_directory(root + "/sys/kernel/btf");
    return std::any_of(names.begin(), names.end(),
                       [](const std::string &name) { return name != "vmlinux"; });
}

bool unsigned_module(std::string_view taint) {
    return taint.find('E') != std::string_view::npos;
}

bool any_signed_module(const std::string &root) {
    const std::string modules = root + "/sys/module/";
    const auto names = list_directory(modules);
    return std::any_of(names.begin(), names.end(), [&](const std::string &name) {
        return exists(modules + name + "/initstate") &&
               !unsigned_module(read_line(modules + name + "/taint").value_or("E"));
    });
}

// OFED's compatibility module: every module of its stack is rebuilt together with it.
constexpr std::string_view ofed_compatibility = "mlx_compat";

bool in_rdma_stack(std::string_view module) {
    return module.starts_with("ib_") || module.starts_with("rdma_") || module.starts_with("iw_") ||
           module.starts_with("mlx4_") || module.starts_with("mlx5_");
}

} // namespace

ModuleOrigin module_origin(const std::string &root, std::string_view module) {
    ModuleOrigin origin;
    const std::string name(module);
    const std::string directory = root + "/sys/module/" + name;
    // A built-in module may have the directory (if it has parameters); only a loaded one has this.
    const bool loaded = exists(directory + "/initstate");
    origin.btf_present = exists(root + "/sys/kernel/btf/" + name);
    const std::string modules = modules_directory(root);
    if (!loaded) {
        if (!module.empty() && path_in(modules + "/modules.builtin", module)) {
            origin.present = origin.trusted = true;
            origin.btf_present = exists(root + "/sys/kernel/btf/vmlinux");
            origin.reason = "built into the kernel";
        } else {
            origin.reason = "not loaded";
        }
        return origin;
    }
    origin.present = true;
    const std::string taint = read_line(directory + "/taint").value_or("");
    if (taint.find('P') != std::string::npos) {
        origin.reason = "proprietary module, taint " + taint;
        return origin;
    }
    if (taint.find('O') != std::string::npos) {
        origin.reason = "built outside the kernel tree, taint " + taint;
        return origin;
    }
    if (in_rdma_stack(module) && exists(root + "/sys/module/" + std::string(ofed_compatibility))) {
        origin.reason = "mlx_compat is loaded: the RDMA stack is OFED";
        return origin;
    }
    const auto path = path_in(modules + "/modules.dep", module);
    if (path && !below_kernel(*path)) {
        origin.reason = "its file is " + *path + ", not under kernel/";
        return origin;
    }
    if (!origin.btf_present && any_module_has_btf(root)) {
        origin.reason = "without BTF while other modules have it";
        return origin;
    }
    // Unsigned alone says nothing: every module of an unsigned kernel package is.
    if (unsigned_module(taint) && any_signed_module(root)) {
        origin.reason = "unsigned, taint " + taint + ", while other modules are signed";
        return origin;
    }
    origin.trusted = true;
    origin.reason = path ? "its file is " + *path : "no sign of a foreign build";
    return origin;
}

std::vector<std::string> foreign_rdma_modules(const std::string &root) {
    std::vector<std::string> foreign;
    for (const char *module : {"ib_core", "ib_uverbs", "rdma_cm", "mlx5_core", "mlx5_ib", "bnxt_re",
                               "irdma", "efa", "rdma_rxe", "siw"}) {
        if (module_origin(root, module).foreign())
            foreign.emplace_back(module);
    }
    return foreign;
}

std::string layout_unknown(const std::string &root,
                           std::initializer_list<std::string_view> modules) {
    for (const std::string_view module : modules) {
        const ModuleOrigin origin = module_origin(root, module);
        if (origin.foreign() && !origin.described())
            return std::string(module) + " is out-of-tree (" + origin.reason + ") and has no BTF";
    }
    return {};
}

} // namespace collwire::inventory
