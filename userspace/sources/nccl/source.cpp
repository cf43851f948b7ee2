// SPDX-License-Identifier: Apache-2.0
#include "collwire/loss_records.h"
#include "collwire/nccl_error_records.h"
#include "collwire/nccl_layout.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "collwire/recorder_records.h"
// Behind it: the skeleton names its type.
#include "nccl.skel.h"

#include "userspace/sources/nccl/source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <bpf/bpf.h>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/set_text.h"
#include "collwire/nccl_tables.h"
#include "userspace/inventory/process.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/memory/parameters.h"
#include "userspace/source/probe_record.h"

namespace collwire {
namespace {

// Reading what a process has mapped takes 0.1 to 1 ms.
constexpr unsigned YOUNG_LOOKS = 60;
constexpr unsigned LATER_LOOKS = 30;

// Before, a connection counts the steps of an operation when it is done.
constexpr std::uint32_t FIRST_THAT_COUNTS_AT_BEGIN = 22000;

template <typename T> T copy_of(const cw_header &header) {
    T record{};
    std::memcpy(&record, &header, std::min<std::size_t>(sizeof(T), header.length_bytes));
    return record;
}

cw_nccl_process process_record(std::uint32_t tgid, std::uint32_t image_id,
                               std::uint64_t start_boottime_ns) {
    cw_nccl_process record = {};
    record.header = {sizeof(record), CW_KIND_NCCL_PROCESS, CW_CPU_USERSPACE, monotonic_ns()};
    record.tgid = tgid;
    record.image_id = image_id;
    record.start_boottime_ns = start_boottime_ns;
    return record;
}

cw_nccl_param parameter_record(std::uint32_t tgid, std::uint32_t image_id, std::string_view name,
                               std::int64_t value) {
    cw_nccl_param record = {};
    record.header = {sizeof(record), CW_KIND_NCCL_PARAM, CW_CPU_USERSPACE, monotonic_ns()};
    record.tgid = tgid;
    record.image_id = image_id;
    record.value = value;
    set_text(record.name, name);
    return record;
}

std::optional<NcclPlugins::QpNumbers> qp_numbers(const SharedMaps &maps) {
    const auto live = maps.live_qps();
    if (!live)
        return std::nullopt;
    NcclPlugins::QpNumbers numbers;
    for (const cw_live_qp &qp : *live)
        numbers[qp.tgid].insert(qp.key.qpn);
    return numbers;
}

void append(RecordSink &sink, const std::vector<std::byte> &record) {
    sink.append(*reinterpret_cast<const cw_header *>(record.data()));
}

} // namespace

NcclSource::NcclSource(const SharedMaps &maps, NcclOptions options)
    : options_(std::move(options)),
      images_(maps, options_.probes, options_.spare_unused_ns, options_.tell_again),
      plugins_([&maps] { return qp_numbers(maps); }) {}

NcclSource::~NcclSource() = default;

Result<void> NcclSource::prepare() {
    for (const std::string &file : options_.files)
        if (auto added = images_.add_file(file); !added)
            return added;
    again_ = images_.look_at(images_.processes()).again;
    return {};
}

std::vector<PlannedProbe> NcclSource::plan() const {
    std::vector<PlannedProbe> probes;
    for (const auto &image : images_.all())
        probes.insert(probes.end(), image->probes.begin(), image->probes.end());
    return probes;
}

Result<void> NcclSource::attach() {
    images_.attach();
    // Those that came between prepare and now.
    const auto pids = images_.processes();
    again_ = images_.look_at(pids).again;
    if (!images_.all().empty())
        look_into(pids, 0);
    return {};
}

std::vector<SourceState> NcclSource::states() const {
    auto problems = images_.problems();
    if (is_cut_)
        problems.emplace_back("a process has more communicators, ranks or connections than are "
                              "read from its memory: the others are met with their first calls and "
                              "launches. Fix: start the recording before the job");
    if (are_channels_cut_)
        problems.push_back(channels_problem());
    if (const std::size_t n = plugins_.dropped() + (ended_ ? plugins_.waiting() : 0); n != 0)
        problems.push_back(plugins_problem(n));
    if (problems.empty())
        return {{CW_SOURCE_ON, {}}};
    std::string reason = problems.front();
    if (problems.size() > 1)
        reason += fmt::format(" (and {} more)", problems.size() - 1);
    return {{CW_SOURCE_DEGRADED, std::move(reason)}};
}

void NcclSource::keep(const CommKey &key, const cw_nccl_connection &connection) {
    const auto found = comms_.find(key);
    if (found == comms_.end())
        return;
    const auto *begin = reinterpret_cast<const std::byte *>(&connection);
    found->second.connections.insert_or_assign({connection.connection, connection.first},
                                               Bytes(begin, begin + sizeof(connection)));
    note_plugin(key, found->second, connection);
}

void NcclSource::on_comm(const cw_nccl_comm &record) {
    const ProcessKey key = {record.tgid, record.image_id};
    const auto [entry, is_new] = processes_.try_emplace(key);
    Process &process = entry->second;
    const auto pid = static_cast<pid_t>(record.tgid);
    if (is_new || !same_start(process.start_boottime_ns, record.start_boottime_ns)) {
        process = {
            start_ticks(pid).value_or(0), record.start_boottime_ns, {}, false, monotonic_ns()};
        const cw_nccl_process told =
            process_record(key.tgid, key.image_id, process.start_boottime_ns);
        const auto *begin = reinterpret_cast<const std::byte *>(&told);
        fresh_.emplace_back(begin, begin + sizeof(told));
    }
    look_at_parameters(key, process);
    Comm &comm = comms_[{record.tgid, record.comm}];
    drop_channels(comm);
    // Its creation may end when it was read from the outside already.
    if ((comm.record.flags & CW_NCCL_COMM_OUTSIDE) == 0 ||
        comm.record.comm_hash != record.comm_hash || comm.record.rank != record.rank)
        comm = {};
    comm.record = record;
    watch_errors(record);
    if (const NcclImage *image = images_.find(record.image_id))
        read_channels(comm, *image);
}

void NcclSource::on_comm_end(const CommKey &key) {
    if (const auto found = comms_.find(key); found != comms_.end()) {
        drop_channels(found->second);
        comms_.erase(found);
    }
    steps_.forget(key.tgid, key.comm);
    plugins_.forget({key.tgid, key.comm});
    // Whoever gives up on an error ends its communicators next.
    look_at_text(key.tgid);
    errors_.forget(key.tgid, key.comm);
}

void NcclSource::on_record(const cw_header &header) {
    switch (header.kind) {
    case CW_KIND_FILE_MAPPED: {
        const auto record = copy_of<cw_file_mapped>(header);
        told_.push_back({static_cast<pid_t>(record.tgid), record.inode, false});
        look_at({told_.back().pid});
        break;
    }
    case CW_KIND_NCCL_COMM: {
        const auto record = copy_of<cw_nccl_comm>(header);
        on_comm(record);
        tell_waiting(record);
        break;
    }
    case CW_KIND_NCCL_COMM_END: {
        const auto record = copy_of<cw_nccl_comm_end>(header);
        on_comm_end({record.tgid, record.comm});
        break;
    }
    case CW_KIND_NCCL_CONNECTION: {
        const auto record = copy_of<cw_nccl_connection>(header);
        const CommKey key = {record.tgid, record.comm};
        keep(key, record);
        if (plugins_.is_due()) // a communicator may be gone by the next sample
            look_at_plugins();
        watch_steps(record, key);
        // What connections are made with was read for the first of them.
        if (const auto comm = comms_.find(key); comm != comms_.end())
            if (const auto process = processes_.find({key.tgid, comm->second.record.image_id});
                process != processes_.end())
                process->second.may_have_more = true;
        break;
    }
    case CW_KIND_NCCL_LAUNCH: {
        const auto record = copy_of<cw_nccl_launch>(header);
        shapes_.use(record.tgid, record.shape);
        break;
    }
    case CW_KIND_NCCL_WARNING: {
        const auto record = copy_of<cw_nccl_warning>(header);
        errors_.note_warning(record.tgid);
        look_at_text(record.tgid);
        break;
    }
    case CW_KIND_NCCL_SHAPE_TASK:
        shapes_.keep(copy_of<cw_nccl_shape_task>(header));
        break;
    case CW_KIND_NCCL_SHAPE_OPS: {
        const auto record = copy_of<cw_nccl_shape_ops>(header);
        shapes_.keep(record);
        note_elsewhere(record);
        break;
    }
    default:
        break;
    }
}

void NcclSource::look_at_parameters(const ProcessKey &key, Process &process) {
    process.may_have_more = false;
    const NcclImage *image = images_.find(key.image_id);
    ProcessView view{static_cast<pid_t>(key.tgid)};
    if (image == nullptr || image->plan.parameters.empty() || !view.refresh())
        return;
    for (const Mapping &mapping : view.mappings()) {
        if (!mapping.executable || images_.image_of(view.pid(), mapping) != image)
            continue;
        const auto bias = nccl::load_bias(image->plan, mapping);
        if (!bias)
            continue;
        for (const auto &[name, value] : nccl::read_parameters(view, image->plan, *bias)) {
            const auto [known, is_new] = process.parameters.try_emplace(name, value);
            if (!is_new && known->second == value)
                continue;
            known->second = value;
            const cw_nccl_param told = parameter_record(key.tgid, key.image_id, name, value);
            const auto *begin = reinterpret_cast<const std::byte *>(&told);
            fresh_.emplace_back(begin, begin + sizeof(told));
        }
        return;
    }
}

void NcclSource::append_images(RecordSink &sink, bool everything) {
    for (const auto &each : images_.all()) {
        const NcclImage &image = *each;
        if (!everything && image.id <= last_told_)
            continue;
        last_told_ = std::max(last_told_, image.id);
        cw_nccl_image record = {};
        record.header = {sizeof(record), CW_KIND_NCCL_IMAGE, CW_CPU_USERSPACE, monotonic_ns()};
        record.image_id = image.id;
        record.version = nccl::version_number(image.plan.version);
        record.inode = image.status.identity.inode;
        nccl::put_rungs(image.plan, record);
        set_text(record.build_id, image.plan.build_id);
        set_text(record.path, image.path);
        set_text(record.reason, image.problem);
        if (image.problem.empty() || image.placed_ns != 0)
            set_text(record.basis,
                     nccl::basis_of(image.plan, "operations", sizeof(record.basis) - 1));
        sink.append(record.header);
        if (everything)
            continue; // the recorder tells of the probes itself
        for (const PlannedProbe &planned : image.probes) {
            const cw_probe probe = probe_record(planned, image.placed_ns);
            sink.append(probe.header);
        }
    }
}

void NcclSource::sample(RecordSink &sink, bool everything) {
    if (!ended_)
        look_at_files(everything);
    look_elsewhere();
    if (!ended_)
        forget_ended();
    for (auto &[key, process] : processes_)
        if (process.may_have_more)
            look_at_parameters(key, process);
    append_images(sink, everything);
    for (const cw_nccl_process &gone : std::exchange(gone_, {}))
        sink.append(gone.header);
    if (!ended_)
        look_at_errors();
    append_errors(sink, everything);
    append_plugins(sink, everything);
    // What is launched while the probes are taken off is not recorded: no step of it is, either.
    if (!ended_)
        keep_steps(everything);
    for (const cw_nccl_steps &record : std::exchange(kept_steps_, {}))
        sink.append(record.header);
    if (everything) {
        for (const auto &[key, process] : processes_) {
            sink.append(process_record(key.tgid, key.image_id, process.start_boottime_ns).header);
            for (const auto &[name, value] : process.parameters)
                sink.append(parameter_record(key.tgid, key.image_id, name, value).header);
        }
        for (auto &[key, comm] : comms_) {
            sink.append(comm.record.header);
            for (const Bytes &channel : comm.channels)
                append(sink, channel);
            comm.has_fresh_channels = false;
            for (const auto &[address, connection] : comm.connections)
                append(sink, connection);
        }
        shapes_.begin_segment();
    } else {
        for (const Bytes &record : fresh_)
            append(sink, record);
        append_fresh_channels(sink);
    }
    fresh_.clear();
    channel_bytes_ -= std::exchange(fresh_channel_bytes_, 0);
    shapes_.append(sink);
}

void NcclSource::look_at_files(bool everything) {
    const auto with_room = images_.take_with_room();
    again_.insert(again_.end(), with_room.begin(), with_room.end());
    look_at_told();
    // Records that were sampled before a new segment began may be written behind its beginning.
    if (!everything)
        forget_images();
    if (const auto anew = images_.give_up(monotonic_ns()); !anew.empty() && options_.tell_again)
        options_.tell_again(anew);
    if (!options_.told_of_mappings())
        look_around();
}

void NcclSource::keep_steps(bool everything) {
    const std::vector<cw_nccl_steps> now = steps_.sample(everything);
    kept_steps_.insert(kept_steps_.end(), now.begin(), now.end());
}

// Whatever refers to them is of processes that have ended.
void NcclSource::forget_images() {
    images_.forget([this](const NcclImage &image) {
        return image.id <= last_told_ && std::ranges::none_of(processes_, [&](const auto &entry) {
                   return entry.first.image_id == image.id;
               });
    });
    std::erase_if(layouts_,
                  [this](const auto &entry) { return images_.find(entry.first) == nullptr; });
}

std::vector<LossCount> NcclSource::losses() const {
    if (shapes_.lost() == 0)
        return {};
    return {{CW_LOSS_NCCL_SHAPE, CW_CPU_USERSPACE, shapes_.lost()}};
}

const cw_nccl_layout *NcclSource::layout_of(const NcclImage &image) {
    auto layout = layouts_.find(image.id);
    if (layout == layouts_.end()) {
        const auto made = nccl::layout_of_plan(image.plan, image.id);
        if (!made)
            return nullptr;
        layout = layouts_.emplace(image.id, *made).first;
    }
    return &layout->second;
}

void NcclSource::watch_steps(const cw_nccl_connection &connection, const CommKey &key) {
    const auto found = comms_.find(key);
    if (found == comms_.end())
        return;
    const cw_nccl_comm &comm = found->second.record;
    const NcclImage *image = images_.find(comm.image_id);
    const cw_nccl_layout *layout = image == nullptr ? nullptr : layout_of(*image);
    if (layout == nullptr)
        return;
    // One that it shares with others is of the communicator that it was split from.
    const bool is_lasting = (comm.flags & CW_NCCL_COMM_SHARED) != 0 || connection.tgid != key.tgid;
    steps_.add(connection, *layout, is_lasting,
               nccl::version_number(image->plan.version) >= FIRST_THAT_COUNTS_AT_BEGIN);
}

void NcclSource::end() {
    keep_steps(false);
    look_at_errors();
    forget_ended();
    ended_ = true;
}

void NcclSource::detach() {
    if (!ended_)
        end();
    images_.detach();
}

void NcclSource::look_around() {
    std::map<pid_t, unsigned> looks;
    std::vector<pid_t> due;
    for (const pid_t pid : images_.processes()) {
        const auto before = looks_.find(pid);
        const unsigned n = before == looks_.end() ? 0 : before->second + 1;
        looks.emplace(pid, n);
        if (n < YOUNG_LOOKS || n % LATER_LOOKS == 0)
            due.push_back(pid);
    }
    looks_ = std::move(looks);
    look_at(due);
}

// What an image did before it had its probes is not known: it is looked into then.
void NcclSource::look_at(const std::vector<pid_t> &pids) {
    const std::size_t before = images_.all().size();
    const std::uint32_t last_known = images_.last_id();
    const auto looked = images_.look_at(pids);
    again_.insert(again_.end(), looked.again.begin(), looked.again.end());
    for (ToldMapping &told : told_)
        told.is_known = told.is_known || looked.inodes.contains(told.inode);
    // Others may have mapped it, too, and have communicators by now. Those of the images before are
    // known, or have ended: then they may still be in the memory of processes that were forked.
    if (images_.all().size() != before)
        look_into(images_.processes(), last_known);
}

void NcclSource::look_at_told() {
    // A process that was told of may not have finished its mapping then.
    std::vector<pid_t> pids = std::exchange(again_, {});
    for (const ToldMapping &told : told_)
        if (std::ranges::find(pids, told.pid) == pids.end())
            pids.push_back(told.pid);
    if (!pids.empty())
        look_at(pids);
    // It may have ended before anybody looked. Others will map what it had.
    std::set<std::uint64_t> inodes;
    for (const ToldMapping &told : told_)
        if (!told.is_known)
            inodes.insert(told.inode);
    told_.clear();
    if (!inodes.empty() && options_.tell_again)
        options_.tell_again(inodes);
}

// A process that ends does not end its communicators. Its number goes to another one some day.
void NcclSource::forget_ended() {
    const std::uint64_t now_ns = monotonic_ns();
    for (auto at = processes_.begin(); at != processes_.end();) {
        auto &[key, process] = *at;
        if (!has_ended(static_cast<pid_t>(key.tgid), process.start_ticks)) {
            process.there_ns = now_ns;
            ++at;
            continue;
        }
        cw_nccl_process gone = process_record(key.tgid, key.image_id, process.start_boottime_ns);
        gone.gone_ns = now_ns;
        gone.there_ns = process.there_ns;
        gone_.push_back(gone);
        steps_.forget(key.tgid);
        errors_.forget(key.tgid);
        plugins_.forget(key.tgid);
        std::erase_if(waiting_,
                      [tgid = key.tgid](const auto &each) { return each.first.tgid == tgid; });
        forget_comms(key, process);
        at = processes_.erase(at);
    }
}

void NcclSource::forget_comms(const ProcessKey &key, const Process &process) {
    const NcclImage *image = images_.find(key.image_id);
    for (auto at = comms_.lower_bound({key.tgid, 0});
         at != comms_.end() && at->first.tgid == key.tgid;) {
        const cw_nccl_comm &record = at->second.record;
        if (record.image_id != key.image_id ||
            !same_start(record.start_boottime_ns, process.start_boottime_ns)) {
            ++at;
            continue;
        }
        const cw_nccl_comm_key entry = {record.comm, key.tgid, 0};
        if (image != nullptr && image->programs)
            (void)bpf_map_delete_elem(bpf_map__fd((*image->programs)->maps.comms), &entry);
        drop_channels(at->second);
        at = comms_.erase(at);
    }
}

} // namespace collwire
