// SPDX-License-Identifier: Apache-2.0
// The log of the double of CUPTI: what really ran, and what the client did.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace collwire::cupti_double {

class EventLog {
public:
    // Appends to the file; an empty path: no file, only counts.
    explicit EventLog(const std::string &path);
    ~EventLog();
    EventLog(const EventLog &) = delete;
    EventLog &operator=(const EventLog &) = delete;

    [[nodiscard]] bool has_file() const { return file_ >= 0; }
    // One line; `members` is JSON without its braces. Lines of several threads do not mix.
    void write(std::string_view event, const std::string &members) const;

    // The client broke a rule of CUPTI. Printed, too.
    void misuse(const std::string &what);
    // Allowed, and known to go wrong in real CUPTI.
    void hazard(const std::string &what);
    // The client asked for what the double does not play.
    void lacks(const std::string &what);

    [[nodiscard]] std::uint64_t misuses() const { return misuses_; }
    [[nodiscard]] std::uint64_t hazards() const { return hazards_; }
    [[nodiscard]] std::map<std::string, std::uint64_t> lacking() const;

private:
    int file_ = -1;
    std::atomic<std::uint64_t> misuses_{0};
    std::atomic<std::uint64_t> hazards_{0};
    mutable std::mutex mutex_;
    std::map<std::string, std::uint64_t> lacking_;
};

std::string quoted(std::string_view text); // a JSON string
int this_thread();                         // the kernel's number

} // namespace collwire::cupti_double
