// SPDX-License-Identifier: Apache-2.0
// What all sources share that consist of one BPF object on kernel functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collwire/loss_records.h"
#include "collwire/node_records.h"
#include "collwire/record.h"
#include "userspace/loader/hooks.h"
#include "userspace/loader/skeleton.h"
#include "userspace/source/source.h"

namespace collwire::sources {

// T is the skeleton. A derived class says what it needs in configure, and goes on in attached.
template <typename T> class ProbedSource : public source::Source {
public:
    [[nodiscard]] std::string_view name() const override { return name_; }

    Result<void> prepare() override {
        if (!applicable())
            return {};
        auto loaded = load(mode_);
        // The verifier may see a function otherwise than its BTF does: kprobes still work then.
        if (!loaded && hooks_.any_fentry()) {
            mode_ = loader::HookMode::KprobeOnly;
            loaded = load(mode_);
        }
        return loaded ? std::move(loaded) : without(std::move(loaded).failure());
    }

    [[nodiscard]] std::vector<source::PlannedProbe> probe_list() const override {
        return hooks_.probe_list();
    }

    Result<void> attach() override {
        auto attached = attach_what_can_be();
        btf_.reset();
        kallsyms_.reset();
        if (attached && skeleton_.is_loaded()) {
            if (state_.state == CW_SOURCE_OFF)
                state_ = hooks_.left_out().empty()
                             ? source::SourceState{CW_SOURCE_ON, {}}
                             : source::SourceState{CW_SOURCE_DEGRADED, hooks_.left_out()};
            attached = on_attached();
        }
        return attached ? std::move(attached) : without(std::move(attached).failure());
    }

    [[nodiscard]] std::vector<source::SourceState> states() const override { return {state_}; }
    [[nodiscard]] std::vector<source::ProbeGroup> probe_groups() const override {
        auto programs = hooks_.programs();
        if (programs.empty())
            return {};
        return {{std::string(PROBES), use(), std::move(programs)}};
    }
    void take_off(std::string_view, std::string reason) override {
        hooks_.start_taking_off();
        state_.reason =
            state_.reason.empty() ? std::move(reason) : std::move(reason) + "; " + state_.reason;
        state_.state = std::max(state_.state, CW_SOURCE_DEGRADED);
    }
    void sample(source::RecordSink &, bool) override {}

    [[nodiscard]] std::vector<source::LossCount> losses() const override {
        const std::uint64_t n = missed_at_end_ ? *missed_at_end_ : missed();
        if (n == 0)
            return {};
        return {{CW_LOSS_PROBE_MISSED, CW_CPU_USERSPACE, n}};
    }

    // What passes unseen while the probes are taken off is of no recording.
    void end() override { missed_at_end_ = missed(); }
    void detach() override { hooks_.detach(); }

protected:
    ProbedSource(const loader::SharedMaps &maps, std::string name, std::vector<loader::Hook> hooks,
                 loader::HookMode mode)
        : maps_(maps), skeleton_(name + " probes"), hooks_(name, hooks), mode_(mode),
          name_(std::move(name)) {
        for (auto &hook : hooks)
            functions_.push_back(std::move(hook.function));
    }

    // Whether there is anything to probe here; if not it says why with unusable.
    virtual bool applicable() = 0;
    // Before programs are chosen: may drop functions that must not be probed.
    virtual void choose(loader::KernelFunctions &, loader::HookMode) {}
    // Programs are chosen; sets rodata and map sizes. False, after unusable: nothing is loaded.
    virtual bool configure() = 0;
    // Every probe is in place.
    virtual Result<void> on_attached() { return {}; }

    // Calls that passed unseen so far.
    [[nodiscard]] virtual std::uint64_t missed() const { return hooks_.missed(); }

    static constexpr std::string_view PROBES = "probes"; // its one group
    // What makes its probes run.
    [[nodiscard]] virtual source::ProbeUse use() const { return source::ProbeUse::Everywhere; }

    // Whether nothing is worth recording without this source.
    [[nodiscard]] virtual bool indispensable() const { return false; }

    // A function that choose() needs, in addition to those that are probed.
    void look_up(std::string_view function) { functions_.emplace_back(function); }

    // Always returns false.
    bool unusable(cw_source_state state, std::string reason) {
        state_ = {state, std::move(reason)};
        return false;
    }
    // Works on, without something more.
    void degrade(std::string reason) {
        if (state_.state == CW_SOURCE_DEGRADED)
            reason = state_.reason + "; " + reason;
        state_ = {CW_SOURCE_DEGRADED, std::move(reason)};
    }
    // Unusable unless the function can be probed here.
    bool need(std::string_view function) {
        return hooks_.present(function) ||
               unusable(CW_SOURCE_UNAVAILABLE, hooks_.why_absent(function));
    }
    // Takes the probes away for good: what they read is wrong.
    void refuse(std::string reason) {
        hooks_.detach();
        unusable(CW_SOURCE_REFUSED, std::move(reason));
    }

    const loader::SharedMaps &maps_;
    loader::Skeleton<T> skeleton_;
    loader::HookSet hooks_;
    source::SourceState state_;
    std::shared_ptr<loader::KernelBtf> btf_; // from prepare to attach

private:
    // What is loaded, with kprobes where the kernel does not take fentry after all, and without
    // functions that it takes neither for.
    Result<void> attach_what_can_be() {
        for (;;) {
            if (!skeleton_.is_loaded())
                return {};
            auto attached = hooks_.attach(skeleton_.object());
            if (attached)
                return {};
            const bool again = !hooks_.any_fentry() && hooks_.give_up(attached.failure().message);
            if (!again && !hooks_.any_fentry())
                return attached;
            if (auto loaded = load(again ? mode_ : loader::HookMode::KprobeOnly); !loaded)
                return loaded;
        }
    }

    // The source cannot be had: no probe stays, and the recording goes on without it.
    Result<void> without(Error failure) {
        hooks_.detach();
        if (indispensable())
            return failure;
        unusable(CW_SOURCE_UNAVAILABLE, std::move(failure.message));
        return {};
    }

    Result<void> load(loader::HookMode mode) {
        skeleton_.close();
        state_ = {};
        btf_ = loader::KernelBtf::shared();
        if (auto opened = skeleton_.open(); !opened)
            return opened;
        auto functions =
            loader::KernelFunctions::read({functions_.begin(), functions_.end()}, &kallsyms_);
        if (!functions)
            return std::move(functions).failure();
        choose(*functions, mode);
        hooks_.select(skeleton_.object(), *functions, *btf_, mode);
        if (!configure()) {
            skeleton_.close();
            return {};
        }
        return skeleton_.load(maps_);
    }

    loader::HookMode mode_;
    std::string name_;
    std::vector<std::string> functions_;
    std::shared_ptr<const std::string> kallsyms_; // as btf_
    std::optional<std::uint64_t> missed_at_end_;
};

} // namespace collwire::sources
