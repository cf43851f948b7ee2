// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/nccl/errors.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"

namespace collwire::sources {
namespace {

// ncclResult_t
constexpr std::uint32_t SUCCESS = 0, IN_PROGRESS = 7;
// The memory of a communicator that has ended may contain anything.
constexpr std::uint32_t MOST_RESULT = 31;

// NCCL writes the text within microseconds of the warning, if its thread is not delayed.
constexpr std::uint64_t TEXT_IS_MADE_NS = 20'000'000;

bool is_error(std::uint32_t result) {
    return result != SUCCESS && result != IN_PROGRESS && result <= MOST_RESULT;
}

} // namespace

void NcclErrors::add_process(std::uint32_t tgid, std::uint32_t image_id,
                             const nccl::ErrorPlaces &places) {
    Process process;
    process.places = places;
    processes_.insert_or_assign({tgid, image_id}, std::move(process));
}

void NcclErrors::add_comm(std::uint32_t tgid, std::uint32_t image_id, std::uint64_t comm) {
    if (const auto process = processes_.find({tgid, image_id}); process != processes_.end())
        process->second.comms.try_emplace(comm);
}

template <typename Visit> void NcclErrors::visit(std::uint32_t tgid, Visit visit) {
    for (auto at = processes_.lower_bound({tgid, 0});
         at != processes_.end() && at->first.first == tgid; ++at)
        visit(at->first, at->second);
}

void NcclErrors::forget(std::uint32_t tgid) {
    std::erase_if(processes_, [tgid](const auto &entry) { return entry.first.first == tgid; });
}

void NcclErrors::forget(std::uint32_t tgid, std::uint64_t comm) {
    visit(tgid, [comm](const Key &, Process &process) { process.comms.erase(comm); });
}

void NcclErrors::sample_results(const Key &key, Process &process, Found &found) {
    std::vector<std::uint64_t> comms;
    comms.reserve(process.comms.size());
    for (const auto &[address, comm] : process.comms)
        comms.push_back(address);
    const auto results = nccl::read_results(process::ProcessView{static_cast<pid_t>(key.first)},
                                            process.places, comms);
    const std::uint64_t now_ns = monotonic_ns();
    auto result = results.begin();
    for (auto &[address, comm] : process.comms) {
        const std::uint64_t at = address; // clang 14 cannot capture a structured binding
        const auto look = [&](LastResult &last, std::optional<std::uint32_t> now,
                              std::uint32_t of) {
            if (!now)
                return;
            if (is_error(*now) && *now != last.result) {
                cw_nccl_result record = {};
                record.header = {sizeof(record), CW_KIND_NCCL_RESULT, CW_CPU_USERSPACE, now_ns};
                record.comm = at;
                record.before_ns = last.read_ns;
                record.tgid = key.first;
                record.result = *now;
                record.of = of;
                last.emitted = record;
                found.results.push_back(record);
            }
            last.result = *now;
            last.read_ns = now_ns;
        };
        look(comm.own, result->comm, CW_NCCL_RESULT_OF_COMM);
        look(comm.proxy, result->proxy, CW_NCCL_RESULT_OF_PROXY);
        ++result;
    }
}

void NcclErrors::sample_text(const Key &key, Process &process, bool always, Found &found) {
    auto text =
        nccl::read_last_error(process::ProcessView{static_cast<pid_t>(key.first)}, process.places);
    if (!text)
        return;
    const std::uint64_t now_ns = monotonic_ns();
    const bool is_new = !text->empty() && *text != process.text;
    if (is_new || always) {
        cw_nccl_last_error record = {};
        record.header = {sizeof(record), CW_KIND_NCCL_LAST_ERROR, CW_CPU_USERSPACE, now_ns};
        record.before_ns = process.text_read_ns;
        record.tgid = key.first;
        record.image_id = key.second;
        std::memcpy(record.text, text->data(), std::min(text->size(), sizeof(record.text) - 1));
        if (is_new)
            process.emitted = record;
        found.texts.push_back(record);
    }
    process.text = std::move(*text);
    process.text_read_ns = now_ns;
}

NcclErrors::Found NcclErrors::sample() {
    Found found;
    for (auto &[key, process] : processes_) {
        const bool is_over =
            process.warned_ns != 0 && monotonic_ns() - process.warned_ns > TEXT_IS_MADE_NS;
        sample_text(key, process, is_over, found);
        if (is_over)
            process.warned_ns = 0;
        sample_results(key, process, found);
    }
    return found;
}

NcclErrors::Found NcclErrors::sample_text(std::uint32_t tgid) {
    Found found;
    visit(tgid, [&](const Key &key, Process &process) { sample_text(key, process, false, found); });
    return found;
}

void NcclErrors::on_warning(std::uint32_t tgid) {
    const std::uint64_t now_ns = monotonic_ns();
    visit(tgid, [now_ns](const Key &, Process &process) { process.warned_ns = now_ns; });
}

NcclErrors::Found NcclErrors::all() const {
    Found found;
    for (const auto &[key, process] : processes_) {
        if (process.emitted)
            found.texts.push_back(*process.emitted);
        for (const auto &[address, comm] : process.comms)
            for (const LastResult *last : {&comm.own, &comm.proxy})
                if (last->emitted && last->emitted->result == last->result)
                    found.results.push_back(*last->emitted);
    }
    return found;
}

} // namespace collwire::sources
