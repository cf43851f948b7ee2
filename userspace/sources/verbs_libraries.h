// SPDX-License-Identifier: Apache-2.0
// The libibverbs files that processes of this machine have mapped, or will, and the probes in them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include "userspace/process/process_view.h"
#include "userspace/source/source.h"
#include "userspace/verbs/control_path.h"

struct bpf_link;
struct bpf_program;

namespace collwire::sources {

class VerbsLibraries {
public:
    struct Programs {
        bpf_program *create = nullptr;
        bpf_program *create_returns = nullptr;
        bpf_program *public_create_returns = nullptr;
        bpf_program *modify = nullptr;
        bpf_program *modify_returns = nullptr;
        bpf_program *destroy = nullptr;
        bpf_program *destroy_returns = nullptr;
        bpf_program *ack_event = nullptr;
    };

    // `pids`: only what they map is probed; empty: every process. `at_returns`: the ends of
    // functions get probes, too.
    VerbsLibraries(std::vector<std::uint32_t> pids, bool at_returns)
        : pids_(std::move(pids)), at_returns_(at_returns) {}
    VerbsLibraries(const VerbsLibraries &) = delete;
    VerbsLibraries &operator=(const VerbsLibraries &) = delete;
    ~VerbsLibraries() { detach(); }

    // A file that processes may map later. False: there is no such file.
    bool add_installed(const std::string &path);
    // Finds the files that a process has mapped. False: it has exited.
    bool scan(pid_t pid);
    // Places the probes, and from now on those of each file when it is found.
    void attach(const Programs &programs);
    void detach();
    // Detaches for good, without waiting for the kernel.
    void start_taking_off();
    // Those in place, each once.
    [[nodiscard]] std::vector<source::ProbeProgram> programs() const;

    // Releases files that are not installed and that no process has mapped for a minute: a probe
    // keeps the file system of a container mounted. Returns their inode numbers: their mappings
    // have to be reported again.
    std::set<std::uint64_t> release_unused(std::uint64_t now_ns);

    [[nodiscard]] std::size_t n_usable() const;
    // What is not seen, and why: one clause each.
    [[nodiscard]] std::vector<std::string> problems() const;
    [[nodiscard]] std::vector<source::PlannedProbe> probe_list() const;
    // The probes that were placed since the last call, or since written().
    void append_new(source::RecordSink &sink);
    // The recorder has written probe_list().
    void written();

private:
    struct Site {
        source::PlannedProbe probe;
        verbs::ControlCall call = verbs::ControlCall::Modify;
    };
    struct File {
        // Containers of one image, and overlays, show one file as many.
        std::set<process::FileIdentity> names;
        process::MappedFile file; // open until its probes were placed
        std::string path;         // in the mount namespace of the first process
        bool is_installed = false;
        std::set<std::pair<pid_t, std::uint64_t>> users; // with start_ticks
        std::uint64_t unused_since_ns = 0;               // 0: used at the last check
        std::vector<Site> sites;
        std::string problem; // why it is not probed; empty: it is
        std::string missing; // of verbs::ControlPath
        std::vector<bpf_link *> links;
        std::uint64_t placed_ns = 0;
        bool is_written = false;
    };

    [[nodiscard]] File *file_of(const process::FileIdentity &identity);
    [[nodiscard]] File *probed_in(const process::ProcessView &view, const process::Mapping &mapping,
                                  const File &fresh);
    [[nodiscard]] File read(process::MappedFile file, const process::FileStatus &status,
                            std::string path) const;
    void drop_older(const process::FileIdentity &identity);
    void place(File &file);
    [[nodiscard]] bpf_program *program_of(const Site &site) const;

    std::vector<std::uint32_t> pids_;
    bool at_returns_;
    std::optional<Programs> programs_;
    bool has_too_many_ = false;
    std::uint64_t checked_unused_ns_ = 0;
    std::vector<File> files_;
};

} // namespace collwire::sources
