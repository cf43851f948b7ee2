// SPDX-License-Identifier: Apache-2.0
// A client of the double, and a CUDA that the test plays.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cupti_double/cupti_api.h"
#include "tests/cupti_double/cupti_double.h"

namespace collwire::cupti_double {

inline std::uint64_t read_monotonic() {
    return monotonic_ns();
}

// What a client got. Several clients of one process are several of these.
struct Client {
    std::vector<KernelRecord> records;
    std::vector<std::size_t> records_of_buffers;
    std::vector<std::thread::id> requested_on;
    std::vector<std::thread::id> completed_on;
    std::set<std::uint8_t *> buffers; // that CUPTI holds, and this client gave
    std::size_t foreign_buffers = 0;  // that another client gave
    std::size_t buffer_bytes = 4 * KERNEL10_BYTES;
    std::size_t most_records = 0;
    bool refuses = false;
    std::size_t completed = 0; // buffers; by std::atomic_ref
};

template <int number> Client &client() {
    static Client it;
    return it;
}

// The buffers stay with the test: a client that gets another's can tell.
template <int number>
void request_of(std::uint8_t **buffer, std::size_t *bytes, std::size_t *most) {
    Client &it = client<number>();
    it.requested_on.push_back(std::this_thread::get_id());
    *bytes = it.refuses ? 0 : it.buffer_bytes;
    *most = it.most_records;
    *buffer = it.refuses ? nullptr : new std::uint8_t[it.buffer_bytes];
    if (*buffer != nullptr)
        it.buffers.insert(*buffer);
}

template <int number>
void complete_of(void *, std::uint32_t, std::uint8_t *buffer, std::size_t, std::size_t valid) {
    Client &it = client<number>();
    it.completed_on.push_back(std::this_thread::get_id());
    std::uint8_t *at = nullptr;
    std::size_t records = 0;
    std::uint32_t version = 0;
    cuptiGetVersion(&version);
    for (; cuptiActivityGetNextRecord(buffer, valid, &at) == Result::Success; records++) {
        KernelRecord record{};
        std::memcpy(&record, at, kernel_record_bytes(version));
        it.records.push_back(record);
    }
    it.records_of_buffers.push_back(records);
    it.foreign_buffers += it.buffers.erase(buffer) == 0 ? 1 : 0;
    delete[] buffer;
    std::atomic_ref(it.completed)++;
}

class CuptiDoubleTest : public testing::Test {
protected:
    ~CuptiDoubleTest() override {
        double_.reset(); // its worker may still be in a callback
        use_instead(nullptr);
        for (Client *it : {&client<1>(), &client<2>()}) {
            for (std::uint8_t *held : it->buffers)
                delete[] held;
            *it = {};
        }
    }

    // Before any call. The patience is short: what waits for it is a failure.
    void start(Settings settings = {}) {
        static constexpr CudaState STATE = {[] { return true; }, [] { return std::uint64_t{0}; }};
        settings.lock_patience_ms = patience_ms_;
        double_ = std::make_unique<CuptiDouble>(std::move(settings));
        double_->cuda = &STATE;
        use_instead(double_.get());
    }

    void arm() {
        ASSERT_EQ(cuptiActivityRegisterTimestampCallback(read_monotonic), Result::Success);
        ASSERT_EQ(cuptiActivityRegisterCallbacks(request_of<1>, complete_of<1>), Result::Success);
        ASSERT_EQ(cuptiActivityEnable(KIND_CONCURRENT_KERNEL), Result::Success);
    }

    std::uint64_t launch() {
        KernelLaunch it;
        it.id = ++ids_;
        it.correlation = static_cast<std::uint32_t>(100 + it.id);
        it.name = "_Z13ncclDevKernelv";
        it.context_handle = &context_;
        it.launched_ns = monotonic_ns();
        double_->activity.launched(it);
        return it.id;
    }
    void run(std::uint64_t id) {
        started_[id] = monotonic_ns();
        double_->activity.started(id, started_[id]);
        ended_[id] = monotonic_ns();
        double_->activity.ended(id, ended_[id]);
    }
    std::uint64_t launch_and_run() {
        const std::uint64_t id = launch();
        run(id);
        return id;
    }
    void flush(std::uint32_t flags = 0) {
        ASSERT_EQ(cuptiActivityFlushAll(flags), Result::Success);
    }
    // Until the worker has delivered as many buffers by itself.
    static void wait_for_buffers(std::size_t count) {
        while (std::atomic_ref(client<1>().completed) < count)
            std::this_thread::yield();
    }

    [[nodiscard]] const std::vector<KernelRecord> &records() const { return client<1>().records; }
    [[nodiscard]] std::uint64_t misuses() const { return double_->log.misuses(); }

    int context_ = 0;
    std::uint64_t patience_ms_ = 5000;
    std::unique_ptr<CuptiDouble> double_;
    std::map<std::uint64_t, std::uint64_t> started_;
    std::map<std::uint64_t, std::uint64_t> ended_;
    std::uint64_t ids_ = 0;
};

} // namespace collwire::cupti_double
