// SPDX-License-Identifier: Apache-2.0
// Which threads of a process are inside NCCL's host code, at two looks, and what their stacks lead
// to: communicators under construction, bootstrap roots.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "correlate/inspect/inspection.h"
#include "userspace/inspect/images.h"
#include "userspace/inspect/thread_sampler.h"
#include "userspace/inspect/thread_stack.h"
#include "userspace/process/process_view.h"

namespace collwire::inspect {

// A thread inside NCCL at the second look.
struct CallFound {
    std::uint32_t tid = 0;
    std::size_t used = 0; // index of its library
    NcclStack stack;
    std::vector<std::uint64_t> words; // of its stack, from the top
};

class NcclCalls {
public:
    // `view` and `images` must outlive it.
    NcclCalls(const process::ProcessView &view, const std::vector<Image> &images,
              const std::vector<UsedImage> &used);

    void first_look();
    // Those that are inside at both looks.
    [[nodiscard]] std::vector<CallFound> second_look() const;

private:
    [[nodiscard]] std::optional<CallFound> call_of(std::uint32_t tid, const StackTop &top,
                                                   std::vector<std::uint64_t> sampled) const;
    [[nodiscard]] std::optional<std::size_t> library_at(std::uint64_t address) const;
    [[nodiscard]] CodeOwner owner_of(std::uint64_t address) const;
    [[nodiscard]] bool follows_call(std::uint64_t address) const;
    [[nodiscard]] std::optional<FrameRule> frame_at(std::uint64_t address) const;

    const process::ProcessView &view_;
    const std::vector<Image> &images_;
    const std::vector<UsedImage> &used_;
    ThreadSampler sampler_;
    std::set<std::uint32_t> inside_;                     // threads, at the first look
    mutable std::map<std::uint64_t, FrameRules> frames_; // by the address of a file's first byte
    mutable std::map<std::uint64_t, bool> follows_call_;
};

// The communicators under construction that these stacks lead to, and those at `addresses`.
[[nodiscard]] std::vector<UnreadyComm> unready_comms(const process::ProcessView &view,
                                                     const std::vector<Image> &images,
                                                     const std::vector<UsedImage> &used,
                                                     std::span<const CallFound> calls,
                                                     std::span<const std::uint64_t> addresses);

[[nodiscard]] std::vector<BootstrapRoot> bootstrap_roots(const std::vector<Image> &images,
                                                         const std::vector<UsedImage> &used,
                                                         std::span<const CallFound> calls);

// When the bootstrap root answers a rank.
enum class RootAnswers : std::uint8_t {
    NextCame, // the next rank has reported (NCCL 2.23 and later)
    AllCame,  // all ranks have reported
};

// Pure: how far the making has come, and whom it waits for, by the ring of its bootstrap. `inside`:
// the functions of the thread that makes it.
void judge_phase(UnreadyComm &comm, std::optional<bool> has_bootstrap, std::int32_t to_next,
                 std::int32_t from_previous, std::optional<bool> has_addresses,
                 const std::string &next_address, std::span<const std::string> inside,
                 RootAnswers answers = RootAnswers::NextCame);

} // namespace collwire::inspect
