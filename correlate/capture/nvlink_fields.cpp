// SPDX-License-Identifier: Apache-2.0
// The fields of records of NVLink.
#include <array>

#include "collwire/nvlink_records.h"
#include "collwire/record_kinds.h"
#include "correlate/capture/field_builder.h"
#include "correlate/capture/nvlink_names.h"

namespace collwire::capture {
namespace {

constexpr auto GPU = std::to_array<Field>({
    FIELD(cw_nvlink_gpu, gpu),
    FIELD(cw_nvlink_gpu, epoch),
    FIELD(cw_nvlink_gpu, bus_id),
    FIELD(cw_nvlink_gpu, links),
    FIELD(cw_nvlink_gpu, result),
    FIELD(cw_nvlink_gpu, uuid),
    FIELD(cw_nvlink_gpu, name),
    FIELD(cw_nvlink_gpu, driver),
    FIELD(cw_nvlink_gpu, nvlink_peers),
    FIELD(cw_nvlink_gpu, other_peers),
});

constexpr auto SAMPLE = std::to_array<Field>({
    FIELD(cw_nvlink_sample, read_begin_ns),
    FIELD(cw_nvlink_sample, gpu),
    FIELD(cw_nvlink_sample, epoch),
    FIELD(cw_nvlink_sample, n),
    FIELD(cw_nvlink_sample, reserved).as(FieldType::Reserved),
});

constexpr auto GAP = std::to_array<Field>({
    FIELD(cw_nvlink_gap, begin_ns),
    FIELD(cw_nvlink_gap, gpu),
    FIELD(cw_nvlink_gap, reason).named(nvlink_gap_name),
    FIELD(cw_nvlink_gap, result),
    FIELD(cw_nvlink_gap, reserved).as(FieldType::Reserved),
});

constexpr auto XID = std::to_array<Field>({
    FIELD(cw_xid, after_ns),
    FIELD(cw_xid, kernel_ns),
    FIELD(cw_xid, sequence),
    FIELD(cw_xid, bus_id),
    FIELD(cw_xid, xid),
    FIELD(cw_xid, link),
    FIELD(cw_xid, flags).flags(xid_flag_names),
    FIELD(cw_xid, pid),
    FIELD(cw_xid, caused_by),
    FIELD(cw_xid, n_registers),
    FIELD(cw_xid, registers).used_by(FIELD(cw_xid, n_registers)),
    FIELD(cw_xid, unit),
    FIELD(cw_xid, text),
});

} // namespace

const RecordLayout *nvlink_layout_of(std::uint64_t kind) {
    switch (kind) {
    case CW_KIND_NVLINK_GPU:
        return layout<cw_nvlink_gpu, GPU>("cw_nvlink_gpu");
    case CW_KIND_NVLINK_SAMPLE:
        return layout<cw_nvlink_sample, SAMPLE>("cw_nvlink_sample");
    case CW_KIND_NVLINK_GAP:
        return layout<cw_nvlink_gap, GAP>("cw_nvlink_gap");
    case CW_KIND_XID:
        return layout<cw_xid, XID>("cw_xid");
    default:
        return nullptr;
    }
}

} // namespace collwire::capture
