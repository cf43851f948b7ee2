// SPDX-License-Identifier: Apache-2.0
// Becomes a command whose CUDA processes load the guest library.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "base/exit_status.h"
#include "collwire/gpu_records.h"
#include "tools/cli/print_error.h"
#include "tools/cli/profiler_plugin.h"
#include "tools/cli/verbs.h"
#include "userspace/process/guest_library.h"

namespace collwire::cli {
namespace {

// CUDA's driver loads the library of this path into each process that initialises it.
constexpr const char *INJECTION = "CUDA_INJECTION64_PATH";
// NCCL loads one profiler plugin, of this path, with a process's first communicator.
constexpr const char *PROFILER = "NCCL_PROFILER_PLUGIN";

int refuse(const std::string &message) {
    print_error("collwire run: {}\n", message);
    return EXIT_USAGE;
}

bool is_same_file(const std::string &a, const std::string &b) {
    std::error_code failed;
    return std::filesystem::equivalent(a, b, failed) && !failed;
}

// Another tool's file keeps its place.
bool is_ours_to_set(const char *variable, const std::string &library) {
    const char *other = std::getenv(variable);
    return other == nullptr || *other == '\0' || is_same_file(other, library);
}

} // namespace

int run_run(const RunCommand &command) {
    if (!command.has_separator)
        return refuse("no command. Fix: collwire run -- CMD ARGS");
    const auto installed = process::installed_guest_libraries();
    if (installed.empty()) {
        print_error("collwire run: {} is neither next to this program nor in the library folder of "
                    "its installation. Fix: install it, or build target collwire_cupti\n",
                    CW_GPU_LIBRARY);
        return EXIT_FAILED;
    }
    const std::string &library = installed.front();
    const bool has_driver = is_ours_to_set(INJECTION, library);
    if (!has_driver && !command.nccl_profiler)
        return refuse(fmt::format("{} is {} already, and CUDA loads one library alone. Fix: unset "
                                  "it, or run the command without collwire run",
                                  INJECTION, std::getenv(INJECTION)));
    const bool has_profiler = command.nccl_profiler;
    if (has_profiler && (!is_ours_to_set(PROFILER, library) ||
                         (std::getenv(PROFILER) == nullptr && !default_profiler_plugin().empty())))
        return refuse(fmt::format("NCCL has another profiler plugin ({}), and loads one alone. "
                                  "Fix: leave out --nccl-profiler",
                                  std::getenv(PROFILER) != nullptr ? std::getenv(PROFILER)
                                                                   : default_profiler_plugin()));
    if ((has_driver && setenv(INJECTION, library.c_str(), 1) != 0) ||
        (has_profiler && setenv(PROFILER, library.c_str(), 1) != 0)) {
        print_error("collwire run: cannot set the environment: {}\n", std::strerror(errno));
        return EXIT_FAILED;
    }
    std::vector<char *> arguments;
    arguments.reserve(command.command.size() + 1);
    for (const std::string &argument : command.command)
        arguments.push_back(const_cast<char *>(argument.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments.front(), arguments.data());
    return refuse(fmt::format("cannot execute {}: {}. Fix: give an executable command after --",
                              command.command.front(), std::strerror(errno)));
}

} // namespace collwire::cli
