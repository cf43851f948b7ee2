// SPDX-License-Identifier: Apache-2.0
#include "tools/trace-gen/nccl_rank.h"

#include <algorithm>
#include <iterator>

#include "base/set_text.h"
#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/nccl_layout.h"
#include "collwire/record_kinds.h"
#include "tools/trace-gen/made_record.h"

namespace collwire::trace_gen {
namespace {

constexpr std::uint32_t SIZES = 4; // a channel sends 1 to 4 packets per step
constexpr std::uint64_t FRAME_BYTES = 1024;
constexpr std::uint32_t FLOAT_BYTES = 4;
constexpr std::uint8_t NCCL_FLOAT32 = 7;
constexpr std::uint32_t VERSION = 22809;
constexpr std::uint64_t COMM = 0x7f0000c0de00;
constexpr std::uint64_t HASH = 0x5ca1ab1e0ddba11;
constexpr std::uint64_t BUFFER = 0x7f1000000000;
constexpr std::uint64_t CALL_TO_LAUNCH_NS = 2000;

std::uint64_t connection_at(std::uint32_t channel, bool send) {
    return (send ? 0x7f0000500000U : 0x7f0000400000U) + channel * std::uint64_t{0x1000};
}

std::uint64_t bytes_of(std::uint32_t size) {
    return (size + 1) * FRAME_BYTES;
}

std::uint64_t shape_of(std::uint32_t size) {
    return 0x5a00 + size;
}

} // namespace

std::uint64_t nccl_frames_a_second(std::uint32_t n_ranks, std::uint32_t collectives_a_second) {
    std::uint64_t frames = 0;
    for (std::uint32_t i = 0; i < (collectives_a_second + SIZES - 1) / SIZES * SIZES; i++)
        frames += (i % SIZES + 1) * (n_ranks - 1);
    return frames;
}

std::uint32_t nccl_send_qpn(std::uint32_t first_qpn, std::uint32_t channel) {
    return first_qpn + 2 * channel;
}

std::uint32_t nccl_receive_qpn(std::uint32_t first_qpn, std::uint32_t channel) {
    return first_qpn + 2 * channel + 1;
}

std::int32_t NcclRank::peer(bool send) const {
    return static_cast<std::int32_t>((options_.rank + (send ? 1 : options_.n_ranks - 1)) %
                                     options_.n_ranks);
}

void NcclRank::begin(source::RecordSink &sink, std::uint64_t time_ns) const {
    auto image = make<cw_nccl_image>(CW_KIND_NCCL_IMAGE, time_ns);
    image.image_id = 1;
    image.version = VERSION;
    std::fill(std::begin(image.rungs), std::end(image.rungs), std::uint8_t{CW_RUNG_EXACT});
    set_text(image.path, "/usr/lib/libnccl.so.2");
    sink.append(image.header);

    auto process = make<cw_nccl_process>(CW_KIND_NCCL_PROCESS, time_ns);
    process.tgid = options_.pid;
    process.image_id = 1;
    process.start_boottime_ns = options_.pid_start_ns;
    sink.append(process.header);

    auto comm = make<cw_nccl_comm>(CW_KIND_NCCL_COMM, time_ns);
    comm.tgid = comm.tid = options_.pid;
    comm.comm = COMM;
    comm.comm_hash = HASH;
    comm.start_boottime_ns = options_.pid_start_ns;
    comm.image_id = 1;
    comm.flags = CW_NCCL_COMM_CREATED | CW_NCCL_COMM_LAUNCHED;
    comm.rank = comm.node = static_cast<std::int32_t>(options_.rank);
    comm.n_ranks = comm.n_nodes = static_cast<std::int32_t>(options_.n_ranks);
    comm.local_ranks = 1;
    set_text(comm.name, "synthetic");
    sink.append(comm.header);

    for (std::uint32_t channel = 0; channel < options_.channels; channel++) {
        connection(sink, time_ns, channel, true);
        connection(sink, time_ns, channel, false);
    }
}

void NcclRank::connection(source::RecordSink &sink, std::uint64_t time_ns, std::uint32_t channel,
                          bool send) const {
    auto record = make<cw_nccl_connection>(CW_KIND_NCCL_CONNECTION, time_ns);
    record.tgid = record.tid = options_.pid;
    record.comm = COMM;
    record.connection = connection_at(channel, send);
    record.net_comm = record.connection + 0x100;
    record.transport = CW_NCCL_TRANSPORT_IB;
    record.flags = send ? std::uint32_t{CW_NCCL_CONNECTION_SEND} : 0U;
    record.rank = static_cast<std::int32_t>(options_.rank);
    record.peer = peer(send);
    record.channel = static_cast<std::int32_t>(channel);
    record.n_endpoints = record.n = 1;
    record.endpoints[0].number = send ? nccl_send_qpn(options_.first_qpn, channel)
                                      : nccl_receive_qpn(options_.first_qpn, channel);
    record.endpoints[0].role = send ? CW_NCCL_ROLE_DATA : CW_NCCL_ROLE_CLEAR_TO_SEND;
    sink.append(record.header);
}

void NcclRank::shape(source::RecordSink &sink, std::uint64_t time_ns, std::uint32_t size) const {
    auto task = make<cw_nccl_shape_task>(CW_KIND_NCCL_SHAPE_TASK, time_ns);
    task.comm = COMM;
    task.shape = shape_of(size);
    task.tgid = options_.pid;
    task.bytes = bytes_of(size) * options_.channels;
    task.count = task.bytes / FLOAT_BYTES;
    task.func = task.api_func = CW_NCCL_ALL_GATHER;
    task.datatype = NCCL_FLOAT32;
    task.algorithm = CW_NCCL_RING;
    task.protocol = CW_NCCL_SIMPLE;
    task.n_channels = static_cast<std::uint8_t>(options_.channels);
    sink.append(task.header);
    for (std::uint32_t i = 0; i < 2 * options_.channels; i++) {
        const bool send = i % 2 == 1;
        auto record = make<cw_nccl_shape_ops>(CW_KIND_NCCL_SHAPE_OPS, time_ns);
        record.comm = COMM;
        record.shape = shape_of(size);
        record.tgid = options_.pid;
        record.n_ops = 2 * options_.channels;
        record.first = i;
        record.n = 1;
        cw_nccl_op &op = record.ops[0];
        op.connection = connection_at(i / 2, send);
        op.nbytes = op.chunk_bytes = op.channel_bytes = bytes_of(size);
        op.nsteps = options_.n_ranks - 1;
        op.peer = peer(send);
        op.channel = static_cast<std::uint8_t>(i / 2);
        op.func = CW_NCCL_ALL_GATHER;
        op.pattern = CW_NCCL_PATTERN_RING;
        op.protocol = CW_NCCL_SIMPLE;
        op.algorithm = CW_NCCL_RING;
        op.slice_steps = op.chunk_steps = 1;
        op.datatype = NCCL_FLOAT32;
        sink.append(record.header);
    }
}

void NcclRank::run(source::RecordSink &sink, std::uint64_t begin_ns, std::uint64_t length_ns) {
    const std::uint32_t n = (options_.collectives_a_second + SIZES - 1) / SIZES * SIZES;
    for (std::uint32_t i = 0; i < n; i++) {
        const std::uint32_t size = i % SIZES;
        const std::uint64_t now_ns = begin_ns + 1000 + length_ns / n * i;
        auto call = make<cw_nccl_call>(CW_KIND_NCCL_CALL, now_ns);
        call.comm = COMM;
        call.tgid = call.tid = options_.pid;
        call.count = bytes_of(size) * options_.channels / FLOAT_BYTES;
        call.func = CW_NCCL_ALL_GATHER;
        call.datatype = NCCL_FLOAT32;
        call.arguments_hash = cw_nccl_arguments_hash(call.func, BUFFER, BUFFER,
                                                     bytes_of(size) * options_.channels, 0);
        sink.append(call.header);
        if (launched_ < SIZES)
            shape(sink, now_ns + CALL_TO_LAUNCH_NS, size);
        auto launch = make<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH, now_ns + CALL_TO_LAUNCH_NS);
        launch.comm = COMM;
        launch.tgid = launch.tid = options_.pid;
        launch.plan = 0x91a0 + size;
        launch.shape = shape_of(size);
        launch.launched = ++launched_;
        launch.n_ops = 2 * options_.channels;
        launch.n_tasks = 1;
        launch.flags = CW_NCCL_LAUNCH_LAUNCHED;
        launch.tasks[0] = {call.arguments_hash, static_cast<std::uint32_t>(launched_)};
        sink.append(launch.header);
    }
}

} // namespace collwire::trace_gen
