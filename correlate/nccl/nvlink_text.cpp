// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/nvlink_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "correlate/capture/reader.h"
#include "correlate/nccl/describe.h"

namespace collwire::nccl {

using model::Model;

namespace {

constexpr std::size_t OPERATIONS_SHOWN = 4;

std::string gpu_text(const Model &model, const XidError &error) {
    return fmt::format("GPU {} on {}", bus_id_text(error.record.bus_id),
                       model.hosts[error.host].name);
}

std::string link_text(const XidError &error) {
    return error.record.link < 0 ? "" : fmt::format(", link {}", error.record.link);
}

std::string operation_text(const Model &model, const OperationAtFailure &at) {
    const Operation &operation =
        (at.is_pair ? model.nccl.p2p : model.nccl.collectives)[at.operation];
    return fmt::format("{} seq {} of communicator {}{}", func_text(operation.func), operation.seq,
                       operation.comm,
                       at.is_in_flight ? "" : " (the last one launched; its end is not known)");
}

// "7 other GPU(s) report Xid 145, 3 report Xid 45, within 0.4 s: they follow"
std::string followers_text(const Model &model, const gpu::NvlinkFailure &failure) {
    const auto &errors = model.nccl.nvlink.errors;
    const XidError &first = errors[failure.first];
    std::map<std::uint32_t, std::set<std::pair<Index, std::uint64_t>>> gpus; // by Xid
    std::uint64_t last_ns = first.realtime_ns;
    for (const std::size_t i : failure.errors) {
        last_ns = std::max(last_ns, errors[i].realtime_ns);
        if (std::pair(errors[i].host, std::uint64_t{errors[i].record.bus_id}) !=
            std::pair(first.host, std::uint64_t{first.record.bus_id}))
            gpus[errors[i].record.xid].insert({errors[i].host, errors[i].record.bus_id});
    }
    if (gpus.empty())
        return {};
    std::string text;
    for (const auto &[xid, of] : gpus)
        text += fmt::format("{}{} other GPU(s) report Xid {}", text.empty() ? "" : ", ", of.size(),
                            xid);
    return fmt::format("{}, the last {:.1f} s later", text,
                       static_cast<double>(last_ns - first.realtime_ns) * 1e-9);
}

} // namespace

std::string_view nvlink_cause_name(gpu::NvlinkCause cause) {
    switch (cause) {
    case gpu::NvlinkCause::Known:
        return "known";
    case gpu::NvlinkCause::Several:
        return "several";
    case gpu::NvlinkCause::NotCaptured:
        break;
    }
    return "not_captured";
}

std::string_view nvlink_source_name(const gpu::NvlinkByteSource &source) {
    switch (source.extent) {
    case gpu::NvlinkExtent::Payload:
        return "payload";
    case gpu::NvlinkExtent::WithOverhead:
        return "with overhead";
    case gpu::NvlinkExtent::Undocumented:
        break;
    }
    return "link bytes";
}

std::string xid_text(const Model &model, const XidError &error) {
    const std::string_view unit = capture::text_of(error.record.unit);
    std::string what(unit);
    const auto add = [&what](std::string_view word) {
        what += fmt::format("{}{}", what.empty() ? "" : ", ", word);
    };
    if ((error.record.flags & CW_XID_FATAL) != 0)
        add("fatal");
    if ((error.record.flags & CW_XID_NONFATAL) != 0)
        add("nonfatal");
    if (error.record.caused_by != 0)
        add(fmt::format("the driver names Xid {} as its cause", error.record.caused_by));
    return fmt::format("{}{}: Xid {}{}", gpu_text(model, error), link_text(error), error.record.xid,
                       what.empty() ? "" : " (" + what + ")");
}

std::string nvlink_failure_text(const Model &model, const NvlinkFailureFacts &of) {
    const auto &errors = model.nccl.nvlink.errors;
    const gpu::NvlinkFailure &failure = of.failure;
    const XidError &first = errors[failure.first];
    std::string text;
    switch (failure.cause) {
    case gpu::NvlinkCause::Known:
        text = "NVLink failed, first at " + xid_text(model, first);
        break;
    case gpu::NvlinkCause::Several:
        text = "NVLink failed at several GPUs, and the times do not say which was first: " +
               xid_text(model, first);
        for (const std::size_t i : failure.others)
            text += "; " + xid_text(model, errors[i]);
        break;
    case gpu::NvlinkCause::NotCaptured:
        text = "NVLink failed at a GPU that no capture has: its peers report " +
               xid_text(model, first);
        break;
    }
    if (const std::string followers = followers_text(model, failure); !followers.empty())
        text += ". " + followers +
                (failure.cause == gpu::NvlinkCause::Known ? ": they follow from it" : "");
    if ((first.record.flags & CW_XID_BEFORE) != 0)
        return text + ". It was before the recording. Fix: nvidia-smi nvlink -s shows the links";
    std::string operations;
    for (std::size_t i = 0; i < std::min(of.operations.size(), OPERATIONS_SHOWN); ++i)
        operations +=
            fmt::format("{}{}", i == 0 ? "" : ", ", operation_text(model, of.operations[i]));
    if (of.operations.size() > OPERATIONS_SHOWN)
        operations += fmt::format(" and {} more", of.operations.size() - OPERATIONS_SHOWN);
    if (!operations.empty())
        text += ". In flight on these GPUs: " + operations;
    return text + ". Fix: drain the node, and check or reset that GPU and link";
}

} // namespace collwire::nccl
