// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/nccl/error_watch.h"

#include <string_view>

#include "collwire/nccl_error_records.h"
#include "userspace/nccl/memory/live_comms.h"

namespace collwire::sources {
namespace {

// How messages of NCCL's own RDMA network start.
constexpr std::string_view RDMA_NETWORK = "NET/IB";

bool may_be_of_queue_pairs(const NcclErrors::Found &found) {
    if (!found.results.empty())
        return true;
    for (const cw_nccl_last_error &text : found.texts)
        if (std::string_view{text.text}.starts_with(RDMA_NETWORK))
            return true;
    return false;
}

void append_to(source::RecordSink &sink, const NcclErrors::Found &found) {
    for (const cw_nccl_result &record : found.results)
        sink.append(record.header);
    for (const cw_nccl_last_error &record : found.texts)
        sink.append(record.header);
}

} // namespace

void ErrorWatch::add(const cw_nccl_comm &record) {
    const NcclLibrary *library = libraries_.find(record.image_id);
    if (library == nullptr)
        return;
    if (!errors_.has_process(record.tgid, record.image_id)) {
        process::ProcessView view{static_cast<pid_t>(record.tgid)};
        if (!view.refresh())
            return;
        for (const process::Mapping &mapping : view.mappings()) {
            if (!mapping.executable || libraries_.library_of(view.pid(), mapping) != library)
                continue;
            const auto bias = nccl::load_bias(library->layout, mapping);
            const auto places =
                bias ? nccl::find_error_places(library->layout, *bias) : std::nullopt;
            if (places)
                errors_.add_process(record.tgid, record.image_id, *places);
            if (bias)
                break;
        }
    }
    errors_.add_comm(record.tgid, record.image_id, record.comm);
}

void ErrorWatch::on_warning(std::uint32_t tgid) {
    errors_.on_warning(tgid);
    add_new(errors_.sample_text(tgid));
}

void ErrorWatch::remove(std::uint32_t tgid, std::uint64_t comm) {
    add_new(errors_.sample_text(tgid));
    errors_.forget(tgid, comm);
}

void ErrorWatch::add_new(const NcclErrors::Found &found) {
    new_.results.insert(new_.results.end(), found.results.begin(), found.results.end());
    new_.texts.insert(new_.texts.end(), found.texts.begin(), found.texts.end());
    if (may_be_of_queue_pairs(found) && on_queue_pair_error_)
        on_queue_pair_error_();
}

void ErrorWatch::append(source::RecordSink &sink, bool everything) {
    append_to(sink, std::exchange(new_, {}));
    if (everything)
        append_to(sink, errors_.all());
}

} // namespace collwire::sources
