// SPDX-License-Identifier: Apache-2.0
// The places in driver libraries that the probes on posted work requests sit on: found, planned,
// attached, each file and instruction once.
#pragma once

#include <array>
#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collwire/verbs.h"
#include "userspace/elf/elf_image.h"
#include "userspace/process/process_view.h"
#include "userspace/source/source.h"
#include "userspace/verbs/live_verbs.h"

struct bpf_link;
struct bpf_program;

namespace collwire::process {
struct ProbedFile;
}

namespace collwire::sources {

class PostsSites {
public:
    // By cw_verbs_call.
    using Programs = std::array<bpf_program *, CW_CALLS>;

    // `spare_unused_ns`: for how long a library that no process maps keeps its probes.
    // `keeps_files`: the files stay open while they have sites, for pauses.
    PostsSites(bool allow_single_step, std::uint64_t spare_unused_ns, bool keeps_files = false)
        : allow_single_step_(allow_single_step), spare_unused_ns_(spare_unused_ns),
          keeps_files_(keeps_files) {}
    PostsSites(const PostsSites &) = delete;
    PostsSites &operator=(const PostsSites &) = delete;
    ~PostsSites();

    // From now on sites are attached as they are found; those found before are attached now.
    void attach(const Programs &programs);
    void detach();
    // Detaches all sites, and returns when the kernel has removed their breakpoints. Needs
    // keeps_files.
    void pause();
    // Attaches them again. False: not all of them, see problems().
    bool resume();
    // Detaches for good, without waiting for the kernel. Sites that are found later stay bare.
    void start_taking_off();
    // Those in place, each once.
    [[nodiscard]] std::vector<source::ProbeProgram> programs() const;

    // post_send of a library that a process has mapped, found by its tables, and the functions
    // of the ibv_wr_* calls. Once per file.
    void add_library(const process::ProcessView &view, const process::Mapping &mapping);
    // The same for a library that no process need have mapped yet: a later one takes the probes.
    void add_installed(const std::string &path);
    // The functions of a queue pair of the process. True: it lives since `created_ns`, and some
    // probe that counts its posts was not in place then.
    bool add_functions(const process::ProcessView &view,
                       std::span<const verbs::LiveFunction> functions, std::uint64_t created_ns);

    // Takes the probes off libraries that no process has mapped for a while: a probe keeps the file
    // system of an ended container from going away. Those that are installed here stay. Looks once
    // in that while, at processes that use RDMA alone: reading what a process maps may block.
    void drop_unused(std::uint64_t now_ns);

    [[nodiscard]] std::vector<source::PlannedProbe> probe_list() const;
    // Places where posts go unseen, one clause each.
    [[nodiscard]] const std::vector<std::string> &problems() const { return problems_; }
    // Appends one probe record for each site that was attached since the last call, or since
    // those that the probe list has.
    void append_new(source::RecordSink &sink);
    void probe_list_is_written();
    [[nodiscard]] std::size_t n_placed() const;

private:
    struct Library {
        dev_t device = 0;
        ino_t inode = 0;
        timespec changed{};
        std::string path; // in its process's mount namespace
        bool scanned = false;
        process::MappedFile file; // until its sites were tried to attach
        bool installed = false;
        bool dropped = false;              // the entry is free
        std::uint64_t unused_since_ns = 0; // 0: used when last looked at
        std::map<pid_t, std::uint64_t> users =
            {}; // processes that mapped it, and their start_ticks
    };
    struct Site {
        std::size_t library = 0;
        cw_verbs_call call = CW_CALL_NONE;
        std::uint64_t function_offset = 0; // in the file
        std::uint64_t point_offset = 0;
        std::string instruction;
        bool emulated = false;
        // another name of a file that has this probe: the library that it was placed for
        std::optional<std::size_t> same_as = {};
        bpf_link *link = nullptr;
        std::uint64_t placed_ns = 0;
        bool failed = false; // to attach: not tried again
        bool appended = false;
    };

    // Where a library was met: mapped by a process, or, without one, in the file system.
    struct Place {
        const process::ProcessView *view = nullptr;
        const process::Mapping *mapping = nullptr;
        std::string path;

        [[nodiscard]] Result<process::MappedFile> open() const;
    };

    std::size_t library_of(const process::MappedFile &file, const std::string &path);
    void add_all_of(const Place &place);
    // Its number may have gone to another file, unless a probe holds it.
    [[nodiscard]] bool is_same(std::size_t library, const process::MappedFile &file) const;
    void note_user(std::size_t library, pid_t pid);
    [[nodiscard]] bool is_used(std::size_t library) const;
    [[nodiscard]] bool is_installed(std::size_t library) const;
    void find_users(const std::vector<std::size_t> &libraries);
    void was_used(std::size_t library);
    void drop(std::size_t library);
    [[nodiscard]] Site *known(std::size_t library, std::uint64_t function_offset,
                              cw_verbs_call call);
    // A library that is only mapped is no problem: programs map drivers that they never use.
    void note_use(const Site &site);
    void add_site(std::size_t library, const elf::ElfImage &image, const Place &place,
                  std::uint64_t function_offset, cw_verbs_call call);
    // Whether the file there is another name of one that has this site's probe.
    [[nodiscard]] bool is_probed_there(const Site &other, const Site &site,
                                       const elf::ElfImage &image, const Place &place) const;
    // Single-stepped instructions are dear: by default nothing is placed on one. The ibv_wr_* calls
    // of a library build a request together, so without one of them the others would count too
    // little.
    [[nodiscard]] bool allowed(const Site &site) const;
    // The first function of these calls that has no emulated instruction to probe.
    [[nodiscard]] const Site *single_stepped_call(std::size_t library) const;
    void attach_allowed();
    void close_files();
    [[nodiscard]] std::vector<bpf_link *> take_links(process::ProbedFile &probed);
    void attach_site(Site &site);
    void problem(std::string text);
    [[nodiscard]] source::PlannedProbe planned(const Site &site) const;

    bool allow_single_step_;
    std::uint64_t spare_unused_ns_;
    bool keeps_files_;
    std::uint64_t looked_for_unused_ns_ = 0;
    std::optional<Programs> programs_;
    bool taken_off_ = false;
    bool paused_ = false;
    std::vector<Library> libraries_;
    std::vector<Site> sites_;
    std::vector<std::string> problems_;
};

// "post_send", "wr_complete", ...
std::string_view name_of(cw_verbs_call call);

} // namespace collwire::sources
