// SPDX-License-Identifier: Apache-2.0
#include "collwire/loss_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "qp.skel.h"

#include "userspace/sources/qp_source.h"

#include <algorithm>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "collwire/tables.h"
#include "userspace/loader/twice.h"
#include "userspace/netlink/rdma_netlink.h"

namespace collwire::sources {
namespace {

std::vector<loader::Hook> qp_hooks() {
    return {
        {.function = "rdma_restrack_add",
         .parameters = 1,
         .fentry = "restrack_add_fentry",
         .fexit = {},
         .kprobe = "restrack_add_kprobe",
         .kretprobe = {},
         .fentry_again = "restrack_add_fentry_again"},
        {.function = "ib_destroy_qp_user",
         .parameters = 2,
         .fentry = "destroy_fentry",
         .fexit = "destroy_fexit",
         .kprobe = "destroy_kprobe",
         .kretprobe = "destroy_kretprobe",
         .fentry_again = "destroy_fentry_again",
         .fexit_again = "destroy_fexit_again"},
        {.function = "ib_modify_qp_with_udata",
         .parameters = 4,
         .fentry = {},
         .fexit = "user_modify_fexit",
         .kprobe = "user_modify_kprobe",
         .kretprobe = "user_modify_kretprobe",
         .fexit_again = "user_modify_fexit_again"},
        {.function = "_ib_modify_qp",
         .parameters = 4,
         .fentry = {},
         .fexit = "kernel_modify_fexit",
         .kprobe = "kernel_modify_kprobe",
         .kretprobe = "kernel_modify_kretprobe",
         .fexit_again = "kernel_modify_fexit_again",
         .without = "state changes of queue pairs of the kernel are missing"},
        {.function = "ib_query_qp",
         .parameters = 4,
         .fentry = {},
         .fexit = "query_fexit",
         .kprobe = "query_kprobe",
         .kretprobe = "query_kretprobe",
         .fexit_again = "query_fexit_again",
         .without = "pre-existing queue pairs have no address"},
        {.function = "ib_uverbs_qp_event_handler",
         .parameters = 2,
         .fentry = "qp_event_fentry",
         .fexit = {},
         .kprobe = "qp_event_kprobe",
         .kretprobe = {},
         .fentry_again = "qp_event_fentry_again",
         .without = "errors of queue pairs appear at their next state change only"},
    };
}

// Without these the life of a queue pair is not known.
constexpr std::string_view needed[] = {"rdma_restrack_add", "ib_destroy_qp_user",
                                       "ib_modify_qp_with_udata"};

} // namespace

QpSource::QpSource(const loader::SharedMaps &maps, QpSourceOptions options)
    : ProbedSource(maps, "qp", qp_hooks(), options.mode), options_(std::move(options)) {}

QpSource::~QpSource() = default;

bool QpSource::applicable() {
    if (!loader::module_is_loaded("ib_core"))
        return unusable(
            CW_SOURCE_UNAVAILABLE,
            "no RDMA on this kernel (ib_core is not loaded). Fix: load the RDMA driver of the NIC");
    if (!options_.off.empty())
        return unusable(CW_SOURCE_OFF, options_.off);
    if (!options_.layout_unknown.empty())
        return unusable(CW_SOURCE_REFUSED,
                        options_.layout_unknown +
                            (options_.has_other_source
                                 ? ": queue pairs are read from libibverbs instead"
                                 : ": queue pairs are not traced, port counters are") +
                            ". Fix: load the in-tree ib_core, or rebuild that module with BTF");
    return true;
}

bool QpSource::configure() {
    for (const auto function : needed)
        if (!need(function))
            return false;
    struct stat pid_namespace = {};
    if (stat("/proc/self/ns/pid", &pid_namespace) != 0)
        return unusable(CW_SOURCE_UNAVAILABLE,
                        "/proc/self/ns/pid cannot be read. Fix: mount /proc");
    skeleton_->rodata->recorder_pidns_dev = pid_namespace.st_dev;
    skeleton_->rodata->recorder_pidns_ino = pid_namespace.st_ino;
    skeleton_->rodata->recorder_tgid = static_cast<std::uint32_t>(getpid());
    skeleton_->rodata->filter_by_tgid = options_.filter_by_tgid;
    return true;
}

Result<void> QpSource::on_attached() {
    auto netlink = netlink::RdmaNetlink::open();
    if (!netlink) {
        degrade(netlink.failure().message);
        return {};
    }
    auto devices = netlink->devices();
    if (!devices) {
        degrade(devices.failure().message);
        return {};
    }
    std::vector<netlink::NetlinkQp> dumped;
    for (const auto &device : *devices) {
        auto qps = netlink->dump_qps(device.dev_index);
        if (!qps) {
            degrade(device.name + ": " + qps.failure().message);
            continue;
        }
        std::ranges::move(*qps, std::back_inserter(dumped));
    }
    if (hooks_.present("ib_query_qp"))
        check_dump(dumped);
    return {};
}

void QpSource::check_dump(const std::vector<netlink::NetlinkQp> &dumped) {
    // Every queue pair of the netlink dump was read by our own probe as well: the two must agree.
    const auto living = maps_.live_qps();
    std::unordered_map<std::uint64_t, std::uint32_t> types;
    for (const cw_live_qp &live : living.value_or(std::vector<cw_live_qp>{}))
        types.emplace(device_and_qpn(live.key.dev_index, live.key.qpn), live.type);
    std::size_t n_read = 0;
    for (const auto &qp : dumped) {
        const auto known = types.find(device_and_qpn(qp.dev_index, qp.lqpn & CW_QPN_MASK));
        if (known != types.end() && (qp.type == 0xff || known->second == qp.type))
            ++n_read;
        if (qp.rqpn)
            netlink_destinations_.emplace(device_and_qpn(qp.dev_index, qp.lqpn & CW_QPN_MASK),
                                          *qp.rqpn);
    }
    // With a filter only some are read; without it all but those that were destroyed meanwhile.
    const bool none = n_read == 0 && !dumped.empty() && !options_.filter_by_tgid;
    const bool too_few = !options_.filter_by_tgid && n_read * 2 < dumped.size();
    if (!living || (!none && !too_few))
        return;
    refuse("the layout of ib_core differs from its BTF: of " + std::to_string(dumped.size()) +
           " queue pairs in RDMA netlink the probe agrees on " + std::to_string(n_read) +
           ". Fix: boot the kernel that the modules were built for");
    maps_.discard_events();
}

void QpSource::on_record(const cw_header &header) {
    if (header.kind < CW_KIND_QP_CREATE || header.kind > CW_KIND_QP_ERROR)
        return;
    cw_qp_event event;
    std::memcpy(&event, &header, sizeof(event));
    if ((event.flags & CW_QP_FROM_VERBS) != 0)
        return; // VerbsQpSource keeps them
    if (header.kind == CW_KIND_QP_EXISTING && event.result == 0 &&
        (event.flags & CW_QP_DEST) != 0) {
        const auto destination =
            netlink_destinations_.find(device_and_qpn(event.key.dev_index, event.key.qpn));
        if (destination != netlink_destinations_.end() && destination->second != event.dest_qpn)
            refuse("the layout of ib_core differs from its BTF: destination of queue pair " +
                   std::to_string(event.key.qpn) + " is " + std::to_string(event.dest_qpn) +
                   ", in RDMA netlink " + std::to_string(destination->second));
    }
    known_.take(event);
}

std::uint64_t QpSource::missed() const {
    auto n = hooks_.missed();
    if (skeleton_.is_loaded())
        n += calls_unseen_by_both(hooks_, bpf_map__fd(skeleton_->maps.twice), false);
    return n;
}

void QpSource::sample(source::RecordSink &sink, bool everything) {
    if (skeleton_.is_loaded())
        loader::forget_old_calls(bpf_map__fd(skeleton_->maps.marks), sizeof(cw_mark_key),
                                 sizeof(cw_mark));
    known_.append_errors(sink);
    if (!everything)
        return;
    forget_destroyed();
    known_.append_all(sink);
}

// The event that a queue pair was destroyed may have been lost; the kernel's table knows. Those of
// DEVX were never in it, and where it was full it does not hold every other.
void QpSource::forget_destroyed() {
    for (const source::LossCount &loss : maps_.losses())
        if (loss.loss_class == CW_LOSS_QP_TABLE)
            return;
    const auto living = maps_.live_qps();
    if (!living)
        return;
    QpMap<bool> live;
    for (const cw_live_qp &qp : *living)
        live.emplace(qp.key, true);
    known_.forget([&live](const cw_qp_event &known) {
        return (known.flags & CW_QP_DEVX) == 0 && !live.contains(known.key);
    });
}

} // namespace collwire::sources
