// SPDX-License-Identifier: Apache-2.0
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_error_records.h"
// Gathers processes and NCCL's errors in them.
#include "correlate/capture/reader.h"
#include "correlate/nccl/gather.h"

namespace collwire::nccl {

using capture::record_as;
using capture::text_of;

namespace {

// A process that warns in a loop has 64 a second of up to 0.8 KiB.
constexpr std::uint64_t MAX_ERRORS = 100'000;

} // namespace

bool Gather::add_process(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_process>(record);
    if (counts_.processes++ >= MAX_OTHER_RECORDS)
        return false;
    if (from.gone_ns != 0)
        gathered_.ended_processes.push_back(
            {session, from.tgid, from.image_id, from.there_ns, from.gone_ns});
    else
        gathered_.processes.push_back(
            {session, from.tgid, from.image_id, from.start_boottime_ns, from.header.time_ns});
    return true;
}

bool Gather::add_result(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_result>(record);
    if (counts_.errors++ >= MAX_ERRORS)
        return false;
    gathered_.results.push_back(
        {session, from.tgid, from.comm, from.header.time_ns, from.before_ns, from.result, from.of});
    return true;
}

bool Gather::add_last_error(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_last_error>(record);
    if (counts_.errors++ >= MAX_ERRORS)
        return false;
    gathered_.last_errors.push_back(
        {session, from.tgid, from.header.time_ns, from.before_ns, std::string(text_of(from.text))});
    return true;
}

bool Gather::add_warning(Index session, std::span<const std::byte> record) {
    const auto from = record_as<cw_nccl_warning>(record);
    if (counts_.errors++ >= MAX_ERRORS)
        return false;
    gathered_.warnings.push_back({session, from.tgid, from.header.time_ns, from.tid, from.line,
                                  std::string(text_of(from.file)),
                                  std::string(text_of(from.format)),
                                  std::string(text_of(from.earlier))});
    return true;
}

} // namespace collwire::nccl
