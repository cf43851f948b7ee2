// SPDX-License-Identifier: Apache-2.0
// The reader processes, and who has not answered them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "userspace/foreign/foreign.h"
#include "userspace/foreign/reader.h"
#include "userspace/foreign/spawner.h"

namespace collwire::foreign {

// Whose answer is waited for: a process, or a file that is no process's.
struct Party {
    pid_t pid = NO_PROCESS;
    std::string path; // of a file alone, or one that a process answers for separately
    friend auto operator<=>(const Party &, const Party &) = default;
};

class ReaderPool {
public:
    static ReaderPool &instance();

    // A reader for a request of this party, whose memory the caller fills in before ask(). Null:
    // the party does not answer, or there is no reader (errno).
    [[nodiscard]] ReaderHandle *reader_for(const Party &party);
    // No value: no answer in time. `fd`: of the reply, owned by the caller.
    std::optional<ReaderReply> ask(const Party &party, const ReaderRequest &request,
                                   const std::string &what, int *fd = nullptr);
    // Asks each process for the first byte of its command line, at once.
    void ask_all(const std::vector<pid_t> &pids);

    [[nodiscard]] bool answers(const Party &party);
    [[nodiscard]] std::vector<Silent> silent();
    void hurry_while_readable(int fd) { hurry_fd_ = fd; }
    [[nodiscard]] bool is_hurried() const;
    void add_news(std::string line);
    std::vector<std::string> take_news() { return std::exchange(news_, {}); }

private:
    struct Silence {
        std::string what;
        std::uint64_t start_ticks = 0;
        std::unique_ptr<ReaderHandle> waiting; // null: it was killed
        std::uint64_t again_ns = 0;            // when it is asked again
        std::uint64_t pause_ns = 0;
    };
    struct Asked;

    [[nodiscard]] std::unique_ptr<ReaderHandle> take_idle();
    [[nodiscard]] std::uint64_t patience_ns() const;
    void note_silence(const Party &party, const std::string &what,
                      std::unique_ptr<ReaderHandle> reader);
    void note_reply(const Party &party, const ReaderReply &reply);
    void note_answer(const Party &party, std::unique_ptr<ReaderHandle> reader);
    // Removes a silence that is over.
    [[nodiscard]] bool is_over(const Party &party, Silence &silence);
    [[nodiscard]] std::size_t n_waiting() const;

    std::vector<std::unique_ptr<ReaderHandle>> idle_;
    std::map<Party, Silence> silences_;
    std::vector<std::unique_ptr<ReaderHandle>> stuck_; // killed, and still there
    std::vector<std::string> news_;
    std::uint64_t news_since_ns_ = 0;
    std::size_t n_news_ = 0;
    bool was_refused_ = false;
    int hurry_fd_ = -1;
};

} // namespace collwire::foreign
