// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/posts_sites.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include <bpf/libbpf.h>
#include <fmt/format.h>

#include "base/clock.h"
#include "collwire/node_records.h"
#include "userspace/elf/probe_point.h"
#include "userspace/loader/libbpf_log.h"
#include "userspace/loader/take_off.h"
#include "userspace/process/silent_users.h"
#include "userspace/source/probe_record.h"
#include "userspace/verbs/ops_scan.h"
#include "userspace/verbs/wr_scan.h"

namespace collwire::sources {
namespace {

constexpr std::size_t MAX_PROBLEMS = 32;
constexpr std::byte BREAKPOINT{0xcc};
// Measured with collwire-bench-post; a single step leaves a virtual machine for its host.
constexpr std::uint32_t EMULATED_COST_NS = 600;
constexpr std::uint32_t SINGLE_STEP_COST_NS = 1'500;
constexpr std::uint32_t SINGLE_STEP_COST_IN_VM_NS = 17'000;

bool in_virtual_machine() {
    static const bool answer = [] {
        std::ifstream file{"/proc/cpuinfo"};
        std::string line;
        while (std::getline(file, line))
            if (line.starts_with("flags"))
                return line.find(" hypervisor") != std::string::npos;
        return false;
    }();
    return answer;
}

// What the program of a call reads out of the registers.
unsigned arguments_of(cw_verbs_call call) {
    switch (call) {
    case CW_CALL_POST_SEND:
        return elf::ARGUMENT_1 | elf::ARGUMENT_2;
    case CW_CALL_SET_INLINE:
        return elf::ARGUMENT_1 | elf::ARGUMENT_3;
    case CW_CALL_SET_SGE:
        return elf::ARGUMENT_1 | elf::ARGUMENT_4;
    case CW_CALL_SET_INLINE_LIST:
    case CW_CALL_SET_SGE_LIST:
        return elf::ARGUMENT_1 | elf::ARGUMENT_2 | elf::ARGUMENT_3;
    default:
        return elf::ARGUMENT_1;
    }
}

} // namespace

std::string_view name_of(cw_verbs_call call) {
    switch (call) {
    case CW_CALL_POST_SEND:
        return "post_send";
    case CW_CALL_WR_ATOMIC:
        return "wr_atomic";
    case CW_CALL_WR_LOCAL:
        return "wr_local_inv, wr_bind_mw";
    case CW_CALL_WR_READ:
        return "wr_rdma_read";
    case CW_CALL_WR_WRITE:
        return "wr_rdma_write";
    case CW_CALL_WR_WRITE_IMM:
        return "wr_rdma_write_imm";
    case CW_CALL_WR_SEND:
        return "wr_send";
    case CW_CALL_WR_SEND_IMM:
        return "wr_send_imm";
    case CW_CALL_WR_SEND_INV:
        return "wr_send_inv";
    case CW_CALL_WR_SEND_TSO:
        return "wr_send_tso";
    case CW_CALL_WR_ATOMIC_WRITE:
        return "wr_atomic_write";
    case CW_CALL_WR_FLUSH:
        return "wr_flush";
    case CW_CALL_SET_INLINE:
        return "wr_set_inline_data";
    case CW_CALL_SET_INLINE_LIST:
        return "wr_set_inline_data_list";
    case CW_CALL_SET_SGE:
        return "wr_set_sge";
    case CW_CALL_SET_SGE_LIST:
        return "wr_set_sge_list";
    case CW_CALL_WR_COMPLETE:
        return "wr_complete";
    case CW_CALL_WR_ABORT:
        return "wr_abort";
    case CW_CALL_NONE:
    case CW_CALLS:
        break;
    }
    return "unknown";
}

PostsSites::~PostsSites() {
    detach();
}

void PostsSites::problem(std::string text) {
    if (problems_.size() < MAX_PROBLEMS && std::ranges::find(problems_, text) == problems_.end())
        problems_.push_back(std::move(text));
}

Result<process::MappedFile> PostsSites::Place::open() const {
    return view == nullptr ? process::MappedFile::open(path)
                           : process::MappedFile::open(view->pid(), *mapping);
}

PostsSites::Site *PostsSites::known(std::size_t library, std::uint64_t function_offset,
                                    cw_verbs_call call) {
    const auto found = std::ranges::find_if(sites_, [&](const Site &site) {
        return site.library == library && site.function_offset == function_offset &&
               site.call == call;
    });
    return found == sites_.end() ? nullptr : &*found;
}

const PostsSites::Site *PostsSites::single_stepped_call(std::size_t library) const {
    const auto found = std::ranges::find_if(sites_, [library](const Site &site) {
        return site.library == library && site.call != CW_CALL_POST_SEND && !site.emulated;
    });
    return found == sites_.end() ? nullptr : &*found;
}

bool PostsSites::allowed(const Site &site) const {
    if (allow_single_step_)
        return true;
    return site.emulated &&
           (site.call == CW_CALL_POST_SEND || single_stepped_call(site.library) == nullptr);
}

void PostsSites::note_use(const Site &site) {
    if (allowed(site))
        return;
    const std::string &path = libraries_[site.library].path;
    if (site.call == CW_CALL_POST_SEND)
        problem(fmt::format("post_send of {} can only be probed on `{}`, which the kernel "
                            "single-steps (slow): its posts are not counted. Fix: --posts=on",
                            path, site.instruction));
    else if (const Site *dear = single_stepped_call(site.library))
        problem(fmt::format("{} of {} can only be probed on `{}`, which the kernel single-steps "
                            "(slow): ibv_wr_* calls are not counted. Fix: --posts=on",
                            name_of(dear->call), path, dear->instruction));
}

void PostsSites::add_library(const process::ProcessView &view, const process::Mapping &mapping) {
    add_all_of({&view, &mapping, mapping.path});
}

void PostsSites::add_installed(const std::string &path) {
    add_all_of({nullptr, nullptr, path});
}

void PostsSites::add_all_of(const Place &place) {
    auto file = place.open();
    if (!file)
        return; // the process exited, or the file is gone: no process can post through it
    const auto library = library_of(*file, place.path);
    if (place.view != nullptr)
        note_user(library, place.view->pid());
    else
        libraries_[library].installed = true;
    if (libraries_[library].scanned)
        return;
    libraries_[library].scanned = true;
    auto bytes = elf::read_library_file(file->own_path());
    auto image = bytes ? elf::ElfImage::parse(std::move(*bytes)) : std::move(bytes).failure();
    if (!image)
        return; // a queue pair of the process will show it
    if (const auto found = verbs::find_post_send(*image))
        for (const std::uint64_t address : found->addresses)
            if (const auto offset = image->file_offset(address))
                add_site(library, *image, place, *offset, CW_CALL_POST_SEND);
    for (const verbs::WrFunction &function : verbs::find_wr_functions(*image))
        if (const auto offset = image->file_offset(function.address))
            add_site(library, *image, place, *offset, function.call);
    attach_allowed();
}

bool PostsSites::add_functions(const process::ProcessView &view,
                               std::span<const verbs::LiveFunction> functions,
                               std::uint64_t created_ns) {
    std::optional<elf::ElfImage> image;
    std::string image_of;
    std::vector<std::pair<std::size_t, const verbs::LiveFunction *>> used;
    for (const verbs::LiveFunction &function : functions) {
        const Place place{&view, &function.mapping, function.mapping.path};
        auto file = place.open();
        if (!file)
            continue;
        const auto library = library_of(*file, place.path);
        note_user(library, view.pid());
        if (known(library, function.file_offset, function.call) == nullptr) {
            if (!image || image_of != place.path) {
                auto bytes = elf::read_library_file(file->own_path());
                auto parsed =
                    bytes ? elf::ElfImage::parse(std::move(*bytes)) : std::move(bytes).failure();
                if (!parsed) {
                    problem(fmt::format("{}: {}", place.path, parsed.failure().message));
                    break;
                }
                image.emplace(std::move(*parsed));
                image_of = place.path;
            }
            add_site(library, *image, place, function.file_offset, function.call);
        }
        used.emplace_back(library, &function);
    }
    attach_allowed();
    bool late = false;
    for (const auto &[library, function] : used)
        if (const Site *site = known(library, function->file_offset, function->call)) {
            note_use(*site);
            late = late || site->placed_ns > created_ns;
        }
    return late;
}

void PostsSites::add_site(std::size_t library, const elf::ElfImage &image, const Place &place,
                          std::uint64_t function_offset, cw_verbs_call call) {
    if (known(library, function_offset, call) != nullptr)
        return;
    const std::string &path = libraries_[library].path;
    Site site;
    site.library = library;
    site.call = call;
    site.function_offset = function_offset;
    const auto entry = image.address_of(function_offset);
    auto point = entry ? choose_probe_point(image.code(), *entry, arguments_of(call))
                       : Result<elf::ProbePoint>(
                             error(ErrorKind::BadInput, "outside the segments of the file"));
    if (!point) {
        problem(fmt::format("{} of {}: {}", name_of(call), path, point.failure().message));
        return;
    }
    site.point_offset = point->file_offset;
    site.instruction = point->instruction;
    site.emulated = point->emulated;

    for (const Site &other : sites_) {
        if (other.point_offset != site.point_offset)
            continue;
        if (other.library == library) {
            problem(fmt::format("{} and {} of {} are the same function: only the first is counted",
                                name_of(other.call), name_of(call), path));
            return;
        }
        if (is_probed_there(other, site, image, place)) {
            site.same_as = other.library;
            site.placed_ns = other.placed_ns;
            site.appended = true;
        }
    }
    if (Library &of = libraries_[library]; !site.same_as && !of.file.is_open()) {
        auto file = place.open();
        if (!file || !is_same(library, *file))
            return;
        of.file = std::move(*file);
    }
    sites_.push_back(std::move(site));
}

// Containers, and overlays, show one file of an image layer as many files: is our breakpoint there?
bool PostsSites::is_probed_there(const Site &other, const Site &site, const elf::ElfImage &image,
                                 const Place &place) const {
    if (other.link == nullptr || other.call != site.call || place.view == nullptr)
        return false;
    const process::Mapping &mapping = *place.mapping;
    if (site.point_offset < mapping.file_offset ||
        site.point_offset - mapping.file_offset >= mapping.end - mapping.begin)
        return false;
    const auto there =
        place.view->read<std::byte>(mapping.begin + (site.point_offset - mapping.file_offset));
    const auto address = image.address_of(site.point_offset);
    return there == BREAKPOINT && address && image.bytes_from(*address).front() != BREAKPOINT;
}

void PostsSites::close_files() {
    for (Library &library : libraries_)
        library.file = process::MappedFile{};
}

void PostsSites::attach_allowed() {
    if (taken_off_)
        close_files();
    if (!programs_ || paused_)
        return;
    std::vector<bpf_link *> refused;
    for (Site &site : sites_) {
        if (allowed(site)) {
            attach_site(site);
        } else if (site.link != nullptr) {
            refused.push_back(std::exchange(site.link, nullptr));
            site.failed = true;
        }
    }
    loader::take_off(refused);
    if (!keeps_files_)
        close_files();
}

void PostsSites::attach_site(Site &site) {
    if (site.same_as || site.link != nullptr || site.failed)
        return;
    const Library &library = libraries_[site.library];
    if (const auto silent = process::silent_users({{library.inode}, {library.path}});
        !silent.empty()) {
        site.failed = true;
        problem(fmt::format("{}: gets no probes, since the kernel would wait for {}: its posts are "
                            "not counted. Fix: end that process, and record again",
                            library.path, process::text_of_silent(silent)));
        return;
    }
    const loader::LibbpfLog log;
    errno = 0;
    site.link = bpf_program__attach_uprobe((*programs_)[site.call], false, -1,
                                           libraries_[site.library].file.own_path().c_str(),
                                           site.point_offset);
    if (site.link == nullptr) {
        site.failed = true;
        problem(loader::bpf_error(fmt::format("uprobe on {} of {}", name_of(site.call),
                                              libraries_[site.library].path),
                                  errno, log.text())
                    .message);
        return;
    }
    site.placed_ns = monotonic_ns();
}

void PostsSites::attach(const Programs &programs) {
    programs_ = programs;
    attach_allowed();
}

// `probed`: gets the files that they are in.
std::vector<bpf_link *> PostsSites::take_links(process::ProbedFile &probed) {
    std::vector<bpf_link *> links;
    for (Site &site : sites_) {
        if (site.link == nullptr)
            continue;
        probed.inodes.insert(libraries_[site.library].inode);
        probed.paths.insert(libraries_[site.library].path);
        links.push_back(std::exchange(site.link, nullptr));
    }
    return links;
}

void PostsSites::detach() {
    programs_.reset();
    process::ProbedFile probed;
    if (const auto links = take_links(probed); !links.empty())
        loader::take_off(links, process::silent_users(probed));
}

void PostsSites::pause() {
    paused_ = true;
    process::ProbedFile probed;
    if (const auto links = take_links(probed); !links.empty())
        loader::take_off(links, process::silent_users(probed));
}

bool PostsSites::resume() {
    paused_ = false;
    bool all = true;
    for (Site &site : sites_) {
        const std::uint64_t placed_ns = site.placed_ns;
        if (site.same_as || site.failed || site.link != nullptr || !allowed(site))
            continue;
        attach_site(site);
        if (placed_ns != 0)
            site.placed_ns = placed_ns;
        all = all && site.link != nullptr;
    }
    return all;
}

void PostsSites::start_taking_off() {
    process::ProbedFile probed;
    const auto links = take_links(probed);
    loader::start_taking_off(links, process::silent_users(probed));
    programs_.reset();
    taken_off_ = true;
    attach_allowed();
}

std::vector<source::ProbeProgram> PostsSites::programs() const {
    std::map<int, source::ProbeProgram> by_fd;
    for (const Site &site : sites_) {
        if (site.link == nullptr || !programs_)
            continue;
        const int fd = bpf_program__fd((*programs_)[site.call]);
        const auto [entry, is_new] =
            by_fd.try_emplace(fd, source::ProbeProgram{fd, CW_PROBE_UPROBE, site.emulated, 0});
        entry->second.emulated = entry->second.emulated && site.emulated;
    }
    std::vector<source::ProbeProgram> all;
    all.reserve(by_fd.size());
    for (const auto &[fd, program] : by_fd)
        all.push_back(program);
    return all;
}

std::size_t PostsSites::n_placed() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(sites_, [](const Site &site) { return site.link != nullptr; }));
}

source::PlannedProbe PostsSites::planned(const Site &site) const {
    source::PlannedProbe probe;
    probe.kind = CW_PROBE_UPROBE;
    probe.source = "posts";
    probe.function = name_of(site.call);
    probe.module_or_file = libraries_[site.library].path;
    probe.offset_bytes = site.point_offset;
    probe.instruction = site.instruction;
    probe.emulated = site.emulated;
    probe.expected_cost_ns = site.emulated          ? EMULATED_COST_NS
                             : in_virtual_machine() ? SINGLE_STEP_COST_IN_VM_NS
                                                    : SINGLE_STEP_COST_NS;
    probe.placed = site.placed_ns != 0 && !taken_off_;
    probe.taken_off = site.placed_ns != 0 && taken_off_;
    return probe;
}

std::vector<source::PlannedProbe> PostsSites::probe_list() const {
    std::vector<source::PlannedProbe> probes;
    for (const Site &site : sites_)
        if (!site.same_as && allowed(site))
            probes.push_back(planned(site));
    return probes;
}

void PostsSites::probe_list_is_written() {
    for (Site &site : sites_)
        site.appended = site.placed_ns != 0;
}

void PostsSites::append_new(source::RecordSink &sink) {
    for (Site &site : sites_) {
        if (site.placed_ns == 0 || site.appended)
            continue;
        site.appended = true;
        const cw_probe record = probe_record(planned(site), site.placed_ns);
        sink.append(record.header);
    }
}

} // namespace collwire::sources
