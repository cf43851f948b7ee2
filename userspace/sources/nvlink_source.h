// SPDX-License-Identifier: Apache-2.0
// Source "nvlink": what NVML counts on each GPU's NVLinks, and the links' states. Nothing in the
// kernel; NVML runs in a process of its own, so that the recorder never waits for an ill GPU.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collwire/nvlink_records.h"
#include "userspace/nvidia/nvml_process.h"
#include "userspace/source/record_buffer.h"
#include "userspace/source/source.h"

namespace collwire::sources {

struct NvlinkOptions {
    std::string library = "libnvidia-ml.so.1";
    std::string driver_directory = "/proc/driver/nvidia"; // exists if the driver is loaded
    std::uint64_t interval_ns = 1'000'000'000;
    std::uint64_t answer_ns = 2'000'000'000;      // a reading of one GPU is given up after it
    std::uint64_t start_ns = 30'000'000'000;      // NVML may initialise each GPU, one after another
    std::uint64_t retry_ns = 60'000'000'000;      // after a failure; twice as long each time
    std::chrono::milliseconds prepare_wait{3000}; // for the list of GPUs
    std::chrono::milliseconds round_wait{500};    // for the first and the last reading
};

class NvlinkSource : public source::Source {
public:
    explicit NvlinkSource(NvlinkOptions options) : options_(std::move(options)) {}

    [[nodiscard]] std::string_view name() const override { return "nvlink"; }
    Result<void> prepare() override;
    [[nodiscard]] std::vector<source::PlannedProbe> probe_list() const override { return {}; }
    [[nodiscard]] std::vector<std::string> notes() const override;
    Result<void> attach() override { return {}; }
    // Both wait `round_wait` at most for a reading of all GPUs.
    void baseline() override { read_now(); }
    void end() override {
        read_now();
        has_ended_ = true;
    }
    [[nodiscard]] std::vector<source::SourceState> states() const override;
    void sample(source::RecordSink &sink, bool everything) override;
    void detach() override { process_.abandon(); }

    // Whether a GPU, or its driver, is on this machine.
    [[nodiscard]] bool has_nvidia() const { return !is_absent_ || has_driver_; }

private:
    using Place = std::pair<std::uint16_t, std::uint16_t>; // field, link
    struct Answer {
        std::uint16_t type = 0, result = 0;
        std::uint64_t value = 0;
        friend bool operator==(const Answer &, const Answer &) = default;
    };
    struct Gpu {
        cw_nvlink_gpu record{};
        bool is_written = false;
        std::map<Place, Answer> answers;
        std::uint32_t epoch = 0;                 // of the answers
        std::uint64_t begin_ns = 0, time_ns = 0; // of the last reading; 0: none
        // Of a reading that was given up
        bool is_silent = false;
        std::uint64_t silent_ns = 0, retry_ns = 0, retry_after_ns = 0;
    };

    void start();
    void read_now();
    void pump();
    void take(const nvidia::NvmlMessage &message);
    void take_sample(const cw_nvlink_sample &head, std::vector<cw_nvlink_value> values);
    void fail(int result, std::string why);
    void watch(std::uint64_t now_ns);
    void restart_if_due(std::uint64_t now_ns);
    void append_gap(std::uint64_t begin_ns, std::uint32_t gpu, cw_nvlink_gap_reason reason,
                    int result);
    static void append_sample(source::RecordSink &sink, const cw_nvlink_sample &head,
                              const std::vector<cw_nvlink_value> &values);
    [[nodiscard]] std::vector<cw_nvlink_value> all_values(const Gpu &gpu) const;
    [[nodiscard]] bool has_links() const;

    NvlinkOptions options_;
    nvidia::NvmlProcess process_;
    std::map<std::uint32_t, Gpu> gpus_; // by NVML's index
    std::uint32_t epoch_ = 0;
    bool has_driver_ = false;
    bool is_absent_ = false; // the library
    bool is_ready_ = false;  // all GPUs are listed, in this epoch
    bool has_ended_ = false;
    std::string failure_;          // why NVML is not used now; empty: it is
    std::uint64_t started_ns_ = 0; // the process
    std::uint64_t rounds_ = 0;
    // The reading that has not come back: its GPU, and since when.
    std::optional<std::pair<std::uint32_t, std::uint64_t>> reading_;
    std::uint64_t restart_ns_ = 0, restart_after_ns_ = 0;
    source::RecordBuffer pending_;
};

} // namespace collwire::sources
