// SPDX-License-Identifier: Apache-2.0
#include "userspace/nvidia/nvml_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "collwire/nvlink_records.h"
#include "userspace/inventory/files.h"
#include "userspace/nvidia/nvlink_reader.h"

namespace collwire::nvidia {
namespace {

constexpr std::size_t MAX_MESSAGE_BYTES = 64U << 10U;
constexpr int FIRST_FD = 3;
constexpr int NS_PER_MS = 1'000'000;
constexpr int MOMENT_MS = 250;

struct Head {
    std::uint32_t event;
    std::int32_t result;
    std::uint32_t gpu;
    std::uint32_t reserved;
    std::uint64_t time_ns;
};

// The recorder's probes and maps live as long as a descriptor of theirs is open.
bool close_others(int fd) {
    const int null = open("/dev/null", O_RDWR);
    if (null < 0)
        return false;
    for (int standard = 0; standard < FIRST_FD; ++standard)
        if (dup2(null, standard) < 0)
            return false;
    const std::vector<std::string> names = inventory::list_directory("/proc/self/fd");
    for (const std::string &name : names)
        if (const auto number = inventory::parse_number(name);
            number && static_cast<int>(*number) != fd && static_cast<int>(*number) >= FIRST_FD)
            close(static_cast<int>(*number));
    return !names.empty();
}

class NvmlServer {
public:
    NvmlServer(int fd, const NvmlProcess::Options &options) : fd_(fd), options_(options) {}

    void run() {
        if (auto loaded = reader_.load(options_.library); !loaded) {
            const bool is_absent = loaded.failure().kind == ErrorKind::Unsupported;
            send({static_cast<std::uint32_t>(is_absent ? NvmlEvent::Absent : NvmlEvent::Failed), 0,
                  CW_NVLINK_ALL_GPUS, 0, monotonic_ns()},
                 loaded.failure().message.data(), loaded.failure().message.size());
            return;
        }
        if (const int result = reader_.start(options_.epoch); result != nvml::SUCCESS)
            return say(NvmlEvent::Failed, CW_NVLINK_ALL_GPUS, result);
        for (const cw_nvlink_gpu &gpu : reader_.gpus())
            send_record(gpu.gpu, &gpu, sizeof gpu);
        say(NvmlEvent::Ready, CW_NVLINK_ALL_GPUS);
        std::uint64_t due_ns = monotonic_ns();
        while (wait_until(due_ns)) {
            for (std::size_t place = 0; place < reader_.gpus().size(); ++place)
                if (!read(place))
                    return;
            say(NvmlEvent::Round, CW_NVLINK_ALL_GPUS);
            due_ns = std::max(due_ns + options_.interval_ns, monotonic_ns());
        }
    }

private:
    bool read(std::size_t place) {
        const cw_nvlink_gpu &gpu = reader_.gpus()[place];
        if (gpu.links == 0 || options_.skipped.contains(gpu.gpu))
            return true;
        say(NvmlEvent::Begin, gpu.gpu);
        const bool is_first = !reader_.has_read(place);
        const NvlinkReading reading = reader_.read(place);
        std::vector<std::byte> record(reading.head.header.length_bytes);
        std::memcpy(record.data(), &reading.head, sizeof reading.head);
        if (!reading.values.empty())
            std::memcpy(record.data() + sizeof reading.head, reading.values.data(),
                        reading.values.size() * sizeof(cw_nvlink_value));
        if (is_first) // its record is whole now
            send_record(gpu.gpu, &gpu, sizeof gpu);
        send_record(gpu.gpu, record.data(), record.size());
        if (reader_.must_restart())
            say(NvmlEvent::Failed, CW_NVLINK_ALL_GPUS,
                reading.values.empty() ? nvml::UNINITIALIZED : reading.values.front().result);
        return !reader_.must_restart();
    }

    // False: the recorder has closed its end.
    [[nodiscard]] bool wait_until(std::uint64_t due_ns) const {
        for (;;) {
            const std::uint64_t now_ns = monotonic_ns();
            const int left_ms =
                now_ns >= due_ns ? 0 : static_cast<int>((due_ns - now_ns) / NS_PER_MS + 1);
            pollfd ready{fd_, POLLIN, 0};
            const int n = poll(&ready, 1, left_ms);
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                return n == 0;
            char asked = 0;
            return recv(fd_, &asked, sizeof asked, 0) > 0;
        }
    }

    void say(NvmlEvent event, std::uint32_t gpu, int result = 0) const {
        send({static_cast<std::uint32_t>(event), result, gpu, 0, monotonic_ns()}, nullptr, 0);
    }
    void send_record(std::uint32_t gpu, const void *record, std::size_t bytes) const {
        send({static_cast<std::uint32_t>(NvmlEvent::Record), 0, gpu, 0, monotonic_ns()}, record,
             bytes);
    }
    void send(const Head &head, const void *data, std::size_t bytes) const {
        std::vector<std::byte> message(std::min(sizeof head + bytes, MAX_MESSAGE_BYTES));
        std::memcpy(message.data(), &head, sizeof head);
        if (data != nullptr && message.size() > sizeof head)
            std::memcpy(message.data() + sizeof head, data, message.size() - sizeof head);
        if (::send(fd_, message.data(), message.size(), MSG_NOSIGNAL) < 0)
            _exit(1);
    }

    int fd_;
    const NvmlProcess::Options &options_;
    NvlinkReader reader_;
};

// Processes that were killed. One that can be has exited a moment later; others stay in the driver.
std::vector<pid_t> &killed_processes() {
    static std::vector<pid_t> pids;
    return pids;
}

// Waits a moment for them. False: one stays.
bool are_gone() {
    std::vector<pid_t> &pids = killed_processes();
    for (const pid_t pid : pids) {
        pollfd exited{static_cast<int>(syscall(SYS_pidfd_open, pid, 0U)), POLLIN, 0};
        if (exited.fd < 0)
            continue;
        poll(&exited, 1, MOMENT_MS);
        close(exited.fd);
    }
    std::erase_if(pids, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
    return pids.empty();
}

} // namespace

Result<void> NvmlProcess::start(const Options &options) {
    abandon();
    if (!are_gone())
        return error(ErrorKind::Failed,
                     "the process that reads NVML waits in the driver and cannot be killed. Fix: "
                     "reset the GPU, or restart the machine");
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
        return error(ErrorKind::Failed, std::string("a socket for NVML: ") + strerror(errno));
    const pid_t caller = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == caller && close_others(ends[1]))
            NvmlServer(ends[1], options).run();
        _exit(0);
    }
    const int why = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return error(ErrorKind::Failed, std::string("a process for NVML: ") + strerror(why));
    }
    fd_ = ends[0];
    pid_ = pid;
    return {};
}

std::optional<NvmlMessage> NvmlProcess::next() {
    if (fd_ < 0)
        return std::nullopt;
    std::vector<std::byte> bytes(MAX_MESSAGE_BYTES);
    const ssize_t n = recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return std::nullopt;
    if (n < static_cast<ssize_t>(sizeof(Head))) {
        abandon();
        return std::nullopt;
    }
    Head head{};
    std::memcpy(&head, bytes.data(), sizeof head);
    NvmlMessage message;
    message.event = static_cast<NvmlEvent>(head.event);
    message.result = head.result;
    message.gpu = head.gpu;
    message.time_ns = head.time_ns;
    const std::size_t size = static_cast<std::size_t>(n) - sizeof head;
    const std::byte *data = bytes.data() + sizeof head;
    if (message.event != NvmlEvent::Record) {
        message.text.assign(reinterpret_cast<const char *>(data), size);
        return message;
    }
    cw_header header{};
    if (size < sizeof header)
        return std::nullopt;
    std::memcpy(&header, data, sizeof header);
    if (header.length_bytes != size || size % sizeof(std::uint64_t) != 0)
        return std::nullopt;
    message.record.resize(size / sizeof(std::uint64_t));
    std::memcpy(message.record.data(), data, size);
    return message;
}

void NvmlProcess::wait(std::chrono::milliseconds most) const {
    pollfd ready{fd_, POLLIN, 0};
    if (fd_ >= 0)
        poll(&ready, 1, static_cast<int>(most.count()));
}

void NvmlProcess::ask_now() const {
    const char now = 'R';
    if (fd_ >= 0)
        (void)send(fd_, &now, sizeof now, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void NvmlProcess::abandon() {
    if (fd_ < 0)
        return;
    close(fd_);
    fd_ = -1;
    kill(pid_, SIGKILL);
    killed_processes().push_back(pid_);
}

} // namespace collwire::nvidia
