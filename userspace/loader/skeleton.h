// SPDX-License-Identifier: Apache-2.0
// Owns a BPF skeleton (T is what bpftool generates) through its life: closed, open, loaded.
#pragma once

#include <cassert>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <bpf/libbpf.h>

#include "base/result.h"
#include "userspace/loader/attach_targets.h"
#include "userspace/loader/core_btf.h"
#include "userspace/loader/libbpf_log.h"
#include "userspace/loader/shared_maps.h"

namespace collwire::loader {

template <typename T> class Skeleton {
public:
    // `name` is for messages.
    explicit Skeleton(std::string name) : name_(std::move(name)) {}
    Skeleton(const Skeleton &) = delete;
    Skeleton &operator=(const Skeleton &) = delete;
    ~Skeleton() { close(); }

    // Parses the object and finds the kernel's types for it. Between open and load, set rodata and
    // choose programs.
    Result<void> open() {
        assert(skeleton_ == nullptr);
        use_shared_attach_targets();
        kernel_ = KernelBtf::shared();
        const LibbpfLog log;
        if (!open_with(nullptr))
            return bpf_error(name_ + ": open", errno, log.text());
        auto types = CoreBtf::make(*kernel_, type_names(bpf_object__btf(skeleton_->obj)));
        if (!types)
            return std::move(types).failure().in(name_);
        core_btf_.emplace(std::move(*types));
        close_skeleton();
        if (!open_with(core_btf_->path().c_str()))
            return bpf_error(name_ + ": open", errno, log.text());
        return {};
    }

    // Creates the object's own maps, takes over the shared ones, and has the kernel verify the
    // programs. On an error the skeleton is closed.
    Result<void> load(const SharedMaps &maps) {
        assert(skeleton_ != nullptr && !loaded_);
        if (auto given = maps.give_to(skeleton_->obj); !given) {
            close();
            return given;
        }
        const LibbpfLog log;
        if (const int failed = T::load(skeleton_); failed != 0) {
            close();
            return bpf_error(name_ + ": load", failed, log.text());
        }
        loaded_ = true;
        core_btf_.reset();
        kernel_.reset();
        return {};
    }

    // Detaches and frees everything.
    void close() {
        close_skeleton();
        core_btf_.reset();
        kernel_.reset();
        loaded_ = false;
    }

    [[nodiscard]] bool is_open() const { return skeleton_ != nullptr; }
    [[nodiscard]] bool is_loaded() const { return loaded_; }
    [[nodiscard]] bpf_object *object() const { return skeleton_->obj; }
    T *operator->() const { return skeleton_; }

private:
    bool open_with(const char *btf_path) {
        bpf_object_open_opts options = {};
        options.sz = sizeof(options);
        options.btf_custom_path = btf_path;
        skeleton_ = T::open(&options);
        return skeleton_ != nullptr;
    }

    void close_skeleton() {
        if (skeleton_ != nullptr)
            T::destroy(skeleton_);
        skeleton_ = nullptr;
    }

    std::string name_;
    T *skeleton_ = nullptr;
    // Until it is loaded.
    std::optional<CoreBtf> core_btf_;
    std::shared_ptr<KernelBtf> kernel_;
    bool loaded_ = false;
};

} // namespace collwire::loader
