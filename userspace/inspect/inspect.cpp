// SPDX-License-Identifier: Apache-2.0
#include "userspace/inspect/inspect.h"

#include <algorithm>
#include <map>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "collwire/node_records.h"
#include "correlate/inspect/waits.h"
#include "userspace/inspect/images.h"
#include "userspace/inspect/ports.h"
#include "userspace/inspect/process_look.h"
#include "userspace/inventory/node.h"

namespace collwire::inspect {
namespace {

constexpr std::chrono::milliseconds MOST_SCANNING{8'000}; // of all processes
constexpr std::chrono::milliseconds LEAST_SCANNING{500};  // of one, as long as there is time

// In the order of `pids`, or, of all processes, those with NCCL alone.
std::vector<std::unique_ptr<ProcessLook>> make_looks(const std::vector<pid_t> &pids,
                                                     const Images &images, bool all,
                                                     std::vector<Process> &without) {
    std::vector<std::unique_ptr<ProcessLook>> looks;
    for (std::size_t i = 0; i < pids.size(); ++i) {
        if (!images.used[i].empty()) {
            looks.push_back(std::make_unique<ProcessLook>(pids[i], images.images, images.used[i]));
            continue;
        }
        if (all)
            continue;
        Process process;
        process.pid = static_cast<std::uint32_t>(pids[i]);
        process.problem = !images.problems[i].empty() ? images.problems[i]
                                                      : "NCCL is not loaded in this process. Fix: "
                                                        "give the process that runs NCCL, or --all";
        without.push_back(std::move(process));
    }
    return looks;
}

// One process with much memory leaves time for the others.
void prepare_all(const std::vector<std::unique_ptr<ProcessLook>> &looks) {
    using std::chrono::steady_clock;
    nccl::CommCopies copies;
    const auto end = steady_clock::now() + MOST_SCANNING;
    auto n_left = static_cast<steady_clock::rep>(looks.size());
    for (const auto &look : looks) {
        const auto now = steady_clock::now();
        const steady_clock::duration share =
            std::max<steady_clock::duration>((end - now) / n_left--, LEAST_SCANNING);
        look->prepare(copies, std::min(now + share, end));
    }
}

} // namespace

Inspection inspect(const Options &options) {
    Inspection inspection;
    const cw_node node = inventory::read_node("");
    inspection.host = node.hostname;
    inspection.boot_id = node.boot_id;
    inspection.tool_version = options.tool_version;
    const bool all = options.pids.empty() || options.only_with_nccl;
    const std::vector<pid_t> pids =
        nccl::ancestors_first(options.pids.empty() ? process::all_processes() : options.pids);
    const Images images = find_images(pids, options.symbols);
    auto looks = make_looks(pids, images, all, inspection.processes);
    prepare_all(looks);
    PortCounters ports{""};
    const auto begin = std::chrono::steady_clock::now();
    for (const auto &look : looks)
        look->first_look();
    QueuePairs queue_pairs;
    if (options.queue_pairs &&
        std::ranges::any_of(looks, [](const auto &look) { return look->has_queue_pairs(); }))
        queue_pairs.look();
    std::this_thread::sleep_until(begin + options.between);
    for (const auto &look : looks)
        look->second_look(queue_pairs);
    // A process that has the file alone is none that anybody waits for.
    if (all)
        std::erase_if(looks, [](const auto &look) { return look->is_bare(); });
    inspection.between_ns = static_cast<std::uint64_t>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count());
    inspection.realtime_ns = clock_ns(CLOCK_REALTIME);
    inspection.ports = ports.changes();
    for (const auto &look : looks)
        look->look_at_plugins(queue_pairs);
    for (const auto &look : looks)
        inspection.processes.push_back(look->take());
    judge(inspection);
    return inspection;
}

} // namespace collwire::inspect
