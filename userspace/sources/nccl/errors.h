// SPDX-License-Identifier: Apache-2.0
// Samples NCCL's errors: results of communicators and texts of warnings.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collwire/nccl_error_records.h"
#include "userspace/nccl/memory/error_state.h"

namespace collwire::sources {

class NcclErrors {
public:
    struct Found {
        std::vector<cw_nccl_result> results;
        std::vector<cw_nccl_last_error> texts;

        [[nodiscard]] bool empty() const { return results.empty() && texts.empty(); }
    };

    void add_process(std::uint32_t tgid, std::uint32_t image_id, const nccl::ErrorPlaces &places);
    [[nodiscard]] bool has_process(std::uint32_t tgid, std::uint32_t image_id) const {
        return processes_.contains({tgid, image_id});
    }
    void add_comm(std::uint32_t tgid, std::uint32_t image_id, std::uint64_t comm);
    void forget(std::uint32_t tgid);
    void forget(std::uint32_t tgid, std::uint64_t comm);

    // Errors that are new since the last sample.
    Found sample();
    // The text of one process alone, while its communicators may change.
    Found sample_text(std::uint32_t tgid);
    // The process warned: a later sample has its text even if the text is unchanged or empty.
    void on_warning(std::uint32_t tgid);
    // All found errors that are still there.
    [[nodiscard]] Found all() const;

private:
    struct LastResult {
        std::uint64_t read_ns = 0; // 0: never
        std::uint32_t result = 0;  // ncclSuccess
        std::optional<cw_nccl_result> emitted;
    };
    struct Comm {
        LastResult own, proxy;
    };
    struct Process {
        nccl::ErrorPlaces places;
        std::map<std::uint64_t, Comm> comms; // by address
        std::uint64_t text_read_ns = 0;
        std::uint64_t warned_ns = 0; // 0: its text is found
        std::string text;
        std::optional<cw_nccl_last_error> emitted;
    };
    using Key = std::pair<std::uint32_t, std::uint32_t>; // tgid, library

    static void sample_results(const Key &key, Process &process, Found &found);
    static void sample_text(const Key &key, Process &process, bool always, Found &found);
    template <typename Visit> void visit(std::uint32_t tgid, Visit visit);

    std::map<Key, Process> processes_;
};

} // namespace collwire::sources
