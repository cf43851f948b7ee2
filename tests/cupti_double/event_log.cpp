// SPDX-License-Identifier: Apache-2.0
#include "tests/cupti_double/event_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tests/cupti_double/settings.h"

namespace collwire::cupti_double {

EventLog::EventLog(const std::string &path) {
    constexpr int MODE = 0644;
    if (path.empty())
        return;
    file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, MODE);
    if (file_ < 0)
        fatal(fmt::format("COLLWIRE_CUPTI_LOG={}: {}. Fix: a path that can be written", path,
                          std::strerror(errno)));
}

EventLog::~EventLog() {
    if (file_ >= 0)
        ::close(file_);
}

void EventLog::write(std::string_view event, const std::string &members) const {
    if (file_ < 0)
        return;
    const std::string line =
        fmt::format("{{\"event\":\"{}\",\"pid\":{},\"thread\":{},\"at_ns\":{}{}{}}}\n", event,
                    ::getpid(), this_thread(), monotonic_ns(), members.empty() ? "" : ",", members);
    // One call for a line: with O_APPEND the lines of several processes do not mix either.
    if (::write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
        fatal(fmt::format("the log cannot be written: {}. Fix: free space, or COLLWIRE_CUPTI_LOG "
                          "elsewhere",
                          std::strerror(errno)));
}

void EventLog::misuse(const std::string &what) {
    misuses_++;
    note("misuse: " + what);
    write("misuse", fmt::format("\"what\":{}", quoted(what)));
}

void EventLog::hazard(const std::string &what) {
    hazards_++;
    write("hazard", fmt::format("\"what\":{}", quoted(what)));
}

void EventLog::lacks(const std::string &what) {
    bool is_first = false;
    {
        const std::lock_guard lock(mutex_);
        is_first = ++lacking_[what] == 1;
    }
    if (!is_first)
        return;
    note(fmt::format("the client asks for {}, which the double lacks. If its test fails: "
                     "implement it",
                     what));
    write("lacks", fmt::format("\"what\":{}", quoted(what)));
}

std::map<std::string, std::uint64_t> EventLog::lacking() const {
    const std::lock_guard lock(mutex_);
    return lacking_;
}

std::string quoted(std::string_view text) {
    constexpr unsigned char FIRST_PRINTABLE = 0x20;
    std::string json = "\"";
    for (const char character : text) {
        if (character == '"' || character == '\\')
            json += {'\\', character};
        else if (static_cast<unsigned char>(character) < FIRST_PRINTABLE)
            json += fmt::format("\\u{:04x}", static_cast<unsigned>(character));
        else
            json += character;
    }
    return json + '"';
}

int this_thread() {
    static thread_local const int number = static_cast<int>(::syscall(SYS_gettid));
    return number;
}

} // namespace collwire::cupti_double
