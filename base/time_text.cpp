// SPDX-License-Identifier: Apache-2.0
#include "base/time_text.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <optional>

namespace collwire {
namespace {

constexpr std::int64_t NS_PER_S = 1'000'000'000;
constexpr int FIRST_YEAR = 1970, LAST_YEAR = 2200;

struct Zone {
    bool is_local = true;
    std::int64_t offset_s = 0; // east of UTC
};

struct TimeOfDay {
    int hour = 0, minute = 0, second = 0;
    std::int64_t ns = 0;
    Zone zone;
};

struct Day {
    int year = 0, month = 0, day = 0;
};

class TimeTextReader {
public:
    explicit TimeTextReader(std::string_view text) : rest_(text) {}

    [[nodiscard]] bool is_at_end() const { return rest_.empty(); }

    bool take(char c) {
        if (rest_.empty() || rest_.front() != c)
            return false;
        rest_.remove_prefix(1);
        return true;
    }

    // Exactly so many digits.
    std::optional<int> number(std::size_t digits) {
        if (rest_.size() < digits)
            return std::nullopt;
        int value = 0;
        for (const char c : rest_.substr(0, digits)) {
            if (c < '0' || c > '9')
                return std::nullopt;
            value = value * 10 + (c - '0');
        }
        rest_.remove_prefix(digits);
        return value;
    }

    std::optional<Day> day() {
        const auto year = number(4);
        if (!year || *year < FIRST_YEAR || *year > LAST_YEAR || !take('-'))
            return std::nullopt;
        const auto month = number(2);
        if (!month || *month < 1 || *month > 12 || !take('-'))
            return std::nullopt;
        const auto day = number(2);
        if (!day || *day < 1 || *day > days_of(*year, *month))
            return std::nullopt;
        return Day{*year, *month, *day};
    }

    std::optional<TimeOfDay> time_of_day() {
        TimeOfDay time;
        const auto hour = number(2);
        if (!hour || *hour > 23 || !take(':'))
            return std::nullopt;
        const auto minute = number(2);
        if (!minute || *minute > 59)
            return std::nullopt;
        time.hour = *hour;
        time.minute = *minute;
        if (take(':')) {
            const auto second = number(2);
            if (!second || *second > 59 || !fraction(time.ns))
                return std::nullopt;
            time.second = *second;
        }
        if (!zone(time.zone) || !is_at_end())
            return std::nullopt;
        return time;
    }

    [[nodiscard]] bool has_day() const { return rest_.size() > 4 && rest_[4] == '-'; }

private:
    static int days_of(int year, int month) {
        constexpr std::array<int, 12> days = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
        const bool is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        return month == 2 && is_leap ? 29 : days[static_cast<std::size_t>(month - 1)];
    }

    // False: a point without digits, or more than nine.
    bool fraction(std::int64_t &ns) {
        if (!take('.'))
            return true;
        std::int64_t unit = NS_PER_S / 10;
        bool has_digit = false;
        while (const auto digit = number(1)) {
            if (unit == 0)
                return false;
            ns += *digit * unit;
            unit /= 10;
            has_digit = true;
        }
        return has_digit;
    }

    bool zone(Zone &zone) {
        if (is_at_end())
            return true;
        zone.is_local = false;
        if (take('Z') || take('z'))
            return true;
        const int sign = take('-') ? -1 : 1;
        if (sign == 1 && !take('+'))
            return false;
        const auto hours = number(2);
        if (!hours || *hours > 14)
            return false;
        int minutes = 0;
        if (!is_at_end()) {
            take(':');
            const auto given = number(2);
            if (!given || *given > 59)
                return false;
            minutes = *given;
        }
        zone.offset_s = std::int64_t{sign} * (*hours * 3600 + minutes * 60);
        return true;
    }

    std::string_view rest_;
};

// Nothing: local time has no such moment.
std::optional<std::int64_t> seconds_of(const Day &day, const TimeOfDay &time) {
    std::tm fields{};
    fields.tm_year = day.year - 1900;
    fields.tm_mon = day.month - 1;
    fields.tm_mday = day.day;
    fields.tm_hour = time.hour;
    fields.tm_min = time.minute;
    fields.tm_sec = time.second;
    fields.tm_isdst = -1;
    const std::time_t seconds =
        time.zone.is_local ? ::mktime(&fields) : ::timegm(&fields) - time.zone.offset_s;
    return seconds < 0 ? std::nullopt : std::optional<std::int64_t>(seconds);
}

// The calendar's day at that moment, so many days later.
Day day_at(std::uint64_t realtime_ns, const Zone &zone, int later) {
    auto seconds = static_cast<std::time_t>(realtime_ns / NS_PER_S);
    std::tm fields{};
    if (zone.is_local) {
        ::localtime_r(&seconds, &fields);
    } else {
        seconds += zone.offset_s;
        ::gmtime_r(&seconds, &fields);
    }
    // Noon: a day has 23 to 25 hours in local time.
    fields.tm_hour = 12;
    fields.tm_min = fields.tm_sec = 0;
    fields.tm_mday += later;
    fields.tm_isdst = 0;
    ::timegm(&fields);
    return {fields.tm_year + 1900, fields.tm_mon + 1, fields.tm_mday};
}

constexpr int MOST_DAYS = 400; // of a recording, that are searched for a time of day

Error no_time(std::string_view text) {
    return error(ErrorKind::Usage,
                 fmt::format("\"{}\" is no time. Fix: give 2026-11-27T14:05:00Z or with an offset "
                             "(+01:00), 2026-11-27T14:05:00 in local time, or 14:05[:30]",
                             text));
}

} // namespace

Result<std::uint64_t> parse_time_ns(std::string_view text, const TimeRange &range,
                                    DayOf otherwise) {
    TimeTextReader reader(text);
    std::optional<Day> day;
    if (reader.has_day()) {
        day = reader.day();
        if (!day || !(reader.take('T') || reader.take('t') || reader.take(' ')))
            return no_time(text);
    }
    const auto time = reader.time_of_day();
    if (!time)
        return no_time(text);
    const auto at = [&](const Day &of) -> std::optional<std::uint64_t> {
        const auto seconds = seconds_of(of, *time);
        if (!seconds)
            return std::nullopt;
        return static_cast<std::uint64_t>(*seconds * NS_PER_S + time->ns);
    };
    if (day) {
        const auto ns = at(*day);
        return ns ? Result<std::uint64_t>(*ns) : Result<std::uint64_t>(no_time(text));
    }
    for (int before = 0; before < MOST_DAYS; ++before) {
        const auto ns = at(day_at(range.end_ns, time->zone, -before));
        if (!ns || *ns < range.begin_ns)
            break;
        if (*ns <= range.end_ns)
            return *ns;
    }
    const auto ns =
        at(day_at(otherwise == DayOf::Begin ? range.begin_ns : range.end_ns, time->zone, 0));
    return ns ? Result<std::uint64_t>(*ns) : Result<std::uint64_t>(no_time(text));
}

std::string local_time_text(std::uint64_t realtime_ns) {
    const auto seconds = static_cast<std::time_t>(realtime_ns / NS_PER_S);
    std::tm fields{};
    ::localtime_r(&seconds, &fields);
    return fmt::format("{:02}:{:02}:{:02}.{:03} {}", fields.tm_hour, fields.tm_min, fields.tm_sec,
                       realtime_ns % NS_PER_S / 1'000'000,
                       fields.tm_zone == nullptr ? "local time" : fields.tm_zone);
}

} // namespace collwire
