// SPDX-License-Identifier: Apache-2.0
#include "tests/cupti_double/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "tests/cupti_double/abi.h"

namespace collwire::cupti_double {
namespace {

constexpr std::uint64_t NS_PER_S = 1'000'000'000;

std::string text_of(const char *variable) {
    const char *value = std::getenv(variable);
    return value != nullptr ? value : "";
}

std::uint64_t number_in(const char *variable, const std::string &text) {
    char *end = nullptr;
    const std::uint64_t value = std::strtoull(text.c_str(), &end, 10);
    if (text.empty() || *end != '\0' || text.front() == '-')
        fatal(fmt::format("{}: '{}' is not a number. Fix: set it to one, or unset it", variable,
                          text));
    return value;
}

std::uint64_t number_of(const char *variable, std::uint64_t otherwise) {
    const std::string text = text_of(variable);
    return text.empty() ? otherwise : number_in(variable, text);
}

std::vector<std::string> split(const std::string &text, char separator) {
    std::vector<std::string> parts;
    std::size_t begin = 0;
    for (;;) {
        const std::size_t end = text.find(separator, begin);
        parts.push_back(text.substr(begin, end - begin));
        if (end == std::string::npos)
            return parts;
        begin = end + 1;
    }
}

EarlierKernels earlier_in(const std::string &text) {
    if (text.empty() || text == "loaded")
        return EarlierKernels::BeforeLoaded;
    if (text == "enabled")
        return EarlierKernels::BeforeEnabled;
    if (text == "none")
        return EarlierKernels::None;
    fatal(fmt::format("COLLWIRE_CUPTI_EARLIER={}. Fix: loaded, enabled or none", text));
}

BufferOwner buffer_owner_in(const std::string &text) {
    if (text.empty() || text == "now")
        return BufferOwner::RegisteredNow;
    if (text == "then")
        return BufferOwner::RegisteredThen;
    fatal(fmt::format("COLLWIRE_CUPTI_BUFFERS_TO={}. Fix: now or then", text));
}

void say(const char *kind, const std::string &text) {
    const std::string line = fmt::format("cupti_double[{}]: {}{}\n", ::getpid(), kind, text);
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fflush(stderr);
}

std::uint64_t clock_ns(clockid_t clock) {
    timespec now{};
    ::clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * NS_PER_S +
           static_cast<std::uint64_t>(now.tv_nsec);
}

// function:number:nth, separated by commas
std::vector<InjectedFailure> parse_rules(const char *variable, const std::string &text) {
    std::vector<InjectedFailure> failures;
    if (text.empty())
        return failures;
    for (const std::string &rule : split(text, ',')) {
        const std::vector<std::string> parts = split(rule, ':');
        if (parts.size() != 3 || parts[0].empty())
            fatal(fmt::format("{}: '{}' is no rule. Fix: function:number:nth, separated by commas",
                              variable, rule));
        const auto number = static_cast<int>(number_in(variable, parts[1]));
        const std::uint64_t nth = number_in(variable, parts[2]);
        if (nth == 0 || number == 0)
            fatal(fmt::format("{}: '{}' does nothing. Fix: numbers from 1", variable, rule));
        failures.push_back({parts[0], number, nth});
    }
    return failures;
}

} // namespace

std::vector<InjectedFailure> parse_failures(const std::string &text) {
    constexpr char VARIABLE[] = "COLLWIRE_CUPTI_FAIL";
    std::vector<InjectedFailure> failures = parse_rules(VARIABLE, text);
    for (const InjectedFailure &failure : failures)
        if (name_of(static_cast<Result>(failure.code)) == nullptr)
            fatal(
                fmt::format("{}: {} is no code of CUptiResult. Fix: one of its codes other than 0",
                            VARIABLE, failure.code));
    return failures;
}

Settings read_settings(std::uint32_t library_version) {
    Settings read;
    read.api_version =
        static_cast<std::uint32_t>(number_of("COLLWIRE_CUPTI_API_VERSION", library_version));
    const bool is_13 = library_version >= FIRST_VERSION_OF_13;
    if ((read.api_version >= FIRST_VERSION_OF_13) != is_13 ||
        read.api_version >= FIRST_VERSION_OF_13_2)
        fatal(fmt::format("COLLWIRE_CUPTI_API_VERSION={}: this is the double of libcupti.so.{}. "
                          "Fix: {}",
                          read.api_version, is_13 ? 13 : 12,
                          is_13 ? "130000 to 130199" : "19 to 28"));
    read.log_path = text_of("COLLWIRE_CUPTI_LOG");
    read.owner = text_of("COLLWIRE_CUPTI_OWNER");
    read.earlier = earlier_in(text_of("COLLWIRE_CUPTI_EARLIER"));
    read.buffer_owner = buffer_owner_in(text_of("COLLWIRE_CUPTI_BUFFERS_TO"));
    read.disable_drops = number_of("COLLWIRE_CUPTI_DISABLE_DROPS", 0) != 0;
    read.failures = parse_failures(text_of("COLLWIRE_CUPTI_FAIL"));
    read.delays = parse_rules("COLLWIRE_CUPTI_DELAY", text_of("COLLWIRE_CUPTI_DELAY"));
    read.delayed_until = text_of("COLLWIRE_CUPTI_DELAY_UNTIL");
    read.empty_session = number_of("COLLWIRE_CUPTI_EMPTY", 0);
    read.lock_patience_ms = number_of("COLLWIRE_CUPTI_PATIENCE_MS", read.lock_patience_ms);
    return read;
}

void note(const std::string &text) {
    say("", text);
}

void fatal(const std::string &text) {
    say("FATAL: ", text);
    std::abort();
}

std::uint64_t monotonic_ns() {
    return clock_ns(CLOCK_MONOTONIC);
}

std::uint64_t realtime_ns() {
    return clock_ns(CLOCK_REALTIME);
}

} // namespace collwire::cupti_double
