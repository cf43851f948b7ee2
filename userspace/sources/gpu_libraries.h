// SPDX-License-Identifier: Apache-2.0
// The copies of the guest library that processes of this machine have mapped, or will, and the
// probes in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include "userspace/process/process_view.h"
#include "userspace/source/source.h"

struct bpf_link;
struct bpf_program;

namespace collwire::sources {

class GpuLibraries {
public:
    struct Programs {
        bpf_program *batch = nullptr;
        bpf_program *arm = nullptr;
    };
    struct User {
        pid_t pid = 0;
        std::uint64_t start_ticks = 0;
        friend auto operator<=>(const User &, const User &) = default;
    };

    // `pids`: only they are probed and armed; empty: every process.
    explicit GpuLibraries(std::vector<std::uint32_t> pids) : pids_(std::move(pids)) {}
    GpuLibraries(const GpuLibraries &) = delete;
    GpuLibraries &operator=(const GpuLibraries &) = delete;
    ~GpuLibraries() { detach(); }

    // A file that processes may map later. False: there is no such file.
    bool add_installed(const std::string &path);
    enum class Scan { Exited, Without, With };
    // Finds the copies that a process has mapped.
    Scan scan(pid_t pid);
    // Places the probes on hand-overs, and from now on those of each copy when it is found.
    void attach(Programs programs);
    // Attaches to the sites with the semaphore: the kernel raises it in all processes that have
    // mapped a copy, or map one later. A copy that is found while armed is armed, too.
    void arm();
    // Returns when the kernel has lowered every semaphore.
    void disarm();
    [[nodiscard]] bool is_armed() const { return is_armed_; }
    // Disarms, and removes all probes.
    void detach();

    // Releases copies that are not installed and that no process has mapped for a minute: a probe
    // keeps the file system of a container mounted. Returns their inode numbers: their mappings
    // have to be reported again.
    std::set<std::uint64_t> release_unused(std::uint64_t now_ns);

    // Processes that were seen to have a copy mapped and that still run.
    [[nodiscard]] std::vector<User> users() const;
    [[nodiscard]] std::size_t n_usable() const;
    [[nodiscard]] bool has_users() const;
    // What is not probed, and why: one clause each.
    [[nodiscard]] std::vector<std::string> problems() const;
    [[nodiscard]] std::vector<source::PlannedProbe> probe_list() const;
    // The probes that were placed since the last call, or since written().
    void append_new(source::RecordSink &sink);
    // The recorder has written probe_list().
    void written();

private:
    struct Sites {
        std::uint64_t batch_bytes = 0; // from the start of the file, as all three
        std::uint64_t arm_bytes = 0;
        std::uint64_t semaphore_bytes = 0;
        std::string batch_instruction;
        std::string arm_instruction;
        bool batch_emulated = false;
        friend bool operator==(const Sites &, const Sites &) = default;
    };
    struct Copy {
        // Containers of one image, and overlays, show one file as many.
        std::set<process::FileIdentity> names;
        process::MappedFile file; // open while it may get probes
        std::string path;         // in the mount namespace of the first process
        bool is_installed = false;
        std::set<User> users;
        std::uint64_t unused_since_ns = 0; // 0: used at the last check
        std::optional<Sites> sites;        // nothing: see problem
        std::string problem;               // why it is not probed; empty: it is
        std::vector<bpf_link *> batch_links;
        std::vector<bpf_link *> arm_links;
        std::uint64_t placed_ns = 0;
        bool is_written = false;
    };

    [[nodiscard]] Copy *copy_of(const process::FileIdentity &file);
    [[nodiscard]] Copy *probed_in(const process::ProcessView &view, const process::Mapping &mapping,
                                  const Sites &sites);
    [[nodiscard]] std::vector<pid_t> silent_users() const;
    static Copy read(process::MappedFile file, const process::FileStatus &status, std::string path);
    void drop_older(const process::FileIdentity &file);
    void place(Copy &copy);
    void arm(Copy &copy);
    [[nodiscard]] bool attach_all(Copy &copy, bpf_program *program, std::uint64_t offset_bytes,
                                  std::uint64_t semaphore_bytes, std::vector<bpf_link *> &links);
    static void forget_ended_users(Copy &copy);
    void find_users();

    std::vector<std::uint32_t> pids_;
    std::optional<Programs> programs_;
    bool is_armed_ = false;
    bool has_too_many_ = false;
    std::uint64_t checked_unused_ns_ = 0;
    std::vector<Copy> copies_;
};

} // namespace collwire::sources
