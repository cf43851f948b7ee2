// SPDX-License-Identifier: Apache-2.0
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "verbs_qp.skel.h"

#include "userspace/sources/verbs_qp_source.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include <bpf/bpf.h>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/set_text.h"
#include "userspace/inventory/process.h"
#include "userspace/loader/return_probes.h"
#include "userspace/netlink/rdma_netlink.h"
#include "userspace/process/process_view.h"
#include "userspace/verbs/control_path.h"

namespace collwire::sources {
namespace {

// From ib_core's record of a call to libibverbs'.
constexpr std::uint64_t MOST_CALL_NS = 10'000'000'000;
// enum ib_qp_type, enum ib_qp_state
constexpr std::uint8_t TYPE_RC = 2, TYPE_UC = 3, TYPE_XRC_INI = 9, TYPE_XRC_TGT = 10;
constexpr std::uint8_t STATE_RTR = 3, STATE_UNKNOWN = 0xff;

template <typename T> T copy_of(const cw_header &header) {
    T record{};
    std::memcpy(&record, &header, std::min<std::size_t>(sizeof(T), header.length_bytes));
    return record;
}

// rdma_get_udp_sport() in drivers/infiniband: mlx5, irdma, hns, mana. rdma_rxe has another rule
// before Linux 5.15, and bnxt_re chooses in firmware.
bool computes_source_port(std::string_view driver) {
    return driver.starts_with("mlx5") || driver.starts_with("irdma") || driver.starts_with("hns") ||
           driver.starts_with("mana");
}

bool is_connected(std::uint8_t type) {
    return type == TYPE_RC || type == TYPE_UC || type == TYPE_XRC_INI || type == TYPE_XRC_TGT;
}

} // namespace

VerbsQpSource::VerbsQpSource(const loader::SharedMaps &maps, VerbsQpOptions options)
    : maps_(maps), options_(std::move(options)), skeleton_("libibverbs probes"),
      libraries_(options_.pids, !loader::may_refuse_return_probes()) {}

VerbsQpSource::~VerbsQpSource() = default;

Result<void> VerbsQpSource::load() {
    if (auto opened = skeleton_.open(); !opened)
        return opened;
    skeleton_->rodata->filter_by_tgid = !options_.pids.empty();
    skeleton_->rodata->compared = options_.compare_only;
    skeleton_->rodata->has_returns = !loader::may_refuse_return_probes();
    return skeleton_.load(maps_);
}

Result<void> VerbsQpSource::prepare() {
    if (auto loaded = load(); !loaded) {
        failure_ = {CW_SOURCE_UNAVAILABLE, std::move(loaded).failure().message};
        return {};
    }
    for (const std::string &path : verbs::installed_libibverbs())
        (void)libraries_.add_installed(path);
    for (const pid_t pid : process::all_processes())
        (void)libraries_.scan(pid);
    return {};
}

std::vector<source::PlannedProbe> VerbsQpSource::probe_list() const {
    return libraries_.probe_list();
}

Result<void> VerbsQpSource::attach() {
    if (!skeleton_.is_loaded())
        return {};
    write_devices();
    const auto &all = skeleton_->progs;
    VerbsLibraries::Programs programs;
    programs.create = all.create_enter;
    programs.create_returns = all.create_return;
    programs.public_create_returns = all.public_create_return;
    programs.modify = all.modify_enter;
    programs.modify_returns = all.modify_return;
    programs.destroy = all.destroy_enter;
    programs.destroy_returns = all.destroy_return;
    programs.ack_event = all.ack_event;
    libraries_.attach(programs);
    attached_ = true;
    // Between prepare and now others may have begun to use RDMA.
    for (const pid_t pid : process::rdma_processes())
        (void)libraries_.scan(pid);
    if (!options_.compare_only)
        dump_existing();
    return {};
}

void VerbsQpSource::write_device(const inventory::RdmaDevice &device) {
    cw_verbs_device value = {};
    value.dev_index = device.record.dev_index;
    if (computes_source_port(device.record.driver))
        value.flags |= CW_VERBS_COMPUTED_SPORT;
    for (const inventory::RdmaPort &port : device.ports) {
        if (port.record.link_layer == CW_LINK_ETHERNET && port.record.port < 64)
            value.ethernet_ports |= std::uint64_t{1} << port.record.port;
        for (const cw_gid &gid : port.gids) {
            const cw_verbs_gid_key at = {value.dev_index, port.record.port, gid.gid_index};
            cw_verbs_gid entry = {};
            std::memcpy(entry.gid, gid.gid, sizeof(entry.gid));
            entry.type = gid.type;
            auto [known, is_new] =
                written_gids_.try_emplace({at.dev_index, at.port, at.gid_index}, entry);
            if (!is_new && std::memcmp(&known->second, &entry, sizeof(entry)) == 0)
                continue;
            known->second = entry;
            (void)bpf_map_update_elem(bpf_map__fd(skeleton_->maps.verbs_gids), &at, &entry,
                                      BPF_ANY);
        }
    }
    auto [known, is_new] = written_devices_.try_emplace(device.name, value);
    if (!is_new && std::memcmp(&known->second, &value, sizeof(value)) == 0)
        return;
    known->second = value;
    char name[CW_NAME_BYTES] = {};
    set_text(name, device.name);
    (void)bpf_map_update_elem(bpf_map__fd(skeleton_->maps.verbs_devices), name, &value, BPF_ANY);
}

void VerbsQpSource::write_devices() {
    for (const inventory::RdmaDevice &device : options_.devices())
        if (device.indexed)
            write_device(device);
}

void VerbsQpSource::dump_existing() {
    for (const inventory::RdmaDevice &device : options_.devices()) {
        if (!device.indexed)
            continue;
        const auto qps = netlink::dump_qps(device.record.dev_index);
        if (!qps) {
            dump_failure_ = fmt::format("{}: queue pairs from before the recording: {}",
                                        device.name, qps.failure().message);
            continue;
        }
        for (const netlink::NetlinkQp &qp : *qps)
            add_existing(qp, device.name);
    }
}

void VerbsQpSource::add_existing(const netlink::NetlinkQp &qp, const std::string &device) {
    // The kernel names the thread that made it.
    const auto owner =
        qp.pid ? process::process_of_thread(static_cast<pid_t>(*qp.pid)) : std::optional<pid_t>{};
    const std::uint32_t tgid = static_cast<std::uint32_t>(owner.value_or(0));
    if (!options_.pids.empty() && std::ranges::find(options_.pids, tgid) == options_.pids.end())
        return;
    const std::uint32_t qpn = qp.lqpn & CW_QPN_MASK;
    const std::uint64_t key = CW_VERBS_QP_KEY(qp.dev_index, qpn);
    cw_verbs_live_qp value = {};
    value.live.key = {qp.dev_index, qpn, monotonic_ns()};
    value.live.tgid = tgid;
    value.live.type = qp.type;
    value.live.state = qp.state;
    value.live.flags = CW_QP_PREEXISTING | CW_QP_FROM_VERBS;
    if (!qp.kernel_name.empty())
        value.live.flags |= CW_QP_KERNEL;
    else if (const auto start_ns = inventory::process_start_ns("", tgid); tgid != 0 && start_ns)
        value.live.start_boottime_ns = *start_ns;
    value.port = qp.port.value_or(0);
    const int fd = bpf_map__fd(skeleton_->maps.verbs_live_qps);
    if (bpf_map_update_elem(fd, &key, &value, BPF_NOEXIST) != 0) {
        // A probe was faster: created since, or changed.
        if (bpf_map_lookup_elem(fd, &key, &value) != 0 ||
            (value.live.flags & CW_QP_PREEXISTING) == 0)
            return;
    } else {
        (void)bpf_map_update_elem(maps_.live_qps_fd(), &key, &value.live, BPF_ANY);
    }
    cw_qp_event event = {};
    event.header = {sizeof(event), CW_KIND_QP_EXISTING, CW_CPU_USERSPACE, monotonic_ns()};
    event.key = value.live.key;
    event.tgid = value.live.tgid;
    event.start_boottime_ns = value.live.start_boottime_ns;
    event.flags = value.live.flags | CW_QP_FROM_NETLINK;
    event.user_handle = value.user_handle;
    event.qp_type = qp.type;
    event.old_state = event.new_state = qp.state;
    event.port = static_cast<std::uint8_t>(value.port);
    event.gid_type = CW_GID_UNKNOWN;
    event.pdn = qp.pdn.value_or(0);
    set_text(event.device, device);
    if (qp.sq_psn) {
        event.sq_psn = *qp.sq_psn;
        event.flags |= CW_QP_PSN_SQ;
    }
    // Before RTR the answer holds zeroes.
    if (is_connected(qp.type) && qp.state >= STATE_RTR && qp.state != STATE_UNKNOWN &&
        qp.rqpn.value_or(0) != 0) {
        event.dest_qpn = *qp.rqpn & CW_QPN_MASK;
        event.flags |= CW_QP_DEST;
        if (qp.rq_psn) {
            event.rq_psn = *qp.rq_psn;
            event.flags |= CW_QP_PSN_RQ;
        }
    }
    known_.take(event);
    paths_.add(event);
    options_.emit(event.header);
}

void VerbsQpSource::take_path(const source::QueuePairPath &path) {
    if (!attached_ || options_.compare_only)
        return;
    if (const auto event = paths_.take(path, known_, options_.devices())) {
        known_.take(*event);
        completed_.push_back(*event);
    }
}

std::uint64_t VerbsQpSource::unread(cw_verbs_unread reason) const {
    std::uint64_t n = 0;
    const std::uint32_t key = reason;
    if (skeleton_.is_loaded())
        (void)bpf_map_lookup_elem(bpf_map__fd(skeleton_->maps.verbs_unread), &key, &n);
    return n;
}

std::vector<source::SourceState> VerbsQpSource::states() const {
    if (failure_.state != CW_SOURCE_OFF)
        return {failure_};
    std::vector<std::string> problems = libraries_.problems();
    if (!dump_failure_.empty())
        problems.push_back(dump_failure_);
    if (loader::may_refuse_return_probes())
        problems.emplace_back("no probes at the ends of functions, since a seccomp filter could "
                              "kill the process: queue pairs appear at their first change, and "
                              "failed calls look as if they had succeeded. Fix: Linux 6.14, "
                              "6.13.3 or 6.12.14");
    if (const std::uint64_t n = unread(CW_VERBS_UNREAD_MEMORY); n != 0)
        problems.push_back(fmt::format("{} calls: their arguments could not be read", n));
    if (const std::uint64_t n = unread(CW_VERBS_UNREAD_DEVICE); n != 0)
        problems.push_back(fmt::format("{} calls: their device is not known here", n));
    if (libraries_.n_usable() == 0)
        problems.emplace_back("no process has libibverbs mapped, and none is installed here: "
                              "programs that link it statically are not seen");
    if (options_.compare_only && attached_) {
        if (problems.empty() && comparison_.agrees())
            return {{CW_SOURCE_ON, comparison_.text()}};
        problems.insert(problems.begin(), comparison_.text());
    }
    if (problems.empty())
        return {{CW_SOURCE_ON, {}}};
    std::string reason = problems.front();
    if (problems.size() > 1)
        reason += fmt::format("; {}", problems[1]);
    if (problems.size() > 2)
        reason += fmt::format(" (and {} more)", problems.size() - 2);
    return {{CW_SOURCE_DEGRADED, std::move(reason)}};
}

void VerbsQpSource::on_record(const cw_header &header) {
    if (!attached_ || has_ended_)
        return;
    if (header.kind == CW_KIND_FILE_MAPPED) {
        on_file_mapped(copy_of<cw_file_mapped>(header));
        return;
    }
    const bool is_compared = header.kind >= CW_KIND_COMPARED + CW_KIND_QP_CREATE &&
                             header.kind <= CW_KIND_COMPARED + CW_KIND_QP_ERROR;
    if (!is_compared && (header.kind < CW_KIND_QP_CREATE || header.kind > CW_KIND_QP_ERROR))
        return;
    auto event = copy_of<cw_qp_event>(header);
    if (is_compared) {
        event.header.kind = static_cast<__u16>(header.kind - CW_KIND_COMPARED);
        comparison_.add_verbs(event);
    } else if (options_.compare_only) {
        comparison_.add_kernel(event);
    } else if ((event.flags & CW_QP_FROM_VERBS) != 0) {
        known_.take(event);
    }
}

void VerbsQpSource::on_file_mapped(const cw_file_mapped &record) {
    // The process may not have completed its mapping yet: sample scans it again.
    const auto pid = static_cast<pid_t>(record.tgid);
    (void)libraries_.scan(pid);
    mapped_.add(pid, record.inode);
}

void VerbsQpSource::scan_mapped() {
    const auto unread = mapped_.scan([this](pid_t pid) { return libraries_.scan(pid); });
    if (!unread.empty() && options_.rearm_mappings)
        options_.rearm_mappings(unread);
}

void VerbsQpSource::poll_processes() {
    for (const pid_t pid : polls_.due(process::all_processes()))
        (void)libraries_.scan(pid);
}

void VerbsQpSource::append_destroyed_by_exit(source::RecordSink &sink) {
    std::map<std::uint32_t, std::uint64_t> owners;
    for (const auto &[key, event] : known_.all())
        if (event.tgid != 0 && event.start_boottime_ns != 0)
            owners.emplace(event.tgid, event.start_boottime_ns);
    std::set<std::uint32_t> exited;
    for (const auto &[tgid, start_ns] : owners)
        if (process::has_ended(static_cast<pid_t>(tgid), start_ns / inventory::clock_tick_ns()))
            exited.insert(tgid);
    // At the second sight: its last calls may be in the ring buffer.
    std::vector<cw_qp_event> gone;
    for (const auto &[key, event] : known_.all())
        if (exited.contains(event.tgid) && exited_.contains(event.tgid))
            gone.push_back(event);
    exited_ = std::move(exited);
    for (cw_qp_event &event : gone) {
        const std::uint64_t key = CW_VERBS_QP_KEY(event.key.dev_index, event.key.qpn);
        (void)bpf_map_delete_elem(bpf_map__fd(skeleton_->maps.verbs_live_qps), &key);
        (void)bpf_map_delete_elem(maps_.live_qps_fd(), &key);
        event.header = {sizeof(event), CW_KIND_QP_DESTROY, CW_CPU_USERSPACE, monotonic_ns()};
        event.tid = 0;
        event.attr_mask = 0;
        event.old_state = event.new_state;
        event.new_state = STATE_UNKNOWN;
        known_.take(event);
        sink.append(event.header);
        options_.emit(event.header);
    }
}

void VerbsQpSource::sample(source::RecordSink &sink, bool everything) {
    if (attached_ && !has_ended_) {
        write_devices();
        scan_mapped();
        if (!options_.has_mapping_records())
            poll_processes();
        else
            polls_.clear();
        const auto released = libraries_.release_unused(monotonic_ns());
        if (!released.empty() && options_.rearm_mappings)
            options_.rearm_mappings(released);
        append_destroyed_by_exit(sink);
        settle_comparison(monotonic_ns() - MOST_CALL_NS);
    }
    known_.append_errors(sink);
    if (everything) {
        libraries_.written(); // the recorder writes the probes itself
        known_.append_all(sink);
    } else {
        libraries_.append_new(sink);
        for (const cw_qp_event &event : completed_)
            sink.append(event.header);
    }
    completed_.clear();
}

void VerbsQpSource::settle_comparison(std::uint64_t until_ns) {
    comparison_.settle(until_ns, [](const cw_qp_event &event) {
        return process::has_ended(static_cast<pid_t>(event.tgid),
                                  event.start_boottime_ns / inventory::clock_tick_ns());
    });
}

void VerbsQpSource::end() {
    settle_comparison(monotonic_ns());
    has_ended_ = true;
}

std::vector<source::ProbeGroup> VerbsQpSource::probe_groups() const {
    auto programs = libraries_.programs();
    if (programs.empty())
        return {};
    return {{"probes", source::ProbeUse::Control, std::move(programs)}};
}

void VerbsQpSource::take_off(std::string_view, std::string reason) {
    libraries_.start_taking_off();
    failure_ = {CW_SOURCE_DEGRADED, std::move(reason)};
}

void VerbsQpSource::detach() {
    has_ended_ = true;
    libraries_.detach();
}

} // namespace collwire::sources
