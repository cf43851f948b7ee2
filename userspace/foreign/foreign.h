// SPDX-License-Identifier: Apache-2.0
// Reads what belongs to others: memory of a process, its files below /proc, files of its mount
// namespace. Any of these reads may wait for ever (docs/foreign.md), so reader processes do them
// and the caller waits for a limited time. Who does not answer in time is left alone: later reads
// of it fail at once with ETIMEDOUT, until it answers.
//
// The functions may be called from one thread at a time. A process reads itself directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <sys/types.h>

#include "base/result.h"

namespace collwire::foreign {

// For `pid` of the functions below: a file that is no process's. Its path answers, or does not.
inline constexpr pid_t NO_PROCESS = 0;

// Starts the process that starts readers. Without it, the first read does so. Readers share the
// memory that the caller has at that moment, so it comes first.
void start();

// All of `into`, or nothing. False: errno says why.
[[nodiscard]] bool read_memory(pid_t pid, std::uint64_t address, std::span<std::byte> into);
// Words of 8 bytes in the order of their addresses; returns how many of the first could be read.
[[nodiscard]] std::size_t read_words(pid_t pid, std::span<const std::uint64_t> addresses,
                                     std::span<std::uint64_t> into);

// At most limit_bytes from `offset_bytes` of a file. NotPermitted or Failed with the system's
// reason.
Result<std::string> read_file(pid_t pid, const std::string &path, std::size_t limit_bytes,
                              std::uint64_t offset_bytes = 0);
// /proc/PID/maps, also of a process whose memory does not answer: newer kernels need no lock for
// it.
Result<std::string> read_mappings(pid_t pid);
// The target of a symbolic link, as stored.
std::optional<std::string> read_link(pid_t pid, const std::string &path);
// A descriptor with O_PATH and O_CLOEXEC, owned by the caller; -1: errno says why.
[[nodiscard]] int open_path(pid_t pid, const std::string &path);
// Without asking a remote server (AT_STATX_DONT_SYNC).
std::optional<struct statx> status(pid_t pid, const std::string &path);
// The same for many paths, which answer together.
std::vector<std::optional<struct statx>> statuses(pid_t pid, std::span<const std::string> paths);

// Whether reads of the process are tried. False: it has not answered.
[[nodiscard]] bool answers(pid_t pid);
// Asks all of them at once whether their memory can be read, so that those that do not answer cost
// the caller their time once and not one after the other.
void ask(std::span<const pid_t> pids);

// While this descriptor (of signals, say) is readable, nobody is waited for longer than 50 ms. -1:
// none.
void hurry_while_readable(int fd);
[[nodiscard]] bool is_hurried();
// One more line for take_news().
void add_news(std::string line);

struct Silent {
    pid_t pid = 0;
    std::string what; // the file, or "memory"
};
// Those that do not answer now.
std::vector<Silent> silent();
// What changed since the last call: a line for each that stopped answering or answers again, the
// first few by name.
std::vector<std::string> take_news();
// For a message: "process 12 does not answer (its memory): ..." with the fix.
std::string text_of(const Silent &silent);

} // namespace collwire::foreign
