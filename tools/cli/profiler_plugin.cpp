// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/profiler_plugin.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

namespace collwire::cli {
namespace {

constexpr std::string_view VARIABLE = "NCCL_PROFILER_PLUGIN=";
constexpr const char *DEFAULT_NAME = "libnccl-profiler.so";

bool sets_plugin(const std::string &path) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(VARIABLE))
            return true;
    return false;
}

std::string variable(const char *name) {
    const char *value = std::getenv(name);
    return value != nullptr ? value : "";
}

std::vector<std::string> folders() {
    std::vector<std::string> all;
    std::string folder;
    for (const char c : variable("LD_LIBRARY_PATH") + ":") {
        if (c != ':') {
            folder += c;
        } else if (!folder.empty()) {
            all.push_back(folder);
            folder.clear();
        }
    }
    for (const char *system : {"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib",
                               "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"})
        all.emplace_back(system);
    return all;
}

} // namespace

std::string default_profiler_plugin() {
    std::vector<std::string> files = {"/etc/nccl.conf"};
    if (const std::string file = variable("NCCL_CONF_FILE"); !file.empty())
        files.push_back(file);
    else if (const std::string home = variable("HOME"); !home.empty())
        files.push_back(home + "/.nccl.conf");
    for (const std::string &file : files)
        if (sets_plugin(file))
            return file;
    std::error_code failed;
    for (const std::string &folder : folders())
        if (const auto path = std::filesystem::path(folder) / DEFAULT_NAME;
            std::filesystem::exists(path, failed))
            return path.string();
    return {};
}

} // namespace collwire::cli
