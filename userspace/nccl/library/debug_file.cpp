// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/library/debug_file.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

namespace collwire::nccl {
namespace {

constexpr std::string_view SYSTEM = "/usr/lib/debug";
constexpr std::string_view LAYOUT_SUFFIX = ".json";
constexpr std::string_view FORMER_LAYOUT_SUFFIX = ".nccl-plan.json"; // after the build-id alone
constexpr std::string_view HEX_DIGITS = "0123456789abcdef";
constexpr std::string_view LIBRARY = "libnccl.so";
constexpr std::size_t MOST_OTHERS = 64;
constexpr std::size_t MOST_NAMES = 4096; // of a directory
constexpr std::size_t DIRECTORY_DIGITS = 2;

// "ab/cdef.debug" of abcdef
std::string by_build_id(std::string_view build_id) {
    return fmt::format("{}/{}.debug", build_id.substr(0, DIRECTORY_DIGITS),
                       build_id.substr(DIRECTORY_DIGITS));
}

// It belongs to root, to this process's user or to the program's owner, and is not world-writable.
bool is_trusted(const std::string &directory, uid_t owner) {
    struct stat status {};
    return stat(directory.c_str(), &status) == 0 && (status.st_mode & S_IWOTH) == 0 &&
           (status.st_uid == 0 || status.st_uid == geteuid() || status.st_uid == owner);
}

// Layouts that come with collwire: where packages put them, and next to the program.
std::vector<std::string> own_layout_directories() {
    std::vector<std::string> directories{"/usr/share/collwire/nccl-layouts"};
    std::error_code problem;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", problem);
    struct stat status {};
    if (problem || stat(program.c_str(), &status) != 0)
        return directories;
    for (const std::string &directory :
         {(program.parent_path().parent_path() / "share/collwire/nccl-layouts").string(),
          (program.parent_path() / "nccl-layouts").string()})
        if (is_trusted(directory, status.st_uid))
            directories.push_back(directory);
    return directories;
}

// The build-id in the name of a layout's file; empty: not a layout's name.
std::string_view build_id_of(std::string_view name) {
    for (const std::string_view suffix : {FORMER_LAYOUT_SUFFIX, LAYOUT_SUFFIX})
        if (name.ends_with(suffix)) {
            name.remove_suffix(suffix.size());
            name.remove_prefix(name.rfind('-') + 1);
            return name.find_first_not_of(HEX_DIGITS) == std::string_view::npos
                       ? name
                       : std::string_view{};
        }
    return {};
}

// Ordered by name.
template <typename Wanted>
std::vector<std::string> files_in(const std::string &directory, const Wanted &is_wanted) {
    std::vector<std::string> paths;
    std::error_code problem;
    std::filesystem::directory_iterator at{directory, problem};
    std::size_t left = MOST_NAMES;
    for (; !problem && left != 0 && at != std::filesystem::directory_iterator{};
         at.increment(problem), --left)
        if (is_wanted(at->path().filename().native()))
            paths.push_back(at->path());
    std::ranges::sort(paths);
    return paths;
}

std::string_view directory_of(std::string_view path) {
    return path.substr(0, std::min(path.rfind('/'), path.size()));
}

std::string_view name_of(std::string_view path) {
    return path.substr(path.rfind('/') + 1);
}

} // namespace

std::vector<std::string> debug_file_paths(std::string_view build_id, std::string_view link,
                                          const DebugPlaces &places) {
    std::vector<std::string> paths;
    // Only the build-id proves that two files are of one build.
    if (build_id.size() <= DIRECTORY_DIGITS)
        return paths;
    const auto add = [&paths](std::string path) {
        if (std::ranges::find(paths, path) == paths.end())
            paths.push_back(std::move(path));
    };
    const std::string_view name = name_of(places.library);
    for (const std::string &place : places.symbols) {
        add(fmt::format("{}/.build-id/{}", place, by_build_id(build_id)));
        add(fmt::format("{}/{}", place, by_build_id(build_id)));
        if (!link.empty())
            add(fmt::format("{}/{}", place, link));
        if (!name.empty()) {
            add(fmt::format("{}/{}.debug", place, name));
            add(fmt::format("{}/{}", place, name));
        }
        add(place);
    }
    add(fmt::format("{}/.build-id/{}", SYSTEM, by_build_id(build_id)));
    if (!link.empty() && places.library.starts_with('/')) {
        const std::string_view directory = directory_of(places.library);
        add(fmt::format("{}/{}", directory, link));
        add(fmt::format("{}/.debug/{}", directory, link));
        add(fmt::format("{}{}/{}", SYSTEM, directory, link));
    }
    return paths;
}

std::vector<std::string> layout_paths(std::string_view build_id, const DebugPlaces &places) {
    std::vector<std::string> paths;
    if (build_id.empty())
        return paths;
    const auto add = [&](const std::string &directory) {
        std::ranges::move(
            files_in(directory,
                     [build_id](std::string_view name) { return build_id_of(name) == build_id; }),
            std::back_inserter(paths));
    };
    for (const std::string &place : places.symbols) {
        add(place);
        paths.push_back(place); // perhaps a file
    }
    for (const std::string &directory : own_layout_directories())
        add(directory);
    return paths;
}

std::vector<std::string> other_build_paths(const DebugPlaces &places) {
    std::vector<std::string> paths;
    std::vector<std::string> directories = own_layout_directories();
    directories.insert(directories.begin(), places.symbols.begin(), places.symbols.end());
    for (const std::string &directory : directories) {
        std::vector<std::string> of_this = files_in(directory, [](std::string_view name) {
            return !build_id_of(name).empty() || name.starts_with(LIBRARY);
        });
        of_this.resize(std::min(of_this.size(), MOST_OTHERS));
        paths.insert(paths.end(), of_this.begin(), of_this.end());
        if (of_this.empty())
            paths.push_back(directory); // perhaps a file
    }
    return paths;
}

std::string layout_file_name(std::string_view version, std::string_view build_id) {
    return fmt::format("{}{}{}{}", version, version.empty() ? "" : "-", build_id, LAYOUT_SUFFIX);
}

} // namespace collwire::nccl
