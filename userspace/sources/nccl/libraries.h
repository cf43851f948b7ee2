// SPDX-License-Identifier: Apache-2.0
// The NCCL libraries that processes of this machine have mapped, each with its layout, its BPF
// programs and its probes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collwire/nccl_layout.h"
#include "userspace/loader/skeleton.h"
#include "userspace/nccl/layout/find_nccl.h"
#include "userspace/nccl/layout/library_layout.h"
#include "userspace/process/process_view.h"
#include "userspace/source/source.h"

struct bpf_link;
struct nccl; // the skeleton of bpf/nccl.bpf.c

namespace collwire::sources {

// The processes whose NCCL is probed, and the optional probes.
struct NcclProbes {
    std::vector<std::uint32_t> pids;  // other processes are not searched; empty: all are
    std::vector<std::string> symbols; // places of debug files and layouts: nccl::DebugPlaces
    bool api_returns = false;
    bool local_launches = false;
    bool network_times = false;
    bool warnings = false;
};

// What is taken off together.
enum class NcclProbeGroup { Times, Warnings, Operations, Control };

struct NcclLink {
    bpf_link *link = nullptr;
    NcclProbeGroup group = NcclProbeGroup::Operations;
    std::size_t probe = 0; // of the library's
    int program_fd = -1;
};

struct NcclLibrary {
    NcclLibrary();
    ~NcclLibrary();

    std::uint32_t id = 0;
    process::FileStatus status; // when its layout was made
    // Containers of one image, and overlays, show one file as many. Empty: released.
    std::set<process::FileIdentity> names;
    std::map<pid_t, std::uint64_t> users; // processes that mapped it, and their start_ticks
    std::uint64_t unused_since_ns = 0;    // 0: used at the last check
    bool is_due = false;                  // is released at the next check, unless it has users then
    bool stays = false;                   // it is a file of this machine, not of a container
    bool is_requested = false;            // named by an option: keeps its probes without users
    std::string path;                     // in the mount namespace of the first process
    process::MappedFile file;             // open while it has probes
    std::optional<std::pair<pid_t, process::Mapping>>
        found_in; // the first process, until probes are placed
    nccl::LibraryLayout layout;
    std::optional<cw_nccl_layout>
        bpf_layout;                   // for the BPF programs; empty: the layout does not fit
    std::string problem;              // why it is not recorded; empty: it is, or will be
    bool is_waiting = false;          // its probes could not be placed yet
    std::vector<pid_t> waits_for;     // processes that keep the kernel from placing them
    std::string loop_refused;         // why long lists are truncated; empty: they are not
    std::string sockets_refused;      // why closed sockets are not emitted; empty: they are
    std::vector<std::string> missing; // requested probes that are missing, a clause each
    std::unique_ptr<loader::Skeleton<::nccl>> programs;
    std::vector<NcclLink> links;
    std::vector<source::PlannedProbe> probes;
    std::uint64_t placed_ns = 0;
};

class NcclLibraries {
public:
    using Inodes = std::set<std::uint64_t>;
    static constexpr std::uint64_t MINUTE_NS = 60'000'000'000;
    // Each costs the kernel about 10 MiB. A node has a few, but a program can make any number of
    // copies.
    static constexpr std::size_t MAX_PROBED = 64;

    // `spare_unused_ns`: for how long a library that no process maps keeps its probes.
    // `rearm_mappings`: emit the next mapping of a file with one of these numbers again.
    NcclLibraries(const loader::SharedMaps &maps, NcclProbes wanted,
                  std::uint64_t spare_unused_ns = MINUTE_NS,
                  std::function<void(const Inodes &)> rearm_mappings = {},
                  std::size_t max_probed = MAX_PROBED)
        : maps_(maps), wanted_(std::move(wanted)), spare_unused_ns_(spare_unused_ns),
          rearm_mappings_(std::move(rearm_mappings)), max_probed_(max_probed) {}
    NcclLibraries(const NcclLibraries &) = delete;
    NcclLibraries &operator=(const NcclLibraries &) = delete;
    ~NcclLibraries();

    // Probes the libraries that were found before, and from now on each one when it is found. If
    // there are more than max_probed, a new library takes the place of the one without users for
    // the longest time. If all have users, it is refused until a place is free.
    void attach();
    void detach();
    // Places the probes of libraries that had to wait, for a limited time. The number before that
    // of the first of them, if there was one.
    std::optional<std::uint32_t> place_waiting();
    // Detaches the probes, and attaches them again. The BPF programs keep their state.
    void detach_probes();
    Result<void> reattach_probes();
    // The groups with probes in place.
    [[nodiscard]] std::vector<source::ProbeGroup> probe_groups() const;
    // Detaches a group for good, without waiting for the kernel. With Operations go Times.
    void start_taking_off(NcclProbeGroup group);

    // The processes that are searched.
    [[nodiscard]] std::vector<pid_t> processes() const;
    struct Scanned {
        Inodes inodes;                 // of mapped files that are classified by now
        std::vector<pid_t> unfinished; // processes with files that there was no time for
    };
    // Finds the libraries that these processes have mapped. Files that were classified before cost
    // little.
    Scanned scan(const std::vector<pid_t> &pids);
    // Processes with a library that was refused, since there may be room for it now.
    [[nodiscard]] std::set<pid_t> take_retry_pids() { return std::exchange(retry_pids_, {}); }

    // Releases libraries whose file was written again, since their probes are in other code now;
    // and libraries without users for a while, since a probe keeps the file system of an ended
    // container mounted. Files of this machine stay while they have a name. Returns inodes whose
    // mappings have to be rearmed: an unused library is released at the next call, so that no
    // process maps it unseen in between.
    Inodes release_unused(std::uint64_t now_ns);
    // Forgets released libraries that are over, but keeps their problems.
    void forget(const std::function<bool(const NcclLibrary &)> &is_over);

    // Probes a file before a process maps it. BadInput if it is not NCCL.
    Result<void> add_file(const std::string &path);

    [[nodiscard]] const std::vector<std::unique_ptr<NcclLibrary>> &all() const {
        return libraries_;
    }
    [[nodiscard]] NcclLibrary *find(std::uint32_t id) const;
    // The greatest number; each later library has a greater one.
    [[nodiscard]] std::uint32_t last_id() const { return last_id_; }
    // The library of a mapping; null: not a library.
    [[nodiscard]] NcclLibrary *library_of(pid_t pid, const process::Mapping &mapping) const;
    // What is not recorded, one clause each.
    [[nodiscard]] std::vector<std::string> problems() const;
    // Hits that the kernel skipped, if it counts them.
    [[nodiscard]] std::uint64_t missed() const;

private:
    struct Candidate {
        pid_t pid;
        process::Mapping mapping;
        process::FileStatus status;
        std::string file; // a path to it for this process
        std::size_t n_users = 1;
    };

    void collect(pid_t pid, std::vector<Candidate> &candidates, Scanned &scanned);
    // False: not classified.
    void note_silent(const Candidate &candidate, std::string_view unknown);
    bool classify(Candidate candidate, const nccl::FileCheck &check);
    [[nodiscard]] NcclLibrary *library_of(const process::FileIdentity &file) const;
    // Failed: it could not be read in time.
    Result<NcclLibrary *> add(process::MappedFile file, const process::FileStatus &status,
                              std::string path, const nccl::ReaderTimes &times = {});
    [[nodiscard]] Result<nccl::LibraryLayout> layout_of(const NcclLibrary &library,
                                                        const nccl::ReaderTimes &times = {}) const;
    // The library of this build whose probes are in this mapping.
    [[nodiscard]] NcclLibrary *probed_in(pid_t pid, const process::Mapping &mapping,
                                         std::string_view build_id) const;
    void merge_copies();
    static std::vector<bpf_link *> links_of(const NcclLibrary &library);
    [[nodiscard]] std::size_t n_probed() const;
    [[nodiscard]] std::size_t n_waiting() const;
    [[nodiscard]] bool is_full() const;
    // False: all have users.
    bool make_room();
    [[nodiscard]] NcclLibrary *longest_unused() const;
    void refuse(const process::FileIdentity &file, pid_t pid);
    void refuse_the_rest();
    static void add_user(NcclLibrary &library, pid_t pid);
    // Compares the file with the layout, and adopts its new status if the code is the same.
    [[nodiscard]] bool matches_its_layout(NcclLibrary &library) const;
    static void adopt_status(NcclLibrary &library, const process::FileStatus &now);
    [[nodiscard]] bool has_lost_breakpoints(const NcclLibrary &library) const;
    void release(NcclLibrary &library);
    void release_due();
    void find_users();
    void add_problem(std::string problem);
    void place(NcclLibrary &library);
    [[nodiscard]] std::vector<pid_t> silent_users_of_probed() const;
    Result<void> load(NcclLibrary &library);
    Result<void> load_any_walk(NcclLibrary &library);
    Result<void> load(NcclLibrary &library, bool loop);
    Result<void> place_all(NcclLibrary &library) const;
    void list_probes(NcclLibrary &library) const;
    static Result<void> place_one(NcclLibrary &library, source::PlannedProbe &probe,
                                  bpf_program *program, NcclProbeGroup group);

    const loader::SharedMaps &maps_;
    NcclProbes wanted_;
    std::uint64_t spare_unused_ns_;
    std::function<void(const Inodes &)> rearm_mappings_;
    std::size_t max_probed_;
    std::uint64_t checked_unused_ns_ = 0;
    std::uint32_t last_id_ = 0;
    std::size_t n_unread_ = 0; // files with NCCL that there was no time for
    bool attached_ = false;
    std::set<NcclProbeGroup> taken_off_;
    struct SilentFile {
        std::uint64_t again_ns = 0;
        std::uint64_t pause_ns = 0;
    };
    std::set<process::FileIdentity> not_nccl_;                 // files that are not NCCL
    std::map<process::FileIdentity, SilentFile> silent_files_; // whose file system does not answer
    std::map<process::FileIdentity, pid_t> refused_; // without room, and a process that maps each
    std::set<pid_t> retry_pids_;                     // processes with refused libraries
    Inodes retry_inodes_;                            // their files
    std::vector<std::string> past_problems_; // of unreadable files and of forgotten libraries
    std::vector<std::unique_ptr<NcclLibrary>> libraries_;
};

// "operations", ...
[[nodiscard]] std::string_view name_of(NcclProbeGroup group);

} // namespace collwire::sources
