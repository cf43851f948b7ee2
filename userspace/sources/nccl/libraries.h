// SPDX-License-Identifier: Apache-2.0
// The builds of NCCL that processes of this machine have mapped, each with its layout, its BPF
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

// Whose NCCL is probed, and what besides the calls and launches.
struct NcclProbes {
    std::vector<std::uint32_t> pids;  // nothing of other processes is looked at; empty: all
    std::vector<std::string> symbols; // places of debug files: nccl::DebugPlaces
    bool api_returns = false;
    bool local_launches = false;
    bool network_times = false;
    bool warnings = false;
};

struct NcclLibrary {
    NcclLibrary();
    ~NcclLibrary();

    std::uint32_t id = 0;
    FileStatus status; // as its layout was made of it
    // Containers of one image, and overlays, show one file as many. Empty: it was given up.
    std::set<FileIdentity> names;
    std::map<pid_t, std::uint64_t> users; // processes that mapped it, and their start_ticks
    std::uint64_t unused_since_ns = 0;    // 0: used when last looked at
    bool is_due = false;       // loses its probes with the next look, unless it has users then
    bool stays = false;        // it is this machine's own
    bool is_asked_for = false; // keeps its place for a user to come
    std::string path;          // in the mount namespace of the process that it was met in
    MappedFile file;           // as long as its probes are there
    std::optional<std::pair<pid_t, Mapping>> met; // until its probes are placed
    nccl::LibraryLayout layout;
    std::optional<cw_nccl_layout>
        bpf_layout;                   // the same for the BPF programs; empty: it does not fit
    std::string problem;              // why it is not traced; empty: it is
    std::string loop_refused;         // why long lists are walked in part only; empty: they are not
    std::string sockets_refused;      // why sockets that it closes are not told of
    std::vector<std::string> missing; // what was asked for and is not probed, a clause each
    std::unique_ptr<Skeleton<::nccl>> programs;
    std::vector<bpf_link *> links;
    std::vector<PlannedProbe> probes;
    std::uint64_t placed_ns = 0;
};

class NcclLibraries {
public:
    using Inodes = std::set<std::uint64_t>;
    static constexpr std::uint64_t MINUTE_NS = 60'000'000'000;
    // Each costs the kernel some 10 MiB. A node has a few; a program can copy one as often as it
    // wants.
    static constexpr std::size_t MAX_PROBED = 64;

    // `spare_unused_ns`: for how long a library that nobody maps keeps its probes. `tell_again`:
    // whoever maps a file with one of these numbers from then on is to be told of again.
    NcclLibraries(const SharedMaps &maps, NcclProbes wanted,
                  std::uint64_t spare_unused_ns = MINUTE_NS,
                  std::function<void(const Inodes &)> tell_again = {},
                  std::size_t max_probed = MAX_PROBED)
        : maps_(maps), wanted_(std::move(wanted)), spare_unused_ns_(spare_unused_ns),
          tell_again_(std::move(tell_again)), max_probed_(max_probed) {}
    NcclLibraries(const NcclLibraries &) = delete;
    NcclLibraries &operator=(const NcclLibraries &) = delete;
    ~NcclLibraries();

    // From now on libraries are probed as they are found; those found before are probed now. If
    // there are more than there is room for, a new one has the place of the one that was longest
    // without users, and where all are used it is refused until a place becomes free.
    void attach();
    void detach();
    // Takes the probes off, and puts them back: what the programs know of communicators stays.
    void lift();
    Result<void> put_back();

    // Those that may map a library.
    [[nodiscard]] std::vector<pid_t> processes() const;
    // What look_at came to.
    struct Looked {
        Inodes inodes;            // of mapped files of which it is known now what they are
        std::vector<pid_t> again; // these have files that there was no time for
    };
    // Finds libraries that these processes have mapped. Files that were looked at before cost
    // little.
    Looked look_at(const std::vector<pid_t> &pids);
    // Processes that have a file which was refused, and for which there may be room since the last
    // call.
    [[nodiscard]] std::set<pid_t> take_with_room() { return std::exchange(with_room_, {}); }

    // Takes the probes off files that were written again, at whose places there is other code now,
    // and off those that no process has mapped for a while: a probe keeps the file system of an
    // ended container from going away. Those of this machine itself stay as long as they have a
    // name. Whoever maps a file with one of the inodes that this gives is to be told of again: the
    // unused ones lose their probes with the next call, so nobody maps one in between unseen.
    Inodes give_up(std::uint64_t now_ns);
    // Forgets those that were given up and are over, but what was said of them.
    void forget(const std::function<bool(const NcclLibrary &)> &is_over);

    // A file that nobody has mapped yet: its first user meets the probes. BadInput if it is no
    // NCCL.
    Result<void> add_file(const std::string &path);

    [[nodiscard]] const std::vector<std::unique_ptr<NcclLibrary>> &all() const {
        return libraries_;
    }
    [[nodiscard]] NcclLibrary *find(std::uint32_t id) const;
    // No library has a greater number by now, and each later one has.
    [[nodiscard]] std::uint32_t last_id() const { return last_id_; }
    // The library whose file this is a mapping of; null: of none.
    [[nodiscard]] NcclLibrary *library_of(pid_t pid, const Mapping &mapping) const;
    // Places without tracing, one clause each.
    [[nodiscard]] std::vector<std::string> problems() const;
    // Calls that the kernel let pass without running the programs, as far as it counts them.
    [[nodiscard]] std::uint64_t missed() const;

private:
    struct Candidate {
        pid_t pid;
        Mapping mapping;
        FileStatus status;
        std::string file; // a path that leads to it from here
    };

    void collect(pid_t pid, std::vector<Candidate> &candidates, Looked &looked);
    // False: what it is is not known.
    bool judge(Candidate candidate, const nccl::FileLook &look);
    [[nodiscard]] NcclLibrary *library_of(const FileIdentity &file) const;
    // Null: nobody could read it now.
    NcclLibrary *add(MappedFile file, const FileStatus &status, std::string path);
    [[nodiscard]] Result<nccl::LibraryLayout> layout_of(const NcclLibrary &library) const;
    // The library whose probes are in this mapping of a file with this build.
    [[nodiscard]] NcclLibrary *probed_in(pid_t pid, const Mapping &mapping,
                                         std::string_view build_id) const;
    void become_one();
    [[nodiscard]] std::size_t n_probed() const;
    [[nodiscard]] bool is_full() const;
    // False: all are used.
    bool make_room();
    [[nodiscard]] NcclLibrary *longest_unused() const;
    void refuse(const FileIdentity &file, pid_t pid);
    void refuse_the_rest();
    static void note_user(NcclLibrary &library, pid_t pid);
    // Known by what its file is like now, if its code is the same.
    [[nodiscard]] bool matches_its_layout(NcclLibrary &library) const;
    static void take_over(NcclLibrary &library, const FileStatus &now);
    [[nodiscard]] bool has_lost_breakpoints(const NcclLibrary &library) const;
    void give_up(NcclLibrary &library);
    void let_go_due();
    void find_users();
    void keep_problem(std::string problem);
    void place(NcclLibrary &library);
    Result<void> load(NcclLibrary &library);
    Result<void> load_any_walk(NcclLibrary &library);
    Result<void> load(NcclLibrary &library, bool loop);
    Result<void> place_all(NcclLibrary &library) const;
    void list_probes(NcclLibrary &library) const;
    static Result<void> place_one(NcclLibrary &library, PlannedProbe &probe, bpf_program *program);

    const SharedMaps &maps_;
    NcclProbes wanted_;
    std::uint64_t spare_unused_ns_;
    std::function<void(const Inodes &)> tell_again_;
    std::size_t max_probed_;
    std::uint64_t looked_for_unused_ns_ = 0;
    std::uint32_t last_id_ = 0;
    bool attached_ = false;
    std::set<FileIdentity> others_;          // that are no libraries
    std::map<FileIdentity, pid_t> refused_;  // without room, and who has them
    std::set<pid_t> with_room_;              // of those refused before
    Inodes with_room_inodes_;                // to be told of again
    std::vector<std::string> kept_problems_; // of files that are no libraries, or none any more
    std::vector<std::unique_ptr<NcclLibrary>> libraries_;
};

} // namespace collwire::sources
