// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/thread_number.h"

#include <array>
#include <string>

#include "userspace/inventory/files.h"

namespace collwire::inspect {
namespace {

// struct pthread begins with the thread control block, 704 bytes on x86-64, and list pointers;
// tid follows these, at an offset that is internal to glibc.
constexpr std::uint64_t FIRST_BYTE = 704;
constexpr std::size_t WORDS = 32;
constexpr std::size_t STATUS_BYTES = 65536;
constexpr std::string_view NAMESPACES = "\nNSpid:";

// The last of "NSpid:\t4711\t17": that of the innermost namespace.
std::optional<std::uint64_t> inner_number(std::string_view status) {
    const std::size_t at = status.find(NAMESPACES);
    if (at == std::string_view::npos)
        return std::nullopt;
    std::string_view line = status.substr(at + NAMESPACES.size());
    line = inventory::trim(line.substr(0, line.find('\n')));
    return inventory::parse_number(inventory::trim(line.substr(line.find_last_of(" \t") + 1)));
}

} // namespace

ThreadNumbers thread_numbers(pid_t pid) {
    ThreadNumbers numbers;
    const std::string tasks = inventory::concatenated("/proc/", std::to_string(pid), "/task");
    for (const std::string &name : inventory::list_directory(tasks)) {
        const auto outer = inventory::parse_number(name);
        const auto status = inventory::read_file(
            inventory::concatenated(tasks, "/", name, "/status"), STATUS_BYTES);
        const auto inner = status ? inner_number(*status) : std::nullopt;
        if (outer && inner)
            numbers.emplace(static_cast<std::uint32_t>(*inner), static_cast<std::uint32_t>(*outer));
    }
    return numbers;
}

std::uint32_t thread_number(const process::ProcessView &process, const ThreadNumbers &threads,
                            std::uint64_t pthread) {
    if (pthread == 0 || pthread % 8 != 0)
        return 0;
    // It begins with the thread control block: its own address is the first word and the third.
    const auto self = process.read<std::uint64_t>(pthread + 16);
    const auto words = process.read<std::array<std::uint32_t, WORDS>>(pthread + FIRST_BYTE);
    if (self != pthread || !words)
        return 0;
    for (const std::uint32_t word : *words)
        if (const auto found = threads.find(word); found != threads.end())
            return found->second;
    return 0;
}

} // namespace collwire::inspect
