// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/thread_number.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "userspace/inventory/files.h"

namespace collwire::inspect {
namespace {

// struct pthread begins with the thread control block, 704 bytes on x86-64, and two list pointers.
// tid follows these in glibc 2.4 to 2.42, and the robust list is some words further.
constexpr std::uint64_t FIRST_BYTE = 704;
constexpr std::uint64_t TID_BYTE = FIRST_BYTE + 16;
constexpr std::uint64_t LAST_BYTE = FIRST_BYTE + 128;
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

// 0: not permitted, or it has none.
std::uint64_t robust_list_of(std::uint32_t tid) {
    void *head = nullptr;
    std::size_t bytes = 0;
    return syscall(SYS_get_robust_list, static_cast<int>(tid), &head, &bytes) == 0
               ? reinterpret_cast<std::uint64_t>(head)
               : 0;
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
        if (!outer)
            continue;
        const auto tid = static_cast<std::uint32_t>(*outer);
        if (inner)
            numbers.by_inner.emplace(static_cast<std::uint32_t>(*inner), tid);
        if (const std::uint64_t head = robust_list_of(tid); head != 0)
            numbers.by_robust_list.emplace(head, tid);
    }
    return numbers;
}

std::uint32_t thread_number(const process::ProcessView &process, const ThreadNumbers &threads,
                            std::uint64_t pthread) {
    if (pthread == 0 || pthread % 8 != 0)
        return 0;
    // It begins with the thread control block: its own address is the first word and the third.
    const auto self = process.read<std::uint64_t>(pthread + 16);
    if (self != pthread)
        return 0;
    const auto list = threads.by_robust_list.lower_bound(pthread + FIRST_BYTE);
    if (list != threads.by_robust_list.end() && list->first < pthread + LAST_BYTE)
        return list->second;
    if (!threads.by_robust_list.empty())
        return 0;
    const auto inner = process.read<std::uint32_t>(pthread + TID_BYTE);
    const auto found = inner ? threads.by_inner.find(*inner) : threads.by_inner.end();
    return found == threads.by_inner.end() ? 0 : found->second;
}

} // namespace collwire::inspect
