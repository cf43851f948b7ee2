// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/verbs_libraries.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <bpf/libbpf.h>
#include <fmt/format.h>

#include "base/clock.h"
#include "collwire/node_records.h"
#include "userspace/elf/disassembler.h"
#include "userspace/elf/elf_image.h"
#include "userspace/elf/exported_functions.h"
#include "userspace/loader/libbpf_log.h"
#include "userspace/loader/take_off.h"
#include "userspace/source/probe_record.h"

namespace collwire::sources {
namespace {

constexpr std::uint64_t SPARE_UNUSED_NS = 60'000'000'000;
// A single step in a virtual machine, see posts_sites.cpp. Tens of calls a second at most.
constexpr std::uint32_t COST_NS = 17'000;
// A node has one or a few, but containers can bring any number.
constexpr std::size_t MAX_FILES = 64;
constexpr std::byte BREAKPOINT{0xcc};

bool has_end(verbs::ControlCall call) {
    return call != verbs::ControlCall::AckEvent;
}

bool has_start(verbs::ControlCall call) {
    return call != verbs::ControlCall::PublicCreate;
}

} // namespace

VerbsLibraries::File *VerbsLibraries::file_of(const process::FileIdentity &identity) {
    const auto found = std::ranges::find_if(
        files_, [&identity](const File &file) { return file.names.contains(identity); });
    return found == files_.end() ? nullptr : &*found;
}

VerbsLibraries::File VerbsLibraries::read(process::MappedFile file,
                                          const process::FileStatus &status,
                                          std::string path) const {
    File fresh;
    fresh.names.insert(status.identity);
    fresh.path = std::move(path);
    const auto find_sites = [&]() -> Result<void> {
        auto bytes = elf::read_library_file(file.own_path());
        if (!bytes)
            return std::move(bytes).failure();
        const auto exported = elf::exported_functions(*bytes);
        if (!exported)
            return exported.failure();
        verbs::ControlPath path_of_calls = verbs::control_path(*exported);
        fresh.missing = std::move(path_of_calls.missing);
        const auto image = elf::ElfImage::parse(std::move(*bytes));
        if (!image)
            return image.failure();
        for (const verbs::ControlFunction &function : path_of_calls.functions) {
            const auto offset = image->file_offset(function.address);
            elf::Disassembler disassembler;
            const cs_insn *instruction =
                offset && image->is_code(function.address)
                    ? disassembler.decode(image->bytes_from(function.address), function.address)
                    : nullptr;
            if (instruction == nullptr)
                return error(ErrorKind::BadInput,
                             fmt::format("its function {} is at no code", function.name));
            Site site;
            site.call = function.call;
            site.probe.source = "verbs";
            site.probe.function = function.name;
            site.probe.module_or_file = fresh.path;
            site.probe.offset_bytes = *offset;
            site.probe.emulated = false;
            site.probe.expected_cost_ns = COST_NS;
            // The end first: a start without its end stays in the table of calls.
            if (at_returns_ && has_end(function.call)) {
                site.probe.kind = CW_PROBE_URETPROBE;
                fresh.sites.push_back(site);
            }
            if (!has_start(function.call))
                continue;
            if (!at_returns_ && function.call == verbs::ControlCall::Create)
                continue; // the queue pair has no number yet
            site.probe.kind = CW_PROBE_UPROBE;
            site.probe.instruction = elf::text_of(*instruction);
            fresh.sites.push_back(std::move(site));
        }
        return {};
    };
    if (auto found = find_sites(); !found) {
        fresh.sites.clear();
        fresh.problem = fmt::format("{}: {}", fresh.path, found.failure().message);
    }
    if (!fresh.sites.empty())
        fresh.file = std::move(file);
    return fresh;
}

// A file that was written again has its code elsewhere.
void VerbsLibraries::drop_older(const process::FileIdentity &identity) {
    std::vector<bpf_link *> links;
    std::erase_if(files_, [&](File &file) {
        if (std::ranges::none_of(file.names, [&identity](const process::FileIdentity &name) {
                return name.device == identity.device && name.inode == identity.inode &&
                       name.written_ns != identity.written_ns;
            }))
            return false;
        links.insert(links.end(), file.links.begin(), file.links.end());
        return true;
    });
    loader::take_off(links);
}

bool VerbsLibraries::add_installed(const std::string &path) {
    auto file = process::MappedFile::open(path);
    const auto status = file ? file->status() : std::nullopt;
    if (!status)
        return false;
    File *known = file_of(status->identity);
    if (known == nullptr) {
        drop_older(status->identity);
        files_.push_back(read(std::move(*file), *status, path));
        known = &files_.back();
        place(*known);
    }
    known->is_installed = true;
    return true;
}

// One file of an image layer has a name in each container: is our breakpoint there?
VerbsLibraries::File *VerbsLibraries::probed_in(const process::ProcessView &view,
                                                const process::Mapping &mapping,
                                                const File &fresh) {
    if (fresh.sites.empty())
        return nullptr;
    const std::uint64_t offset = fresh.sites.front().probe.offset_bytes;
    if (offset < mapping.file_offset ||
        offset - mapping.file_offset >= mapping.end - mapping.begin ||
        view.read<std::byte>(mapping.begin + (offset - mapping.file_offset)) != BREAKPOINT)
        return nullptr;
    const auto found = std::ranges::find_if(files_, [&](const File &file) {
        return !file.links.empty() &&
               std::ranges::equal(file.sites, fresh.sites, [](const Site &a, const Site &b) {
                   return a.probe.function == b.probe.function &&
                          a.probe.offset_bytes == b.probe.offset_bytes;
               });
    });
    return found == files_.end() ? nullptr : &*found;
}

bool VerbsLibraries::scan(pid_t pid) {
    if (!pids_.empty() && std::ranges::find(pids_, static_cast<std::uint32_t>(pid)) == pids_.end())
        return true;
    process::ProcessView view{pid};
    const auto start_ticks = process::start_ticks(pid);
    if (!start_ticks || !view.refresh())
        return false;
    for (const process::Mapping &mapping : view.mappings()) {
        if (!mapping.executable || !verbs::is_libibverbs(mapping.path))
            continue;
        const auto status = status_of(pid, mapping);
        if (!status)
            continue;
        File *known = file_of(status->identity);
        if (known == nullptr) {
            auto file = process::MappedFile::open(pid, mapping);
            const auto opened = file ? file->status() : std::nullopt;
            if (!opened || opened->identity != status->identity)
                continue;
            drop_older(opened->identity);
            File fresh = read(std::move(*file), *opened, mapping.path);
            known = probed_in(view, mapping, fresh);
            if (known != nullptr) {
                known->names.merge(fresh.names);
            } else if (files_.size() >= MAX_FILES) {
                has_too_many_ = true;
                continue;
            } else {
                files_.push_back(std::move(fresh));
                known = &files_.back();
                place(*known);
            }
        }
        known->users.emplace(pid, *start_ticks);
    }
    return true;
}

bpf_program *VerbsLibraries::program_of(const Site &site) const {
    const bool at_return = site.probe.kind == CW_PROBE_URETPROBE;
    switch (site.call) {
    case verbs::ControlCall::Create:
        return at_return ? programs_->create_returns : programs_->create;
    case verbs::ControlCall::PublicCreate:
        return programs_->public_create_returns;
    case verbs::ControlCall::Modify:
        return at_return ? programs_->modify_returns : programs_->modify;
    case verbs::ControlCall::Destroy:
        return at_return ? programs_->destroy_returns : programs_->destroy;
    case verbs::ControlCall::AckEvent:
        break;
    }
    return programs_->ack_event;
}

void VerbsLibraries::place(File &file) {
    if (!programs_ || file.sites.empty() || file.placed_ns != 0 || !file.problem.empty())
        return;
    for (Site &site : file.sites) {
        const loader::LibbpfLog log;
        errno = 0;
        bpf_link *link =
            bpf_program__attach_uprobe(program_of(site), site.probe.kind == CW_PROBE_URETPROBE, -1,
                                       file.file.own_path().c_str(), site.probe.offset_bytes);
        if (link == nullptr) {
            file.problem =
                loader::bpf_error(fmt::format("uprobe on {} of {}", site.probe.function, file.path),
                                  errno, log.text())
                    .message;
            loader::take_off(std::exchange(file.links, {}));
            for (Site &each : file.sites)
                each.probe.placed = false;
            return;
        }
        file.links.push_back(link);
        site.probe.placed = true;
    }
    file.placed_ns = monotonic_ns();
    file.file = process::MappedFile{};
}

void VerbsLibraries::attach(const Programs &programs) {
    programs_ = programs;
    for (File &file : files_)
        place(file);
}

void VerbsLibraries::detach() {
    programs_.reset();
    std::vector<bpf_link *> links;
    for (File &file : files_) {
        links.insert(links.end(), file.links.begin(), file.links.end());
        file.links.clear();
    }
    loader::take_off(links);
}

void VerbsLibraries::start_taking_off() {
    programs_.reset();
    std::vector<bpf_link *> links;
    for (File &file : files_) {
        links.insert(links.end(), file.links.begin(), file.links.end());
        file.links.clear();
        for (Site &site : file.sites)
            site.probe.taken_off = std::exchange(site.probe.placed, false);
    }
    loader::start_taking_off(links);
}

std::vector<source::ProbeProgram> VerbsLibraries::programs() const {
    std::map<int, source::ProbeProgram> by_fd;
    for (const File &file : files_)
        for (const Site &site : file.sites) {
            if (!site.probe.placed || !programs_)
                continue;
            const int fd = bpf_program__fd(program_of(site));
            const auto [entry, is_new] = by_fd.try_emplace(
                fd, source::ProbeProgram{fd, site.probe.kind, site.probe.emulated, 0});
            entry->second.emulated = entry->second.emulated && site.probe.emulated;
        }
    std::vector<source::ProbeProgram> all;
    all.reserve(by_fd.size());
    for (const auto &[fd, program] : by_fd)
        all.push_back(program);
    return all;
}

std::set<std::uint64_t> VerbsLibraries::release_unused(std::uint64_t now_ns) {
    std::set<std::uint64_t> inodes;
    if (now_ns - checked_unused_ns_ < SPARE_UNUSED_NS)
        return inodes;
    checked_unused_ns_ = now_ns;
    bool any_unused = false;
    for (File &file : files_) {
        std::erase_if(file.users, [](const auto &user) {
            return process::start_ticks(user.first) != user.second;
        });
        any_unused = any_unused || (file.users.empty() && !file.is_installed);
    }
    // Later processes with a file that is known were not reported.
    if (any_unused)
        for (const pid_t pid : process::rdma_processes())
            (void)scan(pid);
    std::vector<bpf_link *> links;
    std::erase_if(files_, [&](File &file) {
        if (!file.users.empty() || file.is_installed) {
            file.unused_since_ns = 0;
            return false;
        }
        if (file.unused_since_ns == 0) {
            file.unused_since_ns = now_ns;
            return false;
        }
        for (const process::FileIdentity &name : file.names)
            inodes.insert(name.inode);
        links.insert(links.end(), file.links.begin(), file.links.end());
        return true;
    });
    loader::take_off(links);
    return inodes;
}

std::size_t VerbsLibraries::n_usable() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        files_, [](const File &file) { return file.problem.empty() && !file.sites.empty(); }));
}

std::vector<std::string> VerbsLibraries::problems() const {
    std::vector<std::string> all;
    for (const File &file : files_) {
        // One that nobody uses is of no harm.
        if (!file.problem.empty() && (!file.users.empty() || file.is_installed))
            all.push_back(file.problem);
        else if (!file.missing.empty())
            all.push_back(fmt::format("{}: {}", file.path, file.missing));
    }
    if (has_too_many_)
        all.push_back(
            fmt::format("more than {} files of libibverbs: the rest is not probed", MAX_FILES));
    return all;
}

std::vector<source::PlannedProbe> VerbsLibraries::probe_list() const {
    std::vector<source::PlannedProbe> probes;
    for (const File &file : files_)
        if (file.problem.empty())
            for (const Site &site : file.sites)
                probes.push_back(site.probe);
    return probes;
}

void VerbsLibraries::append_new(source::RecordSink &sink) {
    for (File &file : files_) {
        if (file.placed_ns == 0 || file.is_written)
            continue;
        file.is_written = true;
        for (const Site &site : file.sites) {
            const cw_probe record = probe_record(site.probe, file.placed_ns);
            sink.append(record.header);
        }
    }
}

void VerbsLibraries::written() {
    for (File &file : files_)
        file.is_written = file.placed_ns != 0;
}

} // namespace collwire::sources
