// SPDX-License-Identifier: Apache-2.0
#include "userspace/foreign/reader_pool.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "userspace/foreign/mailbox.h"
#include "userspace/foreign/stillness.h"

namespace collwire::foreign {
namespace {

constexpr std::uint64_t NS_PER_MS = 1'000'000;
// Without progress of the reader. An answer takes 20 us, and some ms where every CPU is busy.
constexpr std::uint64_t FIRST_PATIENCE_NS = 400 * NS_PER_MS;
constexpr std::uint64_t LEAST_PATIENCE_NS = 50 * NS_PER_MS;
constexpr std::size_t PATIENCE_HALVES_EVERY = 4; // parties that do not answer
// With progress: it reads from a slow disk, or gets no CPU.
constexpr std::uint64_t LONGEST_NS = 5'000 * NS_PER_MS;
constexpr int LOOK_AGAIN_MS = 25;
constexpr std::uint64_t LONGEST_LOOK_NS = LOOK_AGAIN_MS * NS_PER_MS;
constexpr std::size_t MAX_IDLE = 8;
// Readers that ask_all() uses: as many as stay idle, and more where none of them answers at once.
constexpr std::size_t FEW_AT_ONCE = MAX_IDLE;
constexpr std::size_t MOST_AT_ONCE = 32;
constexpr int AT_ONCE_MS = 5;
// Readers that are left waiting, and so notice at once that their party answers again.
constexpr std::size_t MAX_WAITING = 32;
// Killed readers that the kernel does not let go.
constexpr std::size_t MAX_STUCK = 64;
constexpr std::uint64_t FIRST_PAUSE_NS = 15'000 * NS_PER_MS;
constexpr std::uint64_t LONGEST_PAUSE_NS = 600'000 * NS_PER_MS;
constexpr std::size_t MAX_NEWS = 8; // a minute
constexpr std::uint64_t NEWS_NS = 60'000 * NS_PER_MS;

// Of proc(5); 0: no such process. The file answers even if the process's memory does not.
std::uint64_t start_ticks_of(pid_t pid) {
    if (pid == NO_PROCESS)
        return 1;
    std::array<char, 1024> text{};
    const std::string path = fmt::format("/proc/{}/stat", pid);
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t n = file < 0 ? -1 : read(file, text.data(), text.size() - 1);
    if (file >= 0)
        close(file);
    const char *at = n > 0 ? std::strrchr(text.data(), ')') : nullptr;
    if (at == nullptr)
        return 0;
    for (int field = 2; field < 22 && at != nullptr; ++field)
        at = std::strchr(at + 1, ' ');
    return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

bool send_request(const ReaderHandle &reader, const ReaderRequest &request) {
    reader.mailbox().wake();
    return send_message(reader.socket(), &request, sizeof(request));
}

bool is_readable(int socket, int wait_ms) {
    pollfd answered{socket, POLLIN, 0};
    return poll(&answered, 1, wait_ms) > 0;
}

} // namespace

ReaderPool &ReaderPool::instance() {
    static pid_t owner = getpid();
    static auto *pool = new ReaderPool; // it outlives everything: a reader may never end
    if (owner != getpid()) {            // a fork: the readers are its parent's
        owner = getpid();
        pool = new ReaderPool;
    }
    return *pool;
}

std::unique_ptr<ReaderHandle> ReaderPool::take_idle() {
    while (!idle_.empty()) {
        auto reader = std::move(idle_.back());
        idle_.pop_back();
        if (!reader->has_exited())
            return reader;
    }
    return spawn_reader();
}

bool ReaderPool::is_hurried() const {
    return hurry_fd_ >= 0 && is_readable(hurry_fd_, 0);
}

std::uint64_t ReaderPool::patience_ns() const {
    if (is_hurried())
        return LEAST_PATIENCE_NS;
    const std::size_t halves = silences_.size() / PATIENCE_HALVES_EVERY;
    return std::max(LEAST_PATIENCE_NS, FIRST_PATIENCE_NS >> std::min<std::size_t>(halves, 8));
}

std::size_t ReaderPool::n_waiting() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        silences_, [](const auto &entry) { return entry.second.waiting != nullptr; }));
}

void ReaderPool::add_news(std::string line) {
    const std::uint64_t now_ns = monotonic_ns();
    if (now_ns - news_since_ns_ >= NEWS_NS) {
        news_since_ns_ = now_ns;
        n_news_ = 0;
    }
    if (++n_news_ <= MAX_NEWS)
        news_.push_back(std::move(line));
    else if (n_news_ == MAX_NEWS + 1)
        news_.emplace_back("more processes do not answer, or answer again: they are not named for "
                           "a minute");
}

void ReaderPool::note_silence(const Party &party, const std::string &what,
                              std::unique_ptr<ReaderHandle> reader) {
    const auto [entry, is_new] = silences_.try_emplace(party);
    Silence &silence = entry->second;
    silence.what = what;
    silence.start_ticks = start_ticks_of(party.pid);
    silence.pause_ns = is_new ? FIRST_PAUSE_NS : std::min(silence.pause_ns * 2, LONGEST_PAUSE_NS);
    silence.again_ns = monotonic_ns() + silence.pause_ns;
    if (n_waiting() < MAX_WAITING)
        silence.waiting = std::move(reader);
    else if (!reader->kill())
        stuck_.push_back(std::move(reader));
    if (is_new && (party.pid == NO_PROCESS || party.path.empty()))
        add_news(text_of({party.pid, what}));
}

void ReaderPool::note_answer(const Party &party, std::unique_ptr<ReaderHandle> reader) {
    if (reader && idle_.size() < MAX_IDLE)
        idle_.push_back(std::move(reader));
    if (silences_.erase(party) != 0)
        add_news(party.pid == NO_PROCESS ? fmt::format("{} answers again", party.path)
                                         : fmt::format("process {} answers again", party.pid));
}

bool ReaderPool::is_over(const Party &party, Silence &silence) {
    const std::uint64_t ticks = start_ticks_of(party.pid);
    if (ticks != silence.start_ticks) { // it has exited
        if (silence.waiting && !silence.waiting->kill())
            stuck_.push_back(std::move(silence.waiting));
        silences_.erase(party);
        return true;
    }
    if (silence.waiting) {
        if (silence.waiting->has_exited()) {
            silence.waiting.reset();
            return false;
        }
        if (!is_readable(silence.waiting->socket(), 0))
            return false;
        ReaderReply reply;
        std::array<int, 2> fds{-1, -1};
        (void)receive_message(silence.waiting->socket(), &reply, sizeof(reply), fds.data(), 0);
        if (fds[0] >= 0)
            close(fds[0]);
        note_answer(party, std::move(silence.waiting));
        return true;
    }
    return false;
}

bool ReaderPool::answers(const Party &party) {
    const auto found = silences_.find(party);
    return found == silences_.end() || is_over(party, found->second) ||
           (!found->second.waiting && monotonic_ns() >= found->second.again_ns);
}

std::vector<Silent> ReaderPool::silent() {
    std::vector<Party> parties;
    for (const auto &[party, silence] : silences_)
        parties.push_back(party);
    std::vector<Silent> all;
    for (const Party &party : parties)
        if (Silence &silence = silences_.find(party)->second;
            !is_over(party, silence) && (party.pid == NO_PROCESS || party.path.empty()))
            all.push_back({party.pid, silence.what});
    return all;
}

ReaderHandle *ReaderPool::reader_for(const Party &party) {
    if (!answers(party)) {
        errno = ETIMEDOUT;
        return nullptr;
    }
    std::erase_if(stuck_, [](const auto &reader) { return reader->has_exited(); });
    if (stuck_.size() >= MAX_STUCK) {
        if (!std::exchange(was_refused_, true))
            news_.push_back(fmt::format("{} readers wait for what no signal ends: no process is "
                                        "read any more. Fix: end the processes named before",
                                        MAX_STUCK));
        errno = EAGAIN;
        return nullptr;
    }
    auto reader = take_idle();
    if (!reader) {
        errno = EAGAIN;
        return nullptr;
    }
    idle_.push_back(std::move(reader));
    return idle_.back().get();
}

void ReaderPool::note_reply(const Party &party, const ReaderReply &reply) {
    if (!silences_.empty() && silences_.contains(party))
        note_answer(party, nullptr);
    errno = static_cast<int>(reply.error_number);
}

std::optional<ReaderReply> ReaderPool::ask(const Party &party, const ReaderRequest &request,
                                           const std::string &what, int *fd) {
    // The one that reader_for() returned.
    auto reader = std::move(idle_.back());
    idle_.pop_back();
    ReaderReply reply;
    // A descriptor comes over the socket.
    const bool is_mail = fd == nullptr && reader->mailbox().ask(request);
    if (is_mail && reader->mailbox().wait(reply)) {
        note_reply(party, reply);
        idle_.push_back(std::move(reader));
        return reply;
    }
    if (!is_mail && !send_request(*reader, request)) {
        errno = EAGAIN;
        return std::nullopt; // it was killed, by the OOM killer for example
    }
    const std::uint64_t begin_ns = monotonic_ns();
    Stillness stillness(begin_ns, LONGEST_LOOK_NS);
    while (!is_readable(reader->socket(), LOOK_AGAIN_MS)) {
        const std::uint64_t now_ns = monotonic_ns();
        stillness.look(now_ns, reader->gets_on());
        if (stillness.ns() >= patience_ns() || now_ns - begin_ns >= LONGEST_NS) {
            note_silence(party, what, std::move(reader));
            errno = ETIMEDOUT;
            return std::nullopt;
        }
    }
    std::array<int, 2> fds{-1, -1};
    if (receive_message(reader->socket(), &reply, sizeof(reply), fds.data(), 0) !=
        static_cast<std::int64_t>(sizeof(reply))) {
        errno = EAGAIN;
        return std::nullopt;
    }
    if (fd != nullptr)
        *fd = fds[0];
    else if (fds[0] >= 0)
        close(fds[0]);
    note_reply(party, reply);
    idle_.push_back(std::move(reader)); // the caller still reads its memory
    return reply;
}

struct ReaderPool::Asked {
    pid_t pid = 0;
    std::unique_ptr<ReaderHandle> reader;
    Stillness stillness;
};

void ReaderPool::ask_all(const std::vector<pid_t> &pids) {
    std::vector<Asked> asked;
    std::size_t next = 0;
    std::size_t at_once = FEW_AT_ONCE;
    while (next < pids.size() || !asked.empty()) {
        while (next < pids.size() && asked.size() < at_once) {
            const pid_t pid = pids[next++];
            if (pid == getpid() || !answers({pid, {}}))
                continue;
            auto reader = take_idle();
            if (!reader)
                return;
            const std::string path = fmt::format("/proc/{}/cmdline", pid);
            std::memcpy(reader->shared(), path.c_str(), path.size() + 1);
            const ReaderRequest request{ReaderTask::OpenFile, pid, 0, 1, 0};
            if (send_request(*reader, request))
                asked.push_back({pid, std::move(reader), {monotonic_ns(), LONGEST_LOOK_NS}});
        }
        std::vector<pollfd> sockets;
        sockets.reserve(asked.size());
        for (const Asked &one : asked)
            sockets.push_back({one.reader->socket(), POLLIN, 0});
        const bool wants_more = next < pids.size() && at_once < MOST_AT_ONCE;
        const int n_answered =
            poll(sockets.data(), sockets.size(), wants_more ? AT_ONCE_MS : LOOK_AGAIN_MS);
        if (n_answered == 0 && wants_more)
            at_once = std::min(2 * at_once, MOST_AT_ONCE);
        const std::uint64_t now_ns = monotonic_ns();
        const std::uint64_t patience = patience_ns();
        for (std::size_t i = asked.size(); i-- > 0;) {
            Asked &one = asked[i];
            ReaderReply reply;
            std::array<int, 2> fds{-1, -1};
            const bool has_answered = sockets[i].revents != 0;
            if (!has_answered) {
                one.stillness.look(now_ns, one.reader->gets_on());
                if (one.stillness.ns() < patience)
                    continue;
                note_silence({one.pid, {}}, fmt::format("/proc/{}/cmdline", one.pid),
                             std::move(one.reader));
            } else if (receive_message(one.reader->socket(), &reply, sizeof(reply), fds.data(), 0) >
                       0) {
                note_answer({one.pid, {}}, std::move(one.reader));
            }
            asked.erase(asked.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
}

} // namespace collwire::foreign
