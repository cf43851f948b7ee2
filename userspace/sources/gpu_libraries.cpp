// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/gpu_libraries.h"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include <bpf/libbpf.h>
#include <fmt/format.h>

#include "base/clock.h"
#include "collwire/gpu_records.h"
#include "collwire/node_records.h"
#include "userspace/elf/disassembler.h"
#include "userspace/elf/elf_image.h"
#include "userspace/elf/usdt_sites.h"
#include "userspace/loader/libbpf_log.h"
#include "userspace/loader/take_off.h"
#include "userspace/process/guest_library.h"
#include "userspace/process/silent_users.h"
#include "userspace/source/probe_record.h"

namespace collwire::sources {
namespace {

constexpr std::string_view PROVIDER = "collwire";
constexpr std::string_view BATCH = "gpu_batch";
constexpr std::string_view ARM = "gpu_arm";
constexpr std::uint64_t SPARE_UNUSED_NS = 60'000'000'000;
// Measured with 64 items; one item alone: 800 ns.
constexpr std::uint32_t BATCH_COST_NS = 10'000;
// A node has one or a few, but a program can make any number of copies.
constexpr std::size_t MAX_COPIES = 64;
constexpr std::byte BREAKPOINT{0xcc};
constexpr std::byte NOP{0x90};
constexpr std::string_view FIX = "Fix: use the library that belongs to this collwire";

// Files in memory have the same path in each process.
std::string shown_path(pid_t pid, const process::Mapping &mapping) {
    return mapping.path.starts_with("/memfd:")
               ? fmt::format("{} (in memory of process {})", CW_GPU_LIBRARY, pid)
               : mapping.path;
}

} // namespace

GpuLibraries::Copy *GpuLibraries::copy_of(const process::FileIdentity &file) {
    const auto found = std::ranges::find_if(
        copies_, [&file](const Copy &copy) { return copy.names.contains(file); });
    return found == copies_.end() ? nullptr : &*found;
}

namespace {

struct FoundSite {
    std::uint64_t offset_bytes = 0;
    std::string instruction;
    bool emulated = false;
};

Result<FoundSite> code_at(const elf::ElfImage &image, std::uint64_t address,
                          std::string_view name) {
    const auto offset = image.file_offset(address);
    elf::Disassembler disassembler;
    const cs_insn *instruction = offset && image.is_code(address)
                                     ? disassembler.decode(image.bytes_from(address), address)
                                     : nullptr;
    if (instruction == nullptr)
        return error(ErrorKind::BadInput, fmt::format("its probe {} is at no code", name));
    return FoundSite{*offset, elf::text_of(*instruction), image.bytes_from(address)[0] == NOP};
}

} // namespace

GpuLibraries::Copy GpuLibraries::read(process::MappedFile file, const process::FileStatus &status,
                                      std::string path) {
    Copy copy;
    copy.names.insert(status.identity);
    copy.path = std::move(path);
    const auto find_sites = [&]() -> Result<Sites> {
        auto bytes = elf::read_library_file(file.own_path());
        if (!bytes)
            return std::move(bytes).failure();
        const auto probes = elf::usdt_sites(*bytes, PROVIDER);
        if (!probes)
            return probes.failure();
        const auto batch = probes->find(std::string{BATCH});
        const auto arm = probes->find(std::string{ARM});
        if (batch == probes->end() || arm == probes->end() || arm->second.semaphore == 0)
            return error(ErrorKind::BadInput,
                         "it has no probes collwire:gpu_batch and collwire:gpu_arm");
        // The program takes the argument from the register of a function's first one.
        if (!batch->second.arguments.ends_with("8@%rdi"))
            return error(ErrorKind::BadInput,
                         fmt::format("the argument of its probe gpu_batch is not in %rdi but in {}",
                                     batch->second.arguments));
        const auto image = elf::ElfImage::parse(std::move(*bytes));
        if (!image)
            return image.failure();
        auto batch_site = code_at(image.value(), batch->second.address, BATCH);
        if (!batch_site)
            return std::move(batch_site).failure();
        auto arm_site = code_at(image.value(), arm->second.address, ARM);
        if (!arm_site)
            return std::move(arm_site).failure();
        const auto semaphore = image.value().file_offset(arm->second.semaphore);
        if (!semaphore || image.value().is_code(arm->second.semaphore))
            return error(ErrorKind::BadInput, "its semaphore is not in its data");
        return Sites{batch_site->offset_bytes, arm_site->offset_bytes, *semaphore,
                     batch_site->instruction,  arm_site->instruction,  batch_site->emulated};
    };
    auto sites = find_sites();
    if (sites)
        copy.sites = std::move(*sites);
    else
        copy.problem = fmt::format("{}: {}. {}", copy.path, sites.failure().message, FIX);
    if (copy.sites)
        copy.file = std::move(file);
    return copy;
}

// A file that was written again has its code elsewhere.
void GpuLibraries::drop_older(const process::FileIdentity &file) {
    std::vector<bpf_link *> links;
    std::erase_if(copies_, [&](Copy &copy) {
        if (std::ranges::none_of(copy.names, [&file](const process::FileIdentity &name) {
                return name.device == file.device && name.inode == file.inode &&
                       name.written_ns != file.written_ns;
            }))
            return false;
        links.insert(links.end(), copy.batch_links.begin(), copy.batch_links.end());
        links.insert(links.end(), copy.arm_links.begin(), copy.arm_links.end());
        return true;
    });
    loader::take_off(links);
}

bool GpuLibraries::add_installed(const std::string &path) {
    auto file = process::MappedFile::open(path);
    const auto status = file ? file->status() : std::nullopt;
    if (!status)
        return false;
    Copy *copy = copy_of(status->identity);
    if (copy == nullptr) {
        drop_older(status->identity);
        copies_.push_back(read(std::move(*file), *status, path));
        copy = &copies_.back();
        place(*copy);
    }
    copy->is_installed = true;
    return true;
}

// Containers, and overlays, show one file of an image layer as many: is our breakpoint there?
GpuLibraries::Copy *GpuLibraries::probed_in(const process::ProcessView &view,
                                            const process::Mapping &mapping, const Sites &sites) {
    const auto found = std::ranges::find_if(copies_, [&sites](const Copy &copy) {
        return copy.sites == sites && !copy.batch_links.empty();
    });
    if (found == copies_.end() || sites.batch_bytes < mapping.file_offset ||
        sites.batch_bytes - mapping.file_offset >= mapping.end - mapping.begin)
        return nullptr;
    const auto there =
        view.read<std::byte>(mapping.begin + (sites.batch_bytes - mapping.file_offset));
    return there == BREAKPOINT ? &*found : nullptr;
}

GpuLibraries::Scan GpuLibraries::scan(pid_t pid) {
    if (!pids_.empty() && std::ranges::find(pids_, static_cast<std::uint32_t>(pid)) == pids_.end())
        return Scan::Without;
    process::ProcessView view{pid};
    const auto start_ticks = process::start_ticks(pid);
    if (!start_ticks || !view.refresh())
        return Scan::Exited;
    Scan result = Scan::Without;
    for (const process::Mapping &mapping : view.mappings()) {
        if (!mapping.executable || !process::is_guest_library(mapping.path))
            continue;
        const auto status = status_of(pid, mapping);
        if (!status)
            continue;
        result = Scan::With;
        Copy *copy = copy_of(status->identity);
        if (copy == nullptr) {
            auto file = process::MappedFile::open(pid, mapping);
            const auto opened = file ? file->status() : std::nullopt;
            if (!opened || opened->identity != status->identity)
                continue;
            drop_older(opened->identity);
            Copy fresh = read(std::move(*file), *opened, shown_path(pid, mapping));
            copy = fresh.sites ? probed_in(view, mapping, *fresh.sites) : nullptr;
            if (copy != nullptr) {
                copy->names.merge(fresh.names);
            } else if (copies_.size() >= MAX_COPIES) {
                has_too_many_ = true;
                continue;
            } else {
                copies_.push_back(std::move(fresh));
                copy = &copies_.back();
                place(*copy);
            }
        }
        copy->users.insert({pid, *start_ticks});
    }
    return result;
}

bool GpuLibraries::attach_all(Copy &copy, bpf_program *program, std::uint64_t offset_bytes,
                              std::uint64_t semaphore_bytes, std::vector<bpf_link *> &links) {
    bpf_uprobe_opts options = {};
    options.sz = sizeof(options);
    options.ref_ctr_offset = semaphore_bytes;
    const std::vector<pid_t> pids =
        pids_.empty() ? std::vector<pid_t>{-1} : std::vector<pid_t>(pids_.begin(), pids_.end());
    for (const pid_t pid : pids) {
        const loader::LibbpfLog log;
        errno = 0;
        bpf_link *link = bpf_program__attach_uprobe_opts(program, pid, copy.file.own_path().c_str(),
                                                         offset_bytes, &options);
        if (link != nullptr) {
            links.push_back(link);
            continue;
        }
        if (errno == ESRCH)
            continue; // the process has exited
        copy.problem = loader::bpf_error(fmt::format("uprobe on {} of {}",
                                                     semaphore_bytes == 0 ? BATCH : ARM, copy.path),
                                         errno, log.text())
                           .message;
        return false;
    }
    return true;
}

void GpuLibraries::place(Copy &copy) {
    if (!programs_ || !copy.sites || copy.placed_ns != 0 || !copy.problem.empty())
        return;
    process::ProbedFile probed{{}, {copy.path}};
    for (const process::FileIdentity &name : copy.names)
        probed.inodes.insert(name.inode);
    if (const auto silent = process::silent_users(probed); !silent.empty()) {
        copy.problem = fmt::format("{}: gets no probes, since the kernel would wait for {}. Fix: "
                                   "end that process, and record again",
                                   copy.path, process::text_of_silent(silent));
        return;
    }
    if (!attach_all(copy, programs_->batch, copy.sites->batch_bytes, 0, copy.batch_links)) {
        loader::take_off(std::exchange(copy.batch_links, {}));
        return;
    }
    copy.placed_ns = monotonic_ns();
    if (is_armed_)
        arm(copy);
}

void GpuLibraries::arm(Copy &copy) {
    if (copy.placed_ns == 0 || !copy.arm_links.empty() || !copy.problem.empty())
        return;
    if (!attach_all(copy, programs_->arm, copy.sites->arm_bytes, copy.sites->semaphore_bytes,
                    copy.arm_links))
        loader::take_off(std::exchange(copy.arm_links, {}));
}

void GpuLibraries::attach(Programs programs) {
    programs_ = programs;
    for (Copy &copy : copies_)
        place(copy);
}

void GpuLibraries::arm() {
    if (!programs_)
        return;
    is_armed_ = true;
    for (Copy &copy : copies_)
        arm(copy);
}

std::vector<pid_t> GpuLibraries::silent_users() const {
    process::ProbedFile probed;
    for (const Copy &copy : copies_) {
        if (copy.batch_links.empty() && copy.arm_links.empty())
            continue;
        probed.paths.insert(copy.path);
        for (const process::FileIdentity &name : copy.names)
            probed.inodes.insert(name.inode);
    }
    return probed.paths.empty() ? std::vector<pid_t>{} : process::silent_users(probed);
}

void GpuLibraries::disarm() {
    is_armed_ = false;
    const auto held_by = silent_users();
    std::vector<bpf_link *> links;
    for (Copy &copy : copies_) {
        links.insert(links.end(), copy.arm_links.begin(), copy.arm_links.end());
        copy.arm_links.clear();
    }
    loader::take_off(links, held_by);
}

void GpuLibraries::detach() {
    disarm();
    programs_.reset();
    const auto held_by = silent_users();
    std::vector<bpf_link *> links;
    for (Copy &copy : copies_) {
        links.insert(links.end(), copy.batch_links.begin(), copy.batch_links.end());
        copy.batch_links.clear();
    }
    loader::take_off(links, held_by);
}

void GpuLibraries::forget_ended_users(Copy &copy) {
    std::erase_if(copy.users,
                  [](const User &user) { return process::has_ended(user.pid, user.start_ticks); });
}

// Processes that were not met when they mapped their copy, such as the second of a container.
void GpuLibraries::find_users() {
    for (const pid_t pid : process::all_processes())
        (void)scan(pid);
}

std::set<std::uint64_t> GpuLibraries::release_unused(std::uint64_t now_ns) {
    if (now_ns - checked_unused_ns_ < SPARE_UNUSED_NS)
        return {};
    checked_unused_ns_ = now_ns;
    for (Copy &copy : copies_)
        forget_ended_users(copy);
    const auto is_unused = [](const Copy &copy) {
        return !copy.is_installed && copy.users.empty();
    };
    if (std::ranges::any_of(copies_, is_unused))
        find_users();
    std::set<std::uint64_t> inodes;
    std::vector<bpf_link *> links;
    std::erase_if(copies_, [&](Copy &copy) {
        if (!is_unused(copy)) {
            copy.unused_since_ns = 0;
            return false;
        }
        if (copy.unused_since_ns == 0) {
            copy.unused_since_ns = now_ns;
            return false;
        }
        for (const process::FileIdentity &name : copy.names)
            inodes.insert(name.inode);
        links.insert(links.end(), copy.batch_links.begin(), copy.batch_links.end());
        links.insert(links.end(), copy.arm_links.begin(), copy.arm_links.end());
        return true;
    });
    loader::take_off(links);
    return inodes;
}

std::vector<GpuLibraries::User> GpuLibraries::users() const {
    std::vector<User> all;
    for (const Copy &copy : copies_)
        for (const User &user : copy.users)
            if (!process::has_ended(user.pid, user.start_ticks))
                all.push_back(user);
    return all;
}

std::size_t GpuLibraries::n_usable() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(copies_, [](const Copy &copy) { return copy.problem.empty(); }));
}

bool GpuLibraries::has_users() const {
    return std::ranges::any_of(copies_, [](const Copy &copy) { return !copy.users.empty(); });
}

std::vector<std::string> GpuLibraries::problems() const {
    std::vector<std::string> all;
    for (const Copy &copy : copies_)
        if (!copy.problem.empty())
            all.push_back(copy.problem);
    if (has_too_many_)
        all.push_back(fmt::format("more than {} copies of {}: kernels of processes with the others "
                                  "are not recorded. Fix: use one file for all jobs",
                                  MAX_COPIES, CW_GPU_LIBRARY));
    return all;
}

std::vector<source::PlannedProbe> GpuLibraries::probe_list() const {
    std::vector<source::PlannedProbe> probes;
    for (const Copy &copy : copies_) {
        if (!copy.sites)
            continue;
        source::PlannedProbe probe;
        probe.kind = CW_PROBE_UPROBE;
        probe.source = "gpu";
        probe.function = "collwire_gpu_batch";
        probe.module_or_file = copy.path;
        probe.offset_bytes = copy.sites->batch_bytes;
        probe.instruction = copy.sites->batch_instruction;
        probe.emulated = copy.sites->batch_emulated;
        probe.expected_cost_ns = BATCH_COST_NS;
        probe.placed = copy.placed_ns != 0;
        probes.push_back(probe);
        probe.function = "collwire_gpu_arm";
        probe.offset_bytes = copy.sites->arm_bytes;
        probe.instruction = copy.sites->arm_instruction;
        probe.emulated = true;
        probe.expected_cost_ns = 0; // never hit: it raises the semaphore
        probe.placed = !copy.arm_links.empty();
        probes.push_back(std::move(probe));
    }
    return probes;
}

void GpuLibraries::append_new(source::RecordSink &sink) {
    for (Copy &copy : copies_) {
        if (copy.is_written || copy.placed_ns == 0)
            continue;
        copy.is_written = true;
        for (const source::PlannedProbe &probe : probe_list())
            if (probe.module_or_file == copy.path) {
                const cw_probe record = probe_record(probe, copy.placed_ns);
                sink.append(record.header);
            }
    }
}

void GpuLibraries::written() {
    for (Copy &copy : copies_)
        copy.is_written = copy.placed_ns != 0;
}

} // namespace collwire::sources
