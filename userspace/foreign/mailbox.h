// SPDX-License-Identifier: Apache-2.0
// A request and its answer in memory that the caller and a reader process share. The reader waits
// for the next request in a loop for a moment, and then sleeps on its socket: one small read after
// the other takes 1 us that way, and 20 us over the socket.
#pragma once

#include <atomic>
#include <cstdint>

#include "userspace/foreign/reader.h"

namespace collwire::foreign {

class Mailbox {
public:
    // The caller. False: the reader sleeps, and gets the request over its socket.
    [[nodiscard]] bool ask(const ReaderRequest &request);
    // The caller. False: no answer in a moment; it comes over the socket.
    [[nodiscard]] bool wait(ReaderReply &reply);
    // The caller, before it uses the socket: the reader does not wait in its loop.
    void wake();

    // The reader: a request within a moment. False: there is none, or it comes over the socket.
    [[nodiscard]] bool next(ReaderRequest &request);
    // The reader. False: the caller waits for the answer at the socket.
    [[nodiscard]] bool answer(const ReaderReply &reply);
    // The reader, before it answers over the socket.
    void get_ready();

private:
    enum State : std::uint32_t {
        Sleeping, // memory is zero at first
        Ready,
        Requested,
        Waited, // and the caller sleeps at the socket
    };
    std::atomic<std::uint32_t> state_;
    ReaderRequest request_;
    ReaderReply reply_;
    static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
};
static_assert(sizeof(Mailbox) <= MAILBOX_BYTES);

} // namespace collwire::foreign
