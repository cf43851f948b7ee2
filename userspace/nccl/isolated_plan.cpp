// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "userspace/code/file_bytes.h"
#include "userspace/nccl/file_plan.h"
#include "userspace/nccl/find_nccl.h"

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

bool defines_nccl(const FileBytes &file) {
    const auto library = LibraryFile::parse(file.bytes());
    if (!library)
        return false;
    constexpr std::array<std::string_view, 1> NAME{"ncclAllReduce"};
    const auto symbols = library->find(NAME);
    return std::ranges::any_of(symbols, [](const auto &symbol) { return symbol.second.function; });
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

// What `answer` writes into the pipe that it is given, in a process without privileges.
struct Answer {
    std::string text;
    int status = 0;  // of waitpid
    int problem = 0; // errno: there was no process
};

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

template <typename Function> Answer ask_child(const Function &answer) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        return {{}, 0, errno};
    const pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        // A caller that died leaves nobody to read.
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (!give_up_privileges())
            _exit(1);
        answer(ends[1]);
        _exit(0);
    }
    const int why = errno;
    close(ends[1]);
    Answer result;
    if (pid > 0)
        result.text = read_all(ends[0]);
    close(ends[0]);
    if (pid < 0) {
        result.problem = why;
        return result;
    }
    while (waitpid(pid, &result.status, 0) < 0 && errno == EINTR) {
    }
    return result;
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
    const Answer answer = ask_child([&file](int fd) { write_all(fd, answer_of(*file)); });
    if (answer.problem != 0)
        return error(ErrorKind::Failed,
                     fmt::format("a process: {}", std::strerror(answer.problem)));
    if (answer.text.starts_with('P')) {
        auto plan = parse_plan(std::string_view{answer.text}.substr(1));
        if (!plan)
            return std::move(plan).failure().in(path);
        plan->file = path;
        return plan;
    }
    if (answer.text.size() > 2 && answer.text[0] == 'E')
        return error(static_cast<ErrorKind>(answer.text[1] - '0'),
                     fmt::format("{}: {}", path, answer.text.substr(2)));
    return error(ErrorKind::BadInput,
                 fmt::format("{}: {}: not NCCL, or damaged. Fix: name another copy", path,
                             end_of(answer.status)));
}

std::vector<bool> define_nccl(std::span<const std::string> paths) {
    std::vector<bool> found(paths.size(), false);
    std::vector<std::optional<FileBytes>> files;
    files.reserve(paths.size());
    for (const std::string &path : paths) {
        auto file = FileBytes::open(path);
        const bool large = file && file->bytes().size() >= LEAST_FILE_BYTES;
        files.push_back(large ? std::optional{std::move(*file)} : std::nullopt);
    }
    // A file that ends its reader is not NCCL; a new reader goes on behind it.
    for (std::size_t next = 0; next < files.size();) {
        const Answer answer = ask_child([&files, next](int fd) {
            for (std::size_t i = next; i < files.size(); ++i)
                write_all(fd, files[i] && defines_nccl(*files[i]) ? "1" : "0");
        });
        if (answer.problem != 0)
            return found;
        for (std::size_t i = 0; i < answer.text.size() && next + i < files.size(); ++i)
            found[next + i] = answer.text[i] == '1';
        next += answer.text.size() + 1;
    }
    return found;
}

} // namespace collwire::nccl
