// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/library/reader_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "userspace/foreign/foreign.h"
#include "userspace/inventory/files.h"

namespace collwire::nccl {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr rlim_t MAX_MEMORY_BYTES = 1UL << 30;
constexpr std::size_t MAX_ANSWER_BYTES = 16UL << 20;
constexpr std::size_t MAX_PROC_BYTES = 4UL << 20;
constexpr unsigned NOBODY = 65534;
constexpr char OPENED = '.';
constexpr milliseconds AFTER_KILL{200};
constexpr milliseconds HURRIED{50};
constexpr milliseconds::rep LOOK_AGAIN = 100; // whether there is a hurry
// Readers that cannot be killed: they wait for a file system.
constexpr std::size_t MAX_STUCK = 64;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool HAS_SHADOW = true; // terabytes of it
#else
constexpr bool HAS_SHADOW = false;
#endif

void limit(decltype(RLIMIT_CPU) what, rlim_t most) {
    const rlimit value{most, most};
    (void)setrlimit(what, &value);
}

// The memory that it inherits from the caller counts, too.
rlim_t private_bytes() {
    const auto text = inventory::read_file("/proc/self/statm", inventory::small_file_bytes);
    if (!text)
        return 0;
    // size resident shared text lib data dt
    std::string_view rest{*text};
    for (int i = 0; i < 5; ++i)
        rest.remove_prefix(std::min(rest.find(' ') + 1, rest.size()));
    rlim_t pages = 0;
    (void)std::from_chars(rest.data(), rest.data() + rest.size(), pages);
    return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

void limit_resources(std::chrono::seconds cpu) {
    limit(RLIMIT_CPU, static_cast<rlim_t>(cpu.count()));
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_NPROC, 0);
    if (!HAS_SHADOW)
        limit(RLIMIT_DATA, private_bytes() + MAX_MEMORY_BYTES);
}

// Probes and maps live as long as a descriptor of theirs is open. close_range() came with Linux
// 5.9.
bool close_all_but(int fd) {
    const std::vector<std::string> open = inventory::list_directory("/proc/self/fd");
    for (const std::string &name : open) {
        int number = -1;
        const auto read = std::from_chars(name.data(), name.data() + name.size(), number);
        if (read.ec != std::errc{})
            return false;
        // The list's own is closed already.
        if (number != fd && close(number) != 0 && errno != EBADF)
            return false;
    }
    return !open.empty();
}

// Ring buffers and tables that the kernel shares with the caller.
bool let_go_of_shared_memory() {
    const auto maps = inventory::read_file("/proc/self/maps", MAX_PROC_BYTES);
    if (!maps)
        return false;
    for (std::string_view rest{*maps}; !rest.empty();
         rest.remove_prefix(std::min(rest.find('\n') + 1, rest.size()))) {
        const std::string_view line = rest.substr(0, rest.find('\n'));
        std::uint64_t begin = 0;
        std::uint64_t end = 0;
        const char *last = line.data() + line.size();
        const auto first = std::from_chars(line.data(), last, begin, 16);
        if (first.ec != std::errc{} || first.ptr == last)
            return false;
        const auto second = std::from_chars(first.ptr + 1, last, end, 16);
        const std::string_view rights{second.ptr, static_cast<std::size_t>(last - second.ptr)};
        if (rights.starts_with(" ") && rights.size() > 4 && rights[2] == 'w' && rights[4] == 's' &&
            // A mapping of this process. NOLINTNEXTLINE(performance-no-int-to-ptr)
            munmap(reinterpret_cast<void *>(begin), end - begin) != 0)
            return false;
        if (line.size() == rest.size())
            break;
    }
    return true;
}

bool drop_capabilities() {
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
    return syscall(SYS_capset, &header, none.data()) == 0;
}

// A file that takes over the reader gets nothing of the caller.
bool give_up_privileges() {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return false;
    if (geteuid() == 0 && (setgroups(0, nullptr) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 ||
                           setresuid(NOBODY, NOBODY, NOBODY) != 0))
        return false;
    return drop_capabilities();
}

// If the caller dies, the reader exits.
bool end_with(pid_t caller) {
    return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == caller;
}

bool read_files(std::span<const std::string> paths, const ReaderTimes &times,
                const ReaderWork &work, int fd, pid_t caller) {
    limit_resources(times.cpu);
    if (!end_with(caller) || !close_all_but(fd) || !let_go_of_shared_memory())
        return false;
    std::vector<Result<elf::FileBytes>> files;
    files.reserve(paths.size());
    for (const std::string &path : paths) {
        files.push_back(elf::FileBytes::open(path));
        write_all(fd, {&OPENED, 1});
    }
    // A change of user clears the parent death signal.
    if (!give_up_privileges() || !end_with(caller))
        return false;
    work(fd, files);
    return true;
}

std::vector<pid_t> &stuck_readers() {
    static std::vector<pid_t> pids;
    std::erase_if(pids, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
    return pids;
}

std::string end_of(int status) {
    if (WIFSIGNALED(status))
        return fmt::format("its reader was ended by signal {} ({})", WTERMSIG(status),
                           strsignal(WTERMSIG(status)));
    return WEXITSTATUS(status) == 0 ? std::string{} : "its reader could not start";
}

// The fields of /proc/PID/stat that change as a process makes progress: state, page faults, CPU
// time.
struct Activity {
    char state = 0;
    std::string counts;
};

Activity activity_of(pid_t pid) {
    constexpr int MINOR_FAULTS = 7; // proc(5), from the state on; major ones, user and system time
    constexpr int SYSTEM_TIME = 12;
    const auto text = inventory::read_file(fmt::format("/proc/{}/stat", pid), MAX_PROC_BYTES);
    const std::size_t name_end = text ? text->rfind(") ") : std::string::npos;
    Activity now;
    if (name_end == std::string::npos)
        return now;
    std::string_view rest = std::string_view{*text}.substr(name_end + 2);
    for (int field = 0; field <= SYSTEM_TIME && !rest.empty(); ++field) {
        const std::string_view value = rest.substr(0, rest.find(' '));
        if (field == 0)
            now.state = value.empty() ? '\0' : value[0];
        if (field >= MINOR_FAULTS)
            now.counts.append(value).append(1, ' ');
        rest.remove_prefix(std::min(value.size() + 1, rest.size()));
    }
    return now;
}

class LibraryReader {
public:
    LibraryReader(pid_t pid, int fd)
        : pid_(pid), fd_(fd), process_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0U))) {}
    LibraryReader(const LibraryReader &) = delete;
    LibraryReader &operator=(const LibraryReader &) = delete;
    ~LibraryReader() {
        close(fd_);
        if (process_ >= 0)
            close(process_);
    }

    ReaderAnswer listen(std::size_t n_files, const ReaderTimes &times) {
        const auto end = steady_clock::now() + times.all;
        auto heard = steady_clock::now();
        bool ended = false;
        while (process_ >= 0 && !ended && text_.size() < MAX_ANSWER_BYTES) {
            const auto silence = foreign::is_hurried() ? HURRIED : times.silence;
            const auto until = std::min({end, heard + silence});
            const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now()).count();
            if (left <= 0) {
                is_silent_ = until != end;
                break;
            }
            // It may close its end and keep running.
            ended = wait(static_cast<int>(std::min(left, LOOK_AGAIN)));
            if (read_what_is_there() || gets_on())
                heard = steady_clock::now();
        }
        ReaderAnswer answer;
        answer.ran = true;
        answer.in_time = ended;
        answer.problem = ended ? reap() : stop();
        answer.is_silent = is_silent_;
        answer.is_cut = is_cut_;
        for (; answer.n_opened < std::min(n_files, text_.size()); ++answer.n_opened)
            if (text_[answer.n_opened] != OPENED)
                break;
        answer.text = text_.substr(answer.n_opened);
        return answer;
    }

private:
    // True: it has exited.
    bool wait(int most_ms) {
        std::array<pollfd, 2> on{{{process_, POLLIN, 0}, {closed_ ? -1 : fd_, POLLIN, 0}}};
        return poll(on.data(), on.size(), most_ms) > 0 && on[0].revents != 0;
    }

    // It reads from a slow disk, or waits for a CPU while the threads of a job spin on all of them.
    bool gets_on() {
        Activity now = activity_of(pid_);
        const bool moved = now.state == 'R' || now.counts != last_.counts;
        last_ = std::move(now);
        return moved;
    }

    bool read_what_is_there() {
        std::array<char, 65536> part{};
        const std::size_t before = text_.size();
        while (!closed_ && text_.size() < MAX_ANSWER_BYTES) {
            const ssize_t n = read(fd_, part.data(), part.size());
            if (n < 0 && errno == EINTR)
                continue;
            closed_ = n == 0 || (n < 0 && errno != EAGAIN);
            if (n <= 0)
                break;
            text_.append(part.data(), static_cast<std::size_t>(n));
        }
        return text_.size() != before;
    }

    std::string reap() {
        int status = 0;
        while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
        }
        // At the limit of its CPU time the kernel sends SIGKILL.
        is_cut_ = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        return end_of(status);
    }

    std::string stop() {
        kill(pid_, SIGKILL);
        closed_ = true; // later output is not waited for
        const milliseconds after = foreign::is_hurried() ? HURRIED : AFTER_KILL;
        if (wait(static_cast<int>(after.count())))
            (void)reap();
        else {
            stuck_readers().push_back(pid_);
            is_silent_ = true;
        }
        return "its reader did not end in time";
    }

    pid_t pid_;
    int fd_;
    int process_;
    bool closed_ = false;
    bool is_silent_ = false;
    bool is_cut_ = false;
    Activity last_;
    std::string text_;
};

} // namespace

void write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = write(fd, text.data(), text.size());
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        text.remove_prefix(static_cast<std::size_t>(n));
    }
}

ReaderAnswer ask_reader(std::span<const std::string> paths, const ReaderTimes &times,
                        const ReaderWork &work) {
    const auto no_process = [](const std::string &why) {
        ReaderAnswer answer;
        answer.problem = "a process: " + why;
        return answer;
    };
    if (stuck_readers().size() >= MAX_STUCK)
        return no_process(fmt::format("{} wait for files that cannot be read", MAX_STUCK));
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        return no_process(std::strerror(errno));
    const pid_t caller = getpid();
    const pid_t pid = fork();
    if (pid == 0)
        _exit(read_files(paths, times, work, ends[1], caller) ? 0 : 1);
    const int why = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return no_process(std::strerror(why));
    }
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return LibraryReader{pid, ends[0]}.listen(paths.size(), times);
}

} // namespace collwire::nccl
