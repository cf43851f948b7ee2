// SPDX-License-Identifier: Apache-2.0
// Starts reader processes, from a process that holds nothing of the caller's.
#pragma once

#include <cstddef>
#include <memory>

namespace collwire::foreign {

class Mailbox;

// The caller's end of a reader process. Closes it: the reader exits when it has no more to wait
// for.
class ReaderHandle {
public:
    ReaderHandle(int socket, int process, std::byte *shared)
        : socket_(socket), process_(process), shared_(shared) {}
    ReaderHandle(const ReaderHandle &) = delete;
    ReaderHandle &operator=(const ReaderHandle &) = delete;
    ~ReaderHandle();

    [[nodiscard]] int socket() const { return socket_; }
    [[nodiscard]] std::byte *shared() const { return shared_; }
    [[nodiscard]] Mailbox &mailbox() const;
    // Kills it, and waits a moment. False: it waits for something that no signal ends.
    [[nodiscard]] bool kill() const;
    [[nodiscard]] bool has_exited() const;
    // Whether it runs, or has got on since the last call: it has no CPU, or reads a slow disk.
    [[nodiscard]] bool gets_on();

private:
    int socket_;
    int process_; // a pidfd
    std::byte *shared_;
    long pid_ = 0;
    unsigned long long progress_ = 0;
};

// Null: no process could be started.
std::unique_ptr<ReaderHandle> spawn_reader();
// Starts the process that forks readers, if there is none.
bool start_spawner();

} // namespace collwire::foreign
