// SPDX-License-Identifier: Apache-2.0
// Puts programs on kernel functions: fentry and fexit where the function's module has BTF and the
// kernel takes them, kprobe and kretprobe otherwise. Found out by trying, per function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <bpf/libbpf.h>

#include "base/result.h"
#include "userspace/loader/kernel_btf.h"
#include "userspace/loader/kernel_functions.h"
#include "userspace/source/source.h"

namespace collwire::loader {

// One kernel function and the programs for it, by their names in the BPF object; empty: none.
struct Hook {
    std::string function;
    unsigned parameters = 0; // that the programs rely on; checked where BTF can tell
    std::string fentry;
    std::string fexit;
    std::string kprobe;
    std::string kretprobe;
    bool wanted = true;
    // Equal programs for the calls that the kernel does not show to the first ones, see
    // bpf/twice.h.
    std::string fentry_again = {};
    std::string fexit_again = {};
    // A raw tracepoint of the kernel proper instead: `function` is its name.
    std::string raw_tracepoint = {};
    // What is not known without it, one clause; empty: the source cannot do without it. Else
    // give_up may take it out.
    std::string without = {};
};

enum class HookMode {
    FentryFirst,
    KprobeOnly, // also asked for by COLLWIRE_NO_FENTRY=1 in the environment, for tests
};

[[nodiscard]] HookMode default_hook_mode();

class HookSet {
public:
    HookSet(std::string source, std::vector<Hook> hooks);
    HookSet(const HookSet &) = delete;
    HookSet &operator=(const HookSet &) = delete;
    ~HookSet();

    // Between open and load: loads only programs that have a chance to be attached here.
    void select(bpf_object *object, const KernelFunctions &functions, KernelBtf &btf,
                HookMode mode);
    // Whether a function of the set can be probed here; valid after select.
    [[nodiscard]] bool present(std::string_view function) const;
    // Why not, if not: one clause.
    [[nodiscard]] std::string why_absent(std::string_view function) const;
    // Whether any selected program is an fentry or fexit one.
    [[nodiscard]] bool any_fentry() const;

    // After load. An error names the function that could not be probed; then no probe is in place,
    // and nothing is asked of this object any more. If any_fentry, select and load again with
    // KprobeOnly and retry.
    Result<void> attach(bpf_object *object);
    // After attach failed: takes the function that it failed with out, for this and every later
    // select, if the source can do without it. Select and load again then.
    bool give_up(std::string why);
    // What is not known without the functions that are not probed here though they are wanted, and
    // why, in one line; empty: nothing. Of those that the source can do without; after select.
    [[nodiscard]] std::string left_out() const;
    void detach();

    [[nodiscard]] std::vector<source::PlannedProbe> probe_list() const;
    // Calls that the kernel let pass without running our programs, as far as it counts them. Those
    // of functions with a second program are not in it: the other one may have seen them.
    [[nodiscard]] std::uint64_t missed() const;
    // What the kernel did not show to one program; also after detach.
    [[nodiscard]] std::uint64_t missed_by(std::string_view program) const;

private:
    struct Selected {
        Hook hook;
        std::string module;
        std::string absent = "not looked for yet"; // why it cannot be probed, empty: it can
        std::string given_up = {};                 // why it is not even tried, empty: it is
        bool fentry = false;
        bool placed = false;
    };
    struct Placed {
        std::string program;
        bpf_link *link = nullptr; // null: detached
        int program_fd = -1;      // the object's
        bool paired = false;
        std::uint64_t missed_by_link = 0;
    };
    Result<void> attach_one(bpf_object *object, Selected &selected);
    [[nodiscard]] static std::uint64_t missed_by(const Placed &placed);
    std::string source_;
    std::vector<Selected> hooks_;
    Selected *failed_ = nullptr; // in hooks_: what attach failed with
    std::vector<Placed> placed_;
};

} // namespace collwire::loader
