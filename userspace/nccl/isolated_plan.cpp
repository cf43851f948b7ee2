// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "userspace/code/file_bytes.h"
#include "userspace/nccl/file_plan.h"

namespace collwire::nccl {
namespace {

// Ten times what the largest official build takes, and more.
constexpr rlim_t MAX_CPU_S = 10;
constexpr rlim_t MAX_MEMORY_BYTES = 1UL << 30;
constexpr std::size_t MAX_ANSWER_BYTES = 16UL << 20;
constexpr unsigned NOBODY = 65534;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool HAS_SHADOW = true; // terabytes of it
#else
constexpr bool HAS_SHADOW = false;
#endif

void limit(decltype(RLIMIT_CPU) what, rlim_t most) {
    const rlimit value{most, most};
    (void)setrlimit(what, &value);
}

// Whoever rules the reader through the file then has nothing that the caller had.
bool give_up_privileges() {
    limit(RLIMIT_CPU, MAX_CPU_S);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_NPROC, 0);
    if (!HAS_SHADOW)
        limit(RLIMIT_DATA, MAX_MEMORY_BYTES);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return false;
    if (geteuid() != 0)
        return true;
    return setgroups(0, nullptr) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
           setresuid(NOBODY, NOBODY, NOBODY) == 0;
}

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

// "P" and the plan, or "E", the kind of the error, and its message.
std::string answer_of(const FileBytes &file) {
    const auto library = LibraryFile::parse(file.bytes());
    if (!library)
        return fmt::format("E{}{}", static_cast<int>(library.failure().kind),
                           library.failure().message);
    const auto plan = make_plan(*library);
    if (!plan)
        return fmt::format("E{}{}", static_cast<int>(plan.failure().kind), plan.failure().message);
    return "P" + render_json(*plan, "");
}

[[noreturn]] void child(const FileBytes &file, int fd) {
    // A caller that died leaves nobody to read.
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!give_up_privileges())
        _exit(1);
    write_all(fd, answer_of(file));
    _exit(0);
}

std::string read_all(int fd) {
    std::string text;
    std::array<char, 65536> part{};
    while (text.size() < MAX_ANSWER_BYTES) {
        const ssize_t n = read(fd, part.data(), part.size());
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        text.append(part.data(), static_cast<std::size_t>(n));
    }
    return text;
}

std::string end_of(int status) {
    if (WIFSIGNALED(status))
        return fmt::format("its reader was ended by signal {} ({})", WTERMSIG(status),
                           strsignal(WTERMSIG(status)));
    return "its reader could not start";
}

} // namespace

Result<Plan> plan_of_file(const std::string &path) {
    const auto file = FileBytes::open(path);
    if (!file)
        return file.failure();
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        return error(ErrorKind::Failed, fmt::format("a pipe: {}", std::strerror(errno)));
    const pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        child(*file, ends[1]);
    }
    const int why = errno;
    close(ends[1]);
    const std::string answer = pid < 0 ? std::string{} : read_all(ends[0]);
    close(ends[0]);
    if (pid < 0)
        return error(ErrorKind::Failed, fmt::format("a process: {}", std::strerror(why)));
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (answer.starts_with('P')) {
        auto plan = parse_plan(std::string_view{answer}.substr(1));
        if (!plan)
            return std::move(plan).failure().in(path);
        plan->file = path;
        return plan;
    }
    if (answer.size() > 2 && answer[0] == 'E')
        return error(static_cast<ErrorKind>(answer[1] - '0'),
                     fmt::format("{}: {}", path, answer.substr(2)));
    return error(
        ErrorKind::BadInput,
        fmt::format("{}: {}: not NCCL, or damaged. Fix: name another copy", path, end_of(status)));
}

} // namespace collwire::nccl
