// SPDX-License-Identifier: Apache-2.0
// The rings and trees of communicators, of which a program can make up 16 MiB for each.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "collwire/record.h"
#include "userspace/nccl/memory/channels.h"
#include "userspace/sources/nccl/source.h"

namespace collwire {
namespace {

// Of all communicators. 500 of 4,096 ranks with 32 channels have so much.
constexpr std::size_t MAX_BYTES = 256U << 20U;
// In a sample, more or less; a segment begins with all of them.
constexpr std::size_t MAX_SAMPLE_BYTES = 64U << 20U;

std::size_t bytes_of(const std::vector<std::vector<std::byte>> &channels) {
    std::size_t sum = 0;
    for (const std::vector<std::byte> &channel : channels)
        sum += channel.size();
    return sum;
}

} // namespace

std::string NcclSource::channels_problem() {
    return fmt::format("the rings and trees of all communicators take more than {} MiB: of some "
                       "they are not known, or not the order of ranks. Fix: --pid",
                       MAX_BYTES >> 20U);
}

void NcclSource::read_channels(Comm &comm, const NcclImage &image) {
    const ProcessView view{static_cast<pid_t>(comm.record.tgid)};
    comm.channels =
        nccl::read_channels(view, image.plan, comm.record,
                            MAX_BYTES - std::min(channel_bytes_, MAX_BYTES), &are_channels_cut_);
    comm.has_fresh_channels = !comm.channels.empty();
    channel_bytes_ += bytes_of(comm.channels);
}

// Those that were not told of yet are of a communicator that has ended, or is read anew: they are
// told of with the next sample.
void NcclSource::drop_channels(Comm &comm) {
    const std::size_t bytes = bytes_of(comm.channels);
    if (comm.has_fresh_channels && fresh_channel_bytes_ < MAX_SAMPLE_BYTES) {
        std::ranges::move(comm.channels, std::back_inserter(fresh_));
        fresh_channel_bytes_ += bytes;
    } else {
        are_channels_cut_ = are_channels_cut_ || comm.has_fresh_channels;
        channel_bytes_ -= bytes;
    }
    comm.channels.clear();
    comm.has_fresh_channels = false;
}

void NcclSource::append_fresh_channels(RecordSink &sink) {
    std::size_t bytes = 0;
    for (auto &[key, comm] : comms_) {
        if (!comm.has_fresh_channels)
            continue;
        // The others with the next sample, unless there is none.
        if (bytes >= MAX_SAMPLE_BYTES && !ended_)
            return;
        for (const Bytes &channel : comm.channels)
            sink.append(*reinterpret_cast<const cw_header *>(channel.data()));
        bytes += bytes_of(comm.channels);
        comm.has_fresh_channels = false;
    }
}

} // namespace collwire
