// SPDX-License-Identifier: Apache-2.0
// What a generated job did, as JSON lines: docs/scale.md lists the kinds and their fields.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/trace-gen/job_plan.h"
#include "tools/trace-gen/job_times.h"

namespace collwire::trace_gen {

struct CaptureTruth {
    std::uint32_t node = 0;
    Damage damage = Damage::None;
    std::vector<std::string> paths = {};
    std::uint64_t n_records = 0;
    std::uint64_t size_bytes = 0;
    std::uint64_t good_bytes = 0; // up to the damage
};

class JobTruth {
public:
    // Writes to DIRECTORY/truth.jsonl. Failed where that cannot be written.
    static Result<std::unique_ptr<JobTruth>> create(const JobPlan &plan);

    void job();
    void traffic(const JobTraffic &traffic);
    void operation(const JobTimes::Arrivals &arrivals);
    void capture(const CaptureTruth &capture);
    // Totals of all that was sent, and the end of the recordings.
    void totals(const JobTraffic &traffic, std::uint64_t end_ns);
    Result<void> close();

private:
    struct CloseFile {
        void operator()(std::FILE *file) const { std::fclose(file); }
    };
    JobTruth(const JobPlan &plan, std::string path, std::FILE *file);
    void put(const std::string &line);
    [[nodiscard]] std::uint64_t &completed(std::uint32_t shape, const JobCommunicator &comm,
                                           std::uint32_t stage);

    const JobPlan &plan_;
    std::string path_;
    std::unique_ptr<std::FILE, CloseFile> file_;
    std::vector<std::uint64_t> completed_; // by shape, communicator and stage
    std::vector<std::uint64_t> collectives_, exchanges_;
    std::vector<std::uint64_t> transfers_; // by communicator, stage and direction
    std::string line_;
};

} // namespace collwire::trace_gen
