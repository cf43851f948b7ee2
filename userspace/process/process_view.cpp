// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/process_view.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "userspace/foreign/foreign.h"
#include "userspace/inventory/files.h"

namespace collwire::process {
namespace {

constexpr std::size_t MAX_MAPS_BYTES = 64 << 20;

Error file_error(const std::string &what) {
    const int code = errno;
    return error(code == EACCES || code == EPERM ? ErrorKind::NotPermitted : ErrorKind::Failed,
                 fmt::format("{}: {}", what, std::strerror(code)));
}

bool take_number(std::string_view &text, std::uint64_t &value, int base) {
    const auto [end, problem] =
        std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (problem != std::errc{}) {
        return false;
    }
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
}

bool take(std::string_view &text, char expected) {
    if (text.empty() || text.front() != expected) {
        return false;
    }
    text.remove_prefix(1);
    return true;
}

std::optional<Mapping> parse_line(std::string_view line) {
    Mapping mapping;
    if (!take_number(line, mapping.begin, 16) || !take(line, '-') ||
        !take_number(line, mapping.end, 16) || !take(line, ' ') || line.size() < 5) {
        return std::nullopt;
    }
    mapping.executable = line[2] == 'x';
    mapping.writable = line[1] == 'w';
    line.remove_prefix(5);
    std::uint64_t major = 0;
    std::uint64_t minor = 0;
    if (!take_number(line, mapping.file_offset, 16) || !take(line, ' ') ||
        !take_number(line, major, 16) || !take(line, ':') || !take_number(line, minor, 16) ||
        !take(line, ' ') || !take_number(line, mapping.inode, 10) || mapping.end < mapping.begin) {
        return std::nullopt;
    }
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (line.starts_with('/')) {
        mapping.path = line;
    }
    mapping.is_heap = line == "[heap]";
    return mapping;
}

std::int64_t ns_of(const statx_timestamp &time) {
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

std::optional<FileStatus> status_from(const struct statx &got) {
    if (!S_ISREG(got.stx_mode)) {
        return std::nullopt;
    }
    return FileStatus{
        {makedev(got.stx_dev_major, got.stx_dev_minor), got.stx_ino, ns_of(got.stx_mtime)},
        got.stx_size,
        ns_of(got.stx_ctime),
        got.stx_nlink};
}

std::optional<FileStatus> status_from(const std::optional<struct statx> &got) {
    return got ? status_from(*got) : std::nullopt;
}

std::string exact_path(pid_t pid, const Mapping &mapping) {
    return fmt::format("/proc/{}/map_files/{:x}-{:x}", pid, mapping.begin, mapping.end);
}

std::string named_path(pid_t pid, const Mapping &mapping) {
    return fmt::format("/proc/{}/root{}", pid, mapping.path);
}

bool holds_uverbs(const std::filesystem::path &fd_folder) {
    std::error_code problem;
    for (std::filesystem::directory_iterator entry{fd_folder, problem}, end;
         !problem && entry != end; entry.increment(problem)) {
        std::error_code gone;
        const auto target = std::filesystem::read_symlink(entry->path(), gone);
        if (!gone && target.native().starts_with("/dev/infiniband/uverbs")) {
            return true;
        }
    }
    return false;
}

} // namespace

MappedFile::MappedFile(MappedFile &&other) noexcept
    : fd_(std::exchange(other.fd_, -1)), device_(other.device_), inode_(other.inode_),
      changed_(other.changed_) {}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
    if (this != &other) {
        if (fd_ >= 0) {
            ::close(fd_);
        }
        fd_ = std::exchange(other.fd_, -1);
        device_ = other.device_;
        inode_ = other.inode_;
        changed_ = other.changed_;
    }
    return *this;
}

MappedFile::~MappedFile() {
    if (fd_ >= 0) {
        ::close(fd_);
    }
}

Result<MappedFile> MappedFile::from_fd(int fd, const std::string &what) {
    if (fd < 0) {
        return file_error(what);
    }
    MappedFile file;
    file.fd_ = fd;
    struct stat status {};
    if (fstat(fd, &status) != 0) {
        return file_error(what);
    }
    if (!S_ISREG(status.st_mode)) {
        return error(ErrorKind::BadInput, fmt::format("{}: not a regular file", what));
    }
    file.device_ = status.st_dev;
    file.inode_ = status.st_ino;
    file.changed_ = status.st_mtim;
    return file;
}

Result<MappedFile> MappedFile::open(const std::string &path) {
    return from_fd(foreign::open_path(foreign::NO_PROCESS, path), path);
}

Result<MappedFile> MappedFile::open(pid_t pid, const Mapping &mapping) {
    const std::string exact = exact_path(pid, mapping);
    if (const int fd = foreign::open_path(pid, exact); fd >= 0) {
        return from_fd(fd, exact);
    }
    // map_files needs CAP_SYS_ADMIN. The name may lead to another file by now: compare.
    const std::string named = named_path(pid, mapping);
    auto file = from_fd(foreign::open_path(pid, named), named);
    if (file && file->inode() != mapping.inode) {
        return error(ErrorKind::Failed,
                     fmt::format("{}: was replaced after process {} mapped it", named, pid));
    }
    return file;
}

std::optional<FileStatus> MappedFile::status() const {
    struct statx got {};
    // The file is open: its server is not asked.
    if (::statx(fd_, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &got) != 0) {
        return std::nullopt;
    }
    return status_from(got);
}

std::string MappedFile::path_of(pid_t pid, const Mapping &mapping) {
    std::string exact = exact_path(pid, mapping);
    return status_from(foreign::status(pid, exact)) ? exact : named_path(pid, mapping);
}

std::string MappedFile::own_path() const {
    return fmt::format("/proc/{}/fd/{}", getpid(), fd_);
}

std::optional<FileStatus> status_of(const std::string &path) {
    return status_from(foreign::status(foreign::NO_PROCESS, path));
}

std::optional<FileStatus> status_of(pid_t pid, const Mapping &mapping) {
    return statuses_of(pid, {&mapping, 1}).front();
}

std::vector<std::optional<FileStatus>> statuses_of(pid_t pid, std::span<const Mapping> mappings) {
    std::vector<std::string> paths;
    paths.reserve(mappings.size());
    for (const Mapping &mapping : mappings) {
        paths.push_back(exact_path(pid, mapping));
    }
    std::vector<std::optional<FileStatus>> all;
    all.reserve(mappings.size());
    for (const auto &got : foreign::statuses(pid, paths)) {
        all.push_back(status_from(got));
    }
    // map_files needs a privilege.
    std::vector<std::size_t> missing;
    paths.clear();
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (!all[i] && !mappings[i].path.empty()) {
            missing.push_back(i);
            paths.push_back(named_path(pid, mappings[i]));
        }
    }
    const auto named = foreign::statuses(pid, paths);
    for (std::size_t k = 0; k < missing.size(); ++k) {
        auto status = status_from(named[k]);
        if (status && status->identity.inode == mappings[missing[k]].inode) {
            all[missing[k]] = status;
        }
    }
    return all;
}

std::vector<Mapping> executable_files(std::span<const Mapping> mappings) {
    std::vector<Mapping> files;
    std::ranges::copy_if(mappings, std::back_inserter(files), [](const Mapping &mapping) {
        return mapping.executable && mapping.inode != 0 && !mapping.path.empty();
    });
    return files;
}

std::vector<Mapping> parse_maps(std::string_view text) {
    std::vector<Mapping> mappings;
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        if (auto mapping = parse_line(text.substr(0, end))) {
            mappings.push_back(std::move(*mapping));
        }
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return mappings;
}

bool ProcessView::read(std::uint64_t address, std::span<std::byte> into) const {
    return foreign::read_memory(pid_, address, into);
}

std::size_t ProcessView::read_words(std::span<const std::uint64_t> addresses,
                                    std::span<std::uint64_t> into) const {
    return foreign::read_words(pid_, addresses, into);
}

const Mapping *ProcessView::mapping_of(std::uint64_t address) const {
    const auto found = std::ranges::find_if(mappings_, [address](const Mapping &mapping) {
        return address >= mapping.begin && address < mapping.end;
    });
    return found == mappings_.end() ? nullptr : &*found;
}

Result<void> ProcessView::refresh() {
    const std::string path = fmt::format("/proc/{}/maps", pid_);
    // Not an ifstream: its buffer throws if the process exits while it is read.
    const auto text = foreign::read_file(pid_, path, MAX_MAPS_BYTES);
    mappings_ = parse_maps(text ? *text : std::string{});
    if (!text) {
        return text.failure();
    }
    if (mappings_.empty()) {
        return error(ErrorKind::Failed, path + ": the process exited");
    }
    return {};
}

bool ProcessView::uses_rdma() const {
    return holds_uverbs(fmt::format("/proc/{}/fd", pid_));
}

std::vector<pid_t> all_processes() {
    std::vector<pid_t> pids;
    std::error_code problem;
    for (std::filesystem::directory_iterator entry{"/proc", problem}, end; !problem && entry != end;
         entry.increment(problem)) {
        const std::string name = entry->path().filename();
        pid_t pid = 0;
        const auto [rest, bad] = std::from_chars(name.data(), name.data() + name.size(), pid);
        if (bad == std::errc{} && rest == name.data() + name.size()) {
            pids.push_back(pid);
        }
    }
    std::ranges::sort(pids);
    return pids;
}

std::vector<pid_t> rdma_processes() {
    auto pids = all_processes();
    std::erase_if(pids, [](pid_t pid) { return !ProcessView{pid}.uses_rdma(); });
    return pids;
}

namespace {

// proc(5): "pid (comm) state ppid ...", comm may hold anything.
struct ProcessStat {
    char state = 0;
    std::uint64_t n_threads = 0;   // field 20
    std::uint64_t start_ticks = 0; // field 22
};

std::optional<ProcessStat> read_stat(pid_t pid) {
    const auto text =
        inventory::read_file(fmt::format("/proc/{}/stat", pid), inventory::small_file_bytes);
    const auto comm_end = text ? text->rfind(')') : std::string::npos;
    if (comm_end == std::string::npos)
        return std::nullopt;
    std::istringstream fields{text->substr(comm_end + 1)};
    std::string skipped;
    ProcessStat stat;
    fields >> stat.state;
    for (int field = 4; field < 20; ++field)
        fields >> skipped;
    fields >> stat.n_threads >> skipped >> stat.start_ticks;
    return fields ? std::optional{stat} : std::nullopt;
}

} // namespace

std::optional<std::uint64_t> start_ticks(pid_t pid) {
    const auto stat = read_stat(pid);
    return stat ? std::optional{stat->start_ticks} : std::nullopt;
}

std::optional<pid_t> process_of_thread(pid_t tid) {
    constexpr std::string_view FIELD = "\nTgid:\t";
    const auto text =
        inventory::read_file(fmt::format("/proc/{}/status", tid), inventory::small_file_bytes);
    const auto at = text ? text->find(FIELD) : std::string::npos;
    if (at == std::string::npos)
        return std::nullopt;
    const std::string_view digits = std::string_view{*text}.substr(at + FIELD.size());
    pid_t pid = 0;
    const auto [rest, bad] = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
    return bad == std::errc{} ? std::optional{pid} : std::nullopt;
}

bool has_ended(pid_t pid, std::uint64_t ticks) {
    const auto stat = read_stat(pid);
    // The first thread of a process may exit before the others.
    return !stat || stat->start_ticks != ticks || (stat->state == 'Z' && stat->n_threads <= 1);
}

bool is_provider_name(std::string_view path) {
    // Drivers with a public interface of their own are ordinary versioned libraries.
    constexpr std::string_view VERSIONED[] = {"libmlx4.so",   "libmlx5.so", "libefa.so",
                                              "libhns.so",    "libmana.so", "libionic.so",
                                              "libbnxt_re.so"};
    const auto slash = path.rfind('/');
    const auto name = slash == std::string_view::npos ? path : path.substr(slash + 1);
    if (!name.starts_with("lib")) {
        return false;
    }
    return name.find("-rdmav") != std::string_view::npos ||
           std::ranges::any_of(VERSIONED, [name](auto known) { return name.starts_with(known); });
}

} // namespace collwire::process
