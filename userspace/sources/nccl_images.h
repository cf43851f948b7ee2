// SPDX-License-Identifier: Apache-2.0
// The builds of NCCL that processes of this machine have mapped, each with its plan, its BPF
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

#include "userspace/loader/skeleton.h"
#include "userspace/nccl/find_nccl.h"
#include "userspace/nccl/plan.h"
#include "userspace/providers/process_view.h"
#include "userspace/record/source.h"

struct bpf_link;
struct nccl; // the skeleton of bpf/nccl.bpf.c

namespace collwire {

// Whose NCCL is probed, and what besides the calls and launches.
struct NcclProbes {
    std::vector<std::uint32_t> pids; // nothing of other processes is looked at; empty: all
    bool api_returns = false;
    bool local_launches = false;
    bool network_times = false;
};

struct NcclImage {
    NcclImage();
    ~NcclImage();

    std::uint32_t id = 0;
    FileStatus status; // as its plan was made of it
    // Containers of one image, and overlays, show one file as many. Empty: it was given up.
    std::set<FileIdentity> names;
    std::map<pid_t, std::uint64_t> users; // processes that mapped it, and their start_ticks
    std::uint64_t unused_since_ns = 0;    // 0: used when last looked at
    bool is_due = false; // loses its probes with the next look, unless it has users then
    bool stays = false;  // it is this machine's own
    std::string path;    // in the mount namespace of the process that it was met in
    MappedFile file;     // as long as its probes are there
    std::optional<std::pair<pid_t, Mapping>> met; // until its probes are placed
    nccl::Plan plan;
    std::string problem;              // why it is not traced; empty: it is
    std::string loop_refused;         // why long lists are walked in part only; empty: they are not
    std::vector<std::string> missing; // what was asked for and is not probed, a clause each
    std::unique_ptr<Skeleton<::nccl>> programs;
    std::vector<bpf_link *> links;
    std::vector<PlannedProbe> probes;
    std::uint64_t placed_ns = 0;
};

class NcclImages {
public:
    static constexpr std::uint64_t MINUTE_NS = 60'000'000'000;

    // `spare_unused_ns`: for how long an image that nobody maps keeps its probes.
    NcclImages(const SharedMaps &maps, NcclProbes wanted, std::uint64_t spare_unused_ns = MINUTE_NS)
        : maps_(maps), wanted_(std::move(wanted)), spare_unused_ns_(spare_unused_ns) {}
    NcclImages(const NcclImages &) = delete;
    NcclImages &operator=(const NcclImages &) = delete;
    ~NcclImages();

    // From now on images are probed as they are found; those found before are probed now.
    void attach();
    void detach();
    // Takes the probes off, and puts them back: what the programs know of communicators stays.
    void lift();
    Result<void> put_back();

    // Those that may map an image.
    [[nodiscard]] std::vector<pid_t> processes() const;
    // What look_at came to.
    struct Looked {
        std::set<std::uint64_t> inodes; // of mapped files of which it is known now what they are
        std::vector<pid_t> again;       // these have files that there was no time for
    };
    // Finds images that these processes have mapped. Files that were looked at before cost little.
    Looked look_at(const std::vector<pid_t> &pids);

    // Takes the probes off files that were written again, at whose places there is other code now,
    // and off those that no process has mapped for a while: a probe keeps the file system of an
    // ended container from going away. Those of this machine itself stay as long as they have a
    // name. Whoever maps a file with one of the inodes that this gives is to be told of again: the
    // unused ones lose their probes with the next call, so nobody maps one in between unseen.
    std::set<std::uint64_t> give_up(std::uint64_t now_ns);
    // Forgets those that were given up and are over, but what was said of them.
    void forget(const std::function<bool(const NcclImage &)> &is_over);

    // A file that nobody has mapped yet: its first user meets the probes. BadInput if it is no
    // NCCL.
    Result<void> add_file(const std::string &path);

    [[nodiscard]] const std::vector<std::unique_ptr<NcclImage>> &all() const { return images_; }
    [[nodiscard]] NcclImage *find(std::uint32_t id) const;
    // The image whose file this is a mapping of; null: of none.
    [[nodiscard]] NcclImage *image_of(pid_t pid, const Mapping &mapping) const;
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
    [[nodiscard]] NcclImage *image_of(const FileIdentity &file) const;
    // Null: nobody could read it now.
    NcclImage *add(MappedFile file, const FileStatus &status, std::string path);
    // The image whose probes are in this mapping of a file with this build.
    [[nodiscard]] NcclImage *probed_in(pid_t pid, const Mapping &mapping,
                                       std::string_view build_id) const;
    void become_one();
    static void note_user(NcclImage &image, pid_t pid);
    // Known by what its file is like now, if its code is the same.
    [[nodiscard]] bool is_what_was_planned(NcclImage &image) const;
    static void take_over(NcclImage &image, const FileStatus &now);
    [[nodiscard]] bool has_lost_breakpoints(const NcclImage &image) const;
    static void give_up(NcclImage &image);
    void let_go_due();
    void find_users();
    void keep_problem(std::string problem);
    void place(NcclImage &image);
    Result<void> load(NcclImage &image);
    Result<void> load(NcclImage &image, bool loop);
    Result<void> place_all(NcclImage &image) const;
    void plan_probes(NcclImage &image) const;
    static Result<void> place_one(NcclImage &image, PlannedProbe &probe, bpf_program *program);

    const SharedMaps &maps_;
    NcclProbes wanted_;
    std::uint64_t spare_unused_ns_;
    std::uint64_t looked_for_unused_ns_ = 0;
    std::uint32_t last_id_ = 0;
    bool attached_ = false;
    std::set<FileIdentity> others_;          // that are no images
    std::vector<std::string> kept_problems_; // of files that are no images, or none any more
    std::vector<std::unique_ptr<NcclImage>> images_;
};

} // namespace collwire
