// SPDX-License-Identifier: Apache-2.0
// Attaches programs to kernel functions: fentry and fexit where the function's module has BTF and
// the kernel accepts them, kprobe and kretprobe otherwise. Each function is tried.
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

// One kernel function and the names of its programs in the BPF object; empty: none.
struct Hook {
    std::string function;
    unsigned parameters = 0; // that the programs need; checked if BTF has them
    std::string fentry;
    std::string fexit;
    std::string kprobe;
    std::string kretprobe;
    bool wanted = true;
    // Sibling programs for the calls that the first ones miss, see bpf/twice.h.
    std::string fentry_again = {};
    std::string fexit_again = {};
    // A raw tracepoint of the kernel itself instead: `function` is its name.
    std::string raw_tracepoint = {};
    // What is lost without this hook (one clause); empty: mandatory. An optional hook can be
    // removed by give_up.
    std::string without = {};
};

enum class HookMode {
    FentryFirst,
    KprobeOnly, // also set by COLLWIRE_NO_FENTRY=1 in the environment, for tests
};

[[nodiscard]] HookMode default_hook_mode();

class HookSet {
public:
    HookSet(std::string source, std::vector<Hook> hooks);
    HookSet(const HookSet &) = delete;
    HookSet &operator=(const HookSet &) = delete;
    ~HookSet();

    // Call between open and load: loads only programs that can be attached here.
    void select(bpf_object *object, const KernelFunctions &functions, KernelBtf &btf,
                HookMode mode);
    // Whether a function of the set can be probed here; valid after select.
    [[nodiscard]] bool present(std::string_view function) const;
    // The reason if not: one clause.
    [[nodiscard]] std::string why_absent(std::string_view function) const;
    // Whether any selected program is fentry or fexit.
    [[nodiscard]] bool any_fentry() const;

    // Call after load. An error names the function that could not be probed; then no probe is
    // attached, and this object must not be used any more. If any_fentry, select and load again
    // with KprobeOnly and retry.
    Result<void> attach(bpf_object *object);
    // After a failed attach: removes the failed function from this and every later select, if the
    // hook is optional. Select and load again then.
    bool give_up(std::string why);
    // What is lost without the wanted functions that are not probed here, and why, in one line;
    // empty: nothing. Optional hooks only; valid after select.
    [[nodiscard]] std::string left_out() const;
    void detach();
    // Detaches for good, without waiting for the kernel.
    void start_taking_off();

    [[nodiscard]] std::vector<source::PlannedProbe> probe_list() const;
    // Those in place.
    [[nodiscard]] std::vector<source::ProbeProgram> programs() const;
    // Calls that missed our programs, as far as the kernel counts them. Functions with sibling
    // programs are left out: the sibling may have seen the call.
    [[nodiscard]] std::uint64_t missed() const;
    // The calls that one program missed; also after detach.
    [[nodiscard]] std::uint64_t missed_by(std::string_view program) const;

private:
    struct Selected {
        Hook hook;
        std::string module;
        std::string absent = "not searched yet"; // why it cannot be probed, empty: it can
        std::string given_up = {};               // why it is not tried, empty: it is
        bool fentry = false;
        bool placed = false;
    };
    struct Placed {
        std::string program;
        bpf_link *link = nullptr; // null: detached
        int program_fd = -1;      // the object's
        bool paired = false;
        std::uint64_t missed_by_link = 0;
        cw_probe_kind kind = CW_PROBE_KPROBE;
    };
    Result<void> attach_one(bpf_object *object, Selected &selected);
    [[nodiscard]] static std::uint64_t missed_by(const Placed &placed);
    std::string source_;
    std::vector<Selected> hooks_;
    Selected *failed_ = nullptr; // in hooks_: the one whose attach failed
    std::vector<Placed> placed_;
    bool taken_off_ = false;
};

} // namespace collwire::loader
