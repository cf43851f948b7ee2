// SPDX-License-Identifier: Apache-2.0
// NVML in a process of its own. A call into it may block for seconds, or for ever in the driver,
// when a GPU is ill; a thread that waits there would keep an exiting recorder's probes in place.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/result.h"
#include "collwire/record.h"

namespace collwire::nvidia {

enum class NvmlEvent : std::uint32_t {
    Absent, // no library: `text`
    Failed, // NVML cannot be used: `result` or `text`; the process has ended
    Ready,  // all GPUs are listed
    Begin,  // a reading of `gpu` starts
    Record, // a GPU, or a reading of one
    Round,  // all GPUs were read
};

struct NvmlMessage {
    NvmlEvent event = NvmlEvent::Failed;
    std::int32_t result = 0;   // nvmlReturn_t
    std::uint32_t gpu = 0;     // NVML's index
    std::uint64_t time_ns = 0; // when it was sent, CLOCK_MONOTONIC
    std::string text;
    std::vector<std::uint64_t> record; // its bytes, aligned

    [[nodiscard]] const cw_header &header() const {
        return *reinterpret_cast<const cw_header *>(record.data());
    }
};

class NvmlProcess {
public:
    struct Options {
        std::string library = "libnvidia-ml.so.1";
        std::uint64_t interval_ns = 1'000'000'000;
        std::uint32_t epoch = 1;
        std::set<std::uint32_t> skipped; // GPUs that are not read
    };

    NvmlProcess() = default;
    NvmlProcess(const NvmlProcess &) = delete;
    NvmlProcess &operator=(const NvmlProcess &) = delete;
    ~NvmlProcess() { abandon(); }

    // Failed: no process, or the one before cannot be killed yet: it waits in the driver.
    Result<void> start(const Options &options);
    [[nodiscard]] bool runs() const { return fd_ >= 0; }
    // The next message; never waits. None, and runs() is false: the process has exited.
    [[nodiscard]] std::optional<NvmlMessage> next();
    // Waits for a message, or the exit.
    void wait(std::chrono::milliseconds most) const;
    // Asks for a reading now.
    void ask_now() const;
    // Kills it. It may stay as long as the driver keeps it; nothing of it is waited for.
    void abandon();

private:
    int fd_ = -1;
    pid_t pid_ = -1;
};

} // namespace collwire::nvidia
