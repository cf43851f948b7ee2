// SPDX-License-Identifier: Apache-2.0
// The job's own account of what it did, a JSON object a line; README.md describes them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace collwire::job {

using Fields = nlohmann::ordered_json;

struct Moment {
    std::int64_t monotonic_ns = 0;
    std::int64_t realtime_ns = 0;

    static Moment now();
};

class JobLog {
public:
    // An empty path: none is written.
    explicit JobLog(const std::string &path);
    ~JobLog();
    JobLog(const JobLog &) = delete;
    JobLog &operator=(const JobLog &) = delete;

    void write(const char *event, const Moment &at, const Fields &fields);
    void write(const char *event, const Fields &fields) { write(event, Moment::now(), fields); }

private:
    std::FILE *file_ = nullptr;
};

std::string hexadecimal(const void *address);

} // namespace collwire::job
