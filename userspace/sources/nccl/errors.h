// SPDX-License-Identifier: Apache-2.0
// Samples what NCCL says went wrong, and tells what is new.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collwire/nccl_error_records.h"
#include "userspace/nccl/memory/error_state.h"

namespace collwire {

class NcclErrors {
public:
    struct Told {
        std::vector<cw_nccl_result> results;
        std::vector<cw_nccl_last_error> texts;

        [[nodiscard]] bool empty() const { return results.empty() && texts.empty(); }
    };

    void add_process(std::uint32_t tgid, std::uint32_t image_id, const nccl::ErrorPlaces &places);
    [[nodiscard]] bool knows(std::uint32_t tgid, std::uint32_t image_id) const {
        return processes_.contains({tgid, image_id});
    }
    void add_comm(std::uint32_t tgid, std::uint32_t image_id, std::uint64_t comm);
    void forget(std::uint32_t tgid);
    void forget(std::uint32_t tgid, std::uint64_t comm);

    // What was not there when it was looked for last.
    Told sample();
    // Of one process, the text alone: at a time when communicators come and go.
    Told sample_text(std::uint32_t tgid);
    // It warned: what is there behind that is told of with a later sample even where it is what it
    // was, or nothing.
    void note_warning(std::uint32_t tgid);
    // All that was told and is still there.
    [[nodiscard]] Told all() const;

private:
    struct Kept {
        std::uint64_t looked_ns = 0; // 0: never
        std::uint32_t result = 0;    // ncclSuccess
        std::optional<cw_nccl_result> told;
    };
    struct Comm {
        Kept own, proxy;
    };
    struct Process {
        nccl::ErrorPlaces places;
        std::map<std::uint64_t, Comm> comms; // by address
        std::uint64_t text_looked_ns = 0;
        std::uint64_t warned_ns = 0; // 0: what came of it is told
        std::string text;
        std::optional<cw_nccl_last_error> told;
    };
    using Key = std::pair<std::uint32_t, std::uint32_t>; // tgid, image

    static void sample_results(const Key &key, Process &process, Told &told);
    static void sample_text(const Key &key, Process &process, bool always, Told &told);
    template <typename Visit> void visit(std::uint32_t tgid, Visit visit);

    std::map<Key, Process> processes_;
};

} // namespace collwire
