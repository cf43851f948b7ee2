// SPDX-License-Identifier: Apache-2.0
// What NCCL says went wrong: read with each sample, behind each warning, and where communicators
// end.
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_error_records.h"
#include "userspace/sources/nccl/source.h"

#include <string_view>
#include <utility>

#include "userspace/nccl/memory/live_comms.h"

namespace collwire {
namespace {

// How NCCL's own network begins what it says of queue pairs.
constexpr std::string_view OF_QUEUE_PAIRS = "NET/IB";

bool may_be_of_queue_pairs(const NcclErrors::Told &told) {
    if (!told.results.empty())
        return true;
    for (const cw_nccl_last_error &text : told.texts)
        if (std::string_view{text.text}.starts_with(OF_QUEUE_PAIRS))
            return true;
    return false;
}

} // namespace

void NcclSource::watch_errors(const cw_nccl_comm &record) {
    const NcclImage *image = images_.find(record.image_id);
    if (image == nullptr)
        return;
    if (!errors_.knows(record.tgid, record.image_id)) {
        ProcessView view{static_cast<pid_t>(record.tgid)};
        if (!view.refresh())
            return;
        for (const Mapping &mapping : view.mappings()) {
            if (!mapping.executable || images_.image_of(view.pid(), mapping) != image)
                continue;
            const auto bias = nccl::load_bias(image->plan, mapping);
            const auto places = bias ? nccl::find_error_places(image->plan, *bias) : std::nullopt;
            if (places)
                errors_.add_process(record.tgid, record.image_id, *places);
            if (bias)
                break;
        }
    }
    errors_.add_comm(record.tgid, record.image_id, record.comm);
}

void NcclSource::look_at_errors() {
    const NcclErrors::Told told = errors_.sample();
    keep_errors(told);
    if (may_be_of_queue_pairs(told) && options_.on_error)
        options_.on_error();
}

void NcclSource::look_at_text(std::uint32_t tgid) {
    const NcclErrors::Told told = errors_.sample_text(tgid);
    keep_errors(told);
    if (may_be_of_queue_pairs(told) && options_.on_error)
        options_.on_error();
}

void NcclSource::keep_errors(const NcclErrors::Told &told) {
    fresh_errors_.results.insert(fresh_errors_.results.end(), told.results.begin(),
                                 told.results.end());
    fresh_errors_.texts.insert(fresh_errors_.texts.end(), told.texts.begin(), told.texts.end());
}

void NcclSource::append_errors(RecordSink &sink, bool everything) {
    const auto append = [&sink](const NcclErrors::Told &told) {
        for (const cw_nccl_result &record : told.results)
            sink.append(record.header);
        for (const cw_nccl_last_error &record : told.texts)
            sink.append(record.header);
    };
    append(std::exchange(fresh_errors_, {}));
    if (everything)
        append(errors_.all());
}

} // namespace collwire
