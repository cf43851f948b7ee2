// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/read_intervals.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "correlate/model/ingest.h"
#include "correlate/model/jobs.h"
#include "correlate/model/join.h"
#include "correlate/tabulate/rows_of_interval.h"
#include "tools/cli/select_window.h"

namespace collwire::cli {
namespace {

struct ReadInterval {
    intervals::Interval interval;
    bool all_used = true;
    std::exception_ptr failure; // for the thread that takes it
};

ReadInterval read_one(const IntervalsToRead &to_read, std::size_t number,
                      const Complain &complain) {
    const intervals::Bounds &bounds = to_read.bounds[number];
    ReadInterval done;
    done.interval.row.begin_realtime_ns = bounds.begin_ns;
    done.interval.row.end_realtime_ns = bounds.end_ns;
    // Bounds are half open, and the last record is at the end of the last one.
    const bool is_last = number + 1 == to_read.bounds.size();
    const ChosenCaptures part = narrowed(
        to_read.chosen, {.from_ns = bounds.begin_ns,
                         .to_ns = is_last ? to_read.chosen.selected->window.to_ns : bounds.end_ns,
                         .is_one_of_many = true});
    model::Ingest into;
    auto read = ingest(complain, part, into);
    if (!read)
        return done; // nothing is in it
    done.all_used = read->all_used;
    if (read->used == 0)
        return done;
    model::Model model = into.take();
    if (!to_read.job.empty())
        model::keep_job(model, to_read.job);
    model.window = std::move(read->window);
    model::join(model, to_read.topology);
    done.interval = tabulate::rows_of_interval(model, bounds);
    return done;
}

class Readers {
public:
    Readers(const IntervalsToRead &to_read, const Complain &complain)
        : to_read_(to_read), complain_(complain) {
        const std::size_t n = std::min(to_read.at_once, to_read.bounds.size());
        try {
            for (std::size_t i = 0; i < n; ++i)
                threads_.emplace_back([this] { read(); });
        } catch (const std::system_error &) {
            if (threads_.empty())
                throw;
        }
    }
    Readers(const Readers &) = delete;
    Readers &operator=(const Readers &) = delete;
    ~Readers() {
        {
            const std::lock_guard lock(mutex_);
            next_ = to_read_.bounds.size();
        }
        changed_.notify_all();
        for (std::thread &thread : threads_)
            thread.join();
    }

    // Blocks until interval `number`, the next one, is read.
    ReadInterval take(std::size_t number) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return done_.contains(number); });
        auto node = done_.extract(number);
        taken_ = number + 1;
        changed_.notify_all();
        if (node.mapped().failure)
            std::rethrow_exception(node.mapped().failure);
        return std::move(node.mapped());
    }

private:
    void read() {
        std::unique_lock lock(mutex_);
        for (;;) {
            // Not far ahead of who takes them: rows of one interval may be many.
            changed_.wait(lock, [&] {
                return next_ >= to_read_.bounds.size() || next_ < taken_ + 2 * to_read_.at_once;
            });
            if (next_ >= to_read_.bounds.size())
                return;
            const std::size_t number = next_++;
            lock.unlock();
            ReadInterval one = read_or_fail(number);
            lock.lock();
            done_.emplace(number, std::move(one));
            changed_.notify_all();
        }
    }

    ReadInterval read_or_fail(std::size_t number) {
        try {
            return read_one(to_read_, number,
                            [this](const std::string &path, const std::string &message) {
                                complain_once(path, message);
                            });
        } catch (...) { // out of memory
            ReadInterval failed;
            failed.failure = std::current_exception();
            return failed;
        }
    }

    void complain_once(const std::string &path, const std::string &message) {
        const std::lock_guard lock(mutex_);
        if (complained_.insert(path).second)
            complain_(path, message);
    }

    const IntervalsToRead &to_read_;
    const Complain &complain_;
    std::mutex mutex_; // of what follows
    std::condition_variable changed_;
    std::size_t next_ = 0;  // to read
    std::size_t taken_ = 0; // before it
    std::map<std::size_t, ReadInterval> done_;
    std::set<std::string> complained_; // captures
    std::vector<std::thread> threads_;
};

} // namespace

bool read_intervals(const IntervalsToRead &to_read, const Complain &complain,
                    const std::function<bool(intervals::Interval &)> &take) {
    Readers readers(to_read, complain);
    intervals::Sequence sequence;
    bool all_used = true;
    for (std::size_t i = 0; i < to_read.bounds.size(); ++i) {
        ReadInterval one = readers.take(i);
        all_used = all_used && one.all_used;
        sequence.add(one.interval);
        if (!take(one.interval))
            break;
    }
    return all_used;
}

} // namespace collwire::cli
