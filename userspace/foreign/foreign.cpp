// SPDX-License-Identifier: Apache-2.0
#include "userspace/foreign/foreign.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include "userspace/foreign/reader.h"
#include "userspace/foreign/reader_pool.h"
#include "userspace/foreign/spawner.h"
#include "userspace/foreign/word_pieces.h"

namespace collwire::foreign {
namespace {

constexpr char MEMORY[] = "its memory";
constexpr std::size_t MAX_MAPS_BYTES = 64UL << 20U;

Error failed(const std::string &path, int error_number) {
    if (error_number == ETIMEDOUT)
        return error(ErrorKind::Failed, path + ": does not answer");
    const bool denied = error_number == EACCES || error_number == EPERM;
    return error(denied ? ErrorKind::NotPermitted : ErrorKind::Failed,
                 path + ": " + std::strerror(error_number));
}

Party party_of(pid_t pid, const std::string &path) {
    return pid == NO_PROCESS ? Party{NO_PROCESS, path} : Party{pid, {}};
}

// A request with a path. No value: errno says why.
std::optional<ReaderReply> ask_for(const Party &party, const std::string &path,
                                   ReaderRequest request, const std::byte **shared,
                                   int *fd = nullptr) {
    if (path.size() + 1 > SHARED_BYTES) {
        errno = ENAMETOOLONG;
        return std::nullopt;
    }
    ReaderPool &pool = ReaderPool::instance();
    ReaderHandle *reader = pool.reader_for(party);
    if (reader == nullptr)
        return std::nullopt;
    std::memcpy(reader->shared(), path.c_str(), path.size() + 1);
    *shared = reader->shared();
    request.pid = party.pid;
    return pool.ask(party, request, path, fd);
}

bool read_own(std::uint64_t address, std::span<std::byte> into) {
    const iovec local{into.data(), into.size()};
    // An address. NOLINTNEXTLINE(performance-no-int-to-ptr)
    const iovec remote{reinterpret_cast<void *>(address), into.size()};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) ==
           static_cast<ssize_t>(into.size());
}

} // namespace

void start() {
    (void)start_spawner();
}

bool read_memory(pid_t pid, std::uint64_t address, std::span<std::byte> into) {
    if (pid == getpid())
        return read_own(address, into);
    ReaderPool &pool = ReaderPool::instance();
    const Party party{pid, {}};
    for (std::size_t done = 0; done < into.size();) {
        const std::size_t n = std::min(into.size() - done, SHARED_BYTES);
        ReaderHandle *reader = pool.reader_for(party);
        if (reader == nullptr)
            return false;
        const auto reply = pool.ask(party, {ReaderTask::Memory, pid, address + done, n, 0}, MEMORY);
        if (!reply || reply->result != static_cast<std::int64_t>(n))
            return false;
        std::memcpy(into.data() + done, reader->shared(), n);
        done += n;
    }
    return true;
}

std::size_t read_words(pid_t pid, std::span<const std::uint64_t> addresses,
                       std::span<std::uint64_t> into) {
    std::size_t n_read = 0;
    for (std::size_t first = 0; first < addresses.size() && n_read == first; first += MAX_WORDS) {
        const auto some = addresses.subspan(first, std::min(MAX_WORDS, addresses.size() - first));
        if (pid == getpid()) {
            const auto words = into.subspan(first, some.size());
            std::ranges::copy(some, words.begin());
            const std::size_t n = WordPieces{}.read(pid, words).value_or(0);
            std::ranges::fill(words.subspan(n), 0U);
            n_read += n;
            continue;
        }
        ReaderPool &pool = ReaderPool::instance();
        const Party party{pid, {}};
        ReaderHandle *reader = pool.reader_for(party);
        if (reader == nullptr)
            return n_read;
        std::memcpy(reader->shared(), some.data(), some.size_bytes());
        const auto reply = pool.ask(party, {ReaderTask::Words, pid, 0, 0, some.size()}, MEMORY);
        const std::size_t n_bytes =
            !reply || reply->result < 0 ? 0 : static_cast<std::size_t>(reply->result);
        const std::size_t n = std::min(n_bytes / sizeof(std::uint64_t), some.size());
        if (n != 0)
            std::memcpy(&into[first], reader->shared(), n * sizeof(std::uint64_t));
        n_read += n;
    }
    return n_read;
}

namespace {

Result<std::string> read_file_of(const Party &party, const std::string &path,
                                 std::size_t limit_bytes, std::uint64_t offset_bytes) {
    const std::byte *shared = nullptr;
    const auto reply =
        ask_for(party, path, {ReaderTask::OpenFile, 0, offset_bytes, limit_bytes, 0}, &shared);
    if (!reply || reply->result < 0)
        return failed(path, errno);
    const auto size = static_cast<std::size_t>(reply->result);
    std::string text(size, '\0');
    std::size_t got = std::min(size, SHARED_BYTES);
    std::memcpy(text.data(), shared, got);
    ReaderPool &pool = ReaderPool::instance();
    while (got < size) {
        ReaderHandle *reader = pool.reader_for(party); // the same: it was put back last
        if (reader == nullptr || reader->shared() != shared)
            return failed(path, EAGAIN);
        const auto more =
            pool.ask(party, {ReaderTask::FilePart, party.pid, got, size - got, 0}, path);
        if (!more || more->result <= 0)
            return failed(path, EAGAIN);
        const std::size_t n = std::min(size - got, static_cast<std::size_t>(more->result));
        std::memcpy(text.data() + got, shared, n);
        got += n;
    }
    return text;
}

} // namespace

Result<std::string> read_file(pid_t pid, const std::string &path, std::size_t limit_bytes,
                              std::uint64_t offset_bytes) {
    return read_file_of(party_of(pid, path), path, limit_bytes, offset_bytes);
}

Result<std::string> read_mappings(pid_t pid) {
    const std::string path = fmt::format("/proc/{}/maps", pid);
    return read_file_of({pid, path}, path, MAX_MAPS_BYTES, 0);
}

std::optional<std::string> read_link(pid_t pid, const std::string &path) {
    const std::byte *shared = nullptr;
    const auto reply = ask_for(party_of(pid, path), path, {ReaderTask::Link}, &shared);
    if (!reply || reply->result < 0)
        return std::nullopt;
    return std::string(reinterpret_cast<const char *>(shared),
                       std::min(static_cast<std::size_t>(reply->result), SHARED_BYTES));
}

int open_path(pid_t pid, const std::string &path) {
    const std::byte *shared = nullptr;
    int fd = -1;
    const auto reply = ask_for(party_of(pid, path), path, {ReaderTask::OpenPath}, &shared, &fd);
    return reply && reply->result == 0 ? fd : -1;
}

std::optional<struct statx> status(pid_t pid, const std::string &path) {
    return statuses(pid, {&path, 1}).front();
}

std::vector<std::optional<struct statx>> statuses(pid_t pid, std::span<const std::string> paths) {
    std::vector<std::optional<struct statx>> all;
    all.reserve(paths.size());
    while (all.size() < paths.size()) {
        std::string joined;
        std::size_t n = 0;
        for (; all.size() + n < paths.size() &&
               joined.size() + paths[all.size() + n].size() + 1 <= SHARED_BYTES &&
               (n + 1) * sizeof(struct statx) <= SHARED_BYTES;
             ++n)
            joined.append(paths[all.size() + n]).push_back('\0');
        ReaderPool &pool = ReaderPool::instance();
        const Party party = party_of(pid, paths.front());
        ReaderHandle *reader = n == 0 ? nullptr : pool.reader_for(party);
        if (reader != nullptr)
            std::memcpy(reader->shared(), joined.data(), joined.size());
        const auto reply = reader == nullptr ? std::nullopt
                                             : pool.ask(party, {ReaderTask::Status, pid, 0, 0, n},
                                                        paths[all.size()]);
        if (!reply || reply->result != static_cast<std::int64_t>(n)) {
            all.resize(paths.size());
            break;
        }
        for (std::size_t i = 0; i < n; ++i) {
            struct statx one {};
            std::memcpy(&one, reader->shared() + i * sizeof(one), sizeof(one));
            all.push_back(one.stx_mask == 0 ? std::nullopt : std::optional{one});
        }
    }
    return all;
}

void hurry_while_readable(int fd) {
    ReaderPool::instance().hurry_while_readable(fd);
}

bool is_hurried() {
    return ReaderPool::instance().is_hurried();
}

void add_news(std::string line) {
    ReaderPool::instance().add_news(std::move(line));
}

bool answers(pid_t pid) {
    return pid == getpid() || ReaderPool::instance().answers({pid, {}});
}

void ask(std::span<const pid_t> pids) {
    ReaderPool::instance().ask_all({pids.begin(), pids.end()});
}

std::vector<Silent> silent() {
    return ReaderPool::instance().silent();
}

std::vector<std::string> take_news() {
    return ReaderPool::instance().take_news();
}

std::string text_of(const Silent &silent) {
    if (silent.pid == NO_PROCESS)
        return fmt::format("{} does not answer: it is left out. Fix: check its file system",
                           silent.what);
    return fmt::format("process {} does not answer ({}): what it does with NCCL and RDMA is not "
                       "read until it does. Fix: check its file systems, or end it",
                       silent.pid, silent.what);
}

} // namespace collwire::foreign
