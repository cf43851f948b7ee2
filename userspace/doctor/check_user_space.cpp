// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "userspace/doctor/checks.h"
#include "userspace/inventory/files.h"

namespace collwire::doctor {
namespace {

// The dynamic linker's folders on known distributions, plus those of its configuration. Libraries
// in containers and Python packages are elsewhere; the recorder finds them when a process maps
// them.
std::vector<std::string> library_directories(const std::string &root) {
    std::vector<std::string> directories = {"/usr/lib/x86_64-linux-gnu",
                                            "/lib/x86_64-linux-gnu",
                                            "/usr/lib64",
                                            "/lib64",
                                            "/usr/lib",
                                            "/usr/local/lib",
                                            "/usr/local/lib64",
                                            "/usr/local/cuda/lib64",
                                            "/usr/local/nvidia/lib64"};
    for (const std::string &file : inventory::list_directory(root + "/etc/ld.so.conf.d")) {
        const auto text = inventory::read_file(
            inventory::concatenated(root, "/etc/ld.so.conf.d/", file), inventory::small_file_bytes);
        for (const std::string_view line :
             inventory::split(text ? std::string_view(*text) : "", '\n')) {
            const std::string_view directory = inventory::trim(line);
            if (directory.starts_with('/'))
                directories.emplace_back(directory);
        }
    }
    return directories;
}

std::string find_library(const std::string &root, std::string_view name) {
    for (const std::string &directory : library_directories(root)) {
        std::string path = directory + "/" + std::string(name);
        if (inventory::exists(root + path))
            return path;
    }
    return {};
}

std::string joined(const std::vector<std::string> &names) {
    std::string text;
    for (const std::string &name : names)
        text += (text.empty() ? "" : ", ") + name;
    return text;
}

Check check_verbs(const std::string &root) {
    const std::string path = find_library(root, "libibverbs.so.1");
    if (!path.empty())
        return ok("libibverbs", path);
    return {"libibverbs",
            CheckState::Limited,
            "not on the library path",
            "host programs cannot use RDMA; containers usually have their own copy",
            "sudo apt-get install ibverbs-providers",
            false,
            Code::NoLibibverbs};
}

Check check_providers(const std::string &root) {
    std::vector<std::string> providers;
    for (const std::string &directory : library_directories(root)) {
        for (const std::string &file :
             inventory::list_directory(root + directory + "/libibverbs")) {
            // libmlx5-rdmav34.so
            const std::size_t end = file.find("-rdmav");
            if (!file.starts_with("lib") || end == std::string::npos)
                continue;
            std::string name = file.substr(3, end - 3);
            if (std::find(providers.begin(), providers.end(), name) == providers.end())
                providers.push_back(std::move(name));
        }
    }
    if (!providers.empty())
        return ok("verbs providers", joined(providers));
    return {"verbs providers",
            CheckState::Limited,
            "none on the library path",
            "posts are counted in containers with their own copy, not in host programs",
            "sudo apt-get install ibverbs-providers",
            false,
            Code::NoVerbsProviders};
}

Check check_optional_library(const std::string &root, std::string name, std::string_view library,
                             std::string effect, Code code) {
    std::string path = find_library(root, library);
    if (!path.empty())
        return ok(std::move(name), std::move(path));
    return {std::move(name),
            CheckState::Limited,
            std::string(library) + " is not on the library path",
            std::move(effect),
            "",
            false,
            code};
}

Check check_numa(const std::string &root) {
    const auto names = inventory::list_directory(root + "/sys/devices/system/node");
    const auto nodes = std::count_if(names.begin(), names.end(), [](const std::string &name) {
        return name.starts_with("node") &&
               inventory::parse_number(std::string_view(name).substr(4));
    });
    if (nodes > 0)
        return ok("NUMA", std::to_string(nodes) + (nodes == 1 ? " node" : " nodes"));
    return {"NUMA",
            CheckState::Limited,
            "not reported by the kernel",
            "no NUMA node for processes and devices in the capture",
            "boot a kernel with CONFIG_NUMA=y",
            false,
            Code::NoNuma};
}

} // namespace

std::vector<Check> check_user_space(const std::string &root) {
    return {check_verbs(root), check_providers(root),
            check_optional_library(root, "CUDA driver", "libcuda.so.1",
                                   "RDMA tracing does not need it", Code::NoCudaDriver),
            check_optional_library(root, "NCCL", "libnccl.so.2",
                                   "RDMA tracing does not need it; copies in containers and Python "
                                   "packages are not searched here, record finds them",
                                   Code::NoNccl),
            check_numa(root)};
}

} // namespace collwire::doctor
