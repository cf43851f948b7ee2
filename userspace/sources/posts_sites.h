// SPDX-License-Identifier: Apache-2.0
// The places in driver libraries that the probes on posted work requests sit on: found, planned,
// attached, each file and instruction once.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collwire/verbs.h"
#include "userspace/providers/elf_image.h"
#include "userspace/providers/live_verbs.h"
#include "userspace/providers/process_view.h"
#include "userspace/record/source.h"

struct bpf_link;
struct bpf_program;

namespace collwire {

class PostsSites {
public:
    // By cw_verbs_call.
    using Programs = std::array<bpf_program *, CW_CALLS>;

    explicit PostsSites(bool allow_single_step) : allow_single_step_(allow_single_step) {}
    PostsSites(const PostsSites &) = delete;
    PostsSites &operator=(const PostsSites &) = delete;
    ~PostsSites();

    // From now on sites are attached as they are found; those found before are attached now.
    void attach(const Programs &programs);
    void detach();

    // post_send of a library that a process has mapped, found by its tables. Once per file.
    void add_library(const ProcessView &view, const Mapping &mapping);
    // The functions behind a queue pair of the process.
    void add_functions(const ProcessView &view, std::span<const LiveFunction> functions);

    [[nodiscard]] std::vector<PlannedProbe> plan() const;
    // Places where posts go unseen, one clause each.
    [[nodiscard]] const std::vector<std::string> &problems() const { return problems_; }
    // Appends one probe record for each site that was attached since the last call.
    void append_new(RecordSink &sink);
    [[nodiscard]] std::size_t n_placed() const;

private:
    struct Library {
        dev_t device = 0;
        ino_t inode = 0;
        std::string path; // in its process's mount namespace
        bool scanned = false;
    };
    struct Site {
        std::size_t library = 0;
        cw_verbs_call call = CW_CALL_NONE;
        std::uint64_t function_offset = 0; // in the file
        std::uint64_t point_offset = 0;
        std::string instruction;
        bool emulated = false;
        bool same_file = false; // another name of a file that has this probe
        MappedFile file;        // until it is attached
        bpf_link *link = nullptr;
        std::uint64_t placed_ns = 0;
        bool appended = false;
    };

    std::size_t library_of(const MappedFile &file, const Mapping &mapping);
    [[nodiscard]] Site *known(std::size_t library, std::uint64_t function_offset,
                              cw_verbs_call call);
    // A library that is only mapped is no problem: programs map drivers that they never use.
    void note_use(const Site &site);
    void add_site(std::size_t library, const ElfImage &image, const ProcessView &view,
                  const Mapping &mapping, std::uint64_t function_offset, cw_verbs_call call);
    void place(Site &site);
    void problem(std::string text);
    [[nodiscard]] PlannedProbe planned(const Site &site) const;

    bool allow_single_step_;
    std::optional<Programs> programs_;
    std::vector<Library> libraries_;
    std::vector<Site> sites_;
    std::vector<std::string> problems_;
};

// "post_send", "wr_complete", ...
std::string_view name_of(cw_verbs_call call);

} // namespace collwire
