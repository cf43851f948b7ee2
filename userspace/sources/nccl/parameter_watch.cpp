// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/nccl/parameter_watch.h"

#include <string_view>

#include "base/clock.h"
#include "base/set_text.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/nccl/memory/live_comms.h"
#include "userspace/nccl/memory/parameters.h"

namespace collwire::sources {
namespace {

// The first operation comes at once, or hours after the connections.
constexpr std::uint64_t FIRST_PAUSE_NS = 1'000'000'000;
constexpr std::uint64_t LAST_PAUSE_NS = 4096 * FIRST_PAUSE_NS;
// Of a process that ends many communicators.
constexpr std::uint64_t LEAST_PAUSE_NS = FIRST_PAUSE_NS / 10;

cw_nccl_param record_of(const LibraryUser &user, std::string_view name, std::int64_t value) {
    cw_nccl_param record = {};
    record.header = {sizeof(record), CW_KIND_NCCL_PARAM, CW_CPU_USERSPACE, monotonic_ns()};
    record.tgid = user.tgid;
    record.image_id = user.image_id;
    record.value = value;
    set_text(record.name, name);
    return record;
}

} // namespace

void ParameterWatch::read(const LibraryUser &user) {
    read(user, processes_[user]);
}

void ParameterWatch::on_connection(const LibraryUser &user) {
    const auto process = processes_.find(user);
    if (process == processes_.end())
        return;
    process->second.due_ns = 0;
    process->second.pause_ns = FIRST_PAUSE_NS;
}

void ParameterWatch::poll() {
    const std::uint64_t now_ns = monotonic_ns();
    for (auto &[user, process] : processes_) {
        if (now_ns < process.due_ns)
            continue;
        read(user, process);
        process.due_ns = process.pause_ns > LAST_PAUSE_NS ? UINT64_MAX : now_ns + process.pause_ns;
        process.pause_ns *= 2;
    }
}

void ParameterWatch::on_comm_end(const LibraryUser &user) {
    const auto process = processes_.find(user);
    if (process != processes_.end() && process->second.read_ns + LEAST_PAUSE_NS < monotonic_ns())
        read(user, process->second);
}

void ParameterWatch::read(const LibraryUser &user, Process &process) {
    process.read_ns = monotonic_ns();
    const NcclLibrary *library = libraries_.find(user.image_id);
    process::ProcessView view{static_cast<pid_t>(user.tgid)};
    if (library == nullptr || library->layout.parameters.empty() || !view.refresh())
        return;
    for (const process::Mapping &mapping : view.mappings()) {
        if (!mapping.executable || libraries_.library_of(view.pid(), mapping) != library)
            continue;
        const auto bias = nccl::load_bias(library->layout, mapping);
        if (!bias)
            continue;
        for (const auto &[name, value] : nccl::read_parameters(view, library->layout, *bias)) {
            const auto [known, is_new] = process.parameters.try_emplace(name, value);
            if (!is_new && known->second == value)
                continue;
            known->second = value;
            pending_.add(record_of(user, name, value));
        }
        return;
    }
}

void ParameterWatch::append(source::RecordSink &sink, const LibraryUser &user) const {
    const auto process = processes_.find(user);
    if (process == processes_.end())
        return;
    for (const auto &[name, value] : process->second.parameters)
        sink.append(record_of(user, name, value).header);
}

} // namespace collwire::sources
