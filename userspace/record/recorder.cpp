// SPDX-License-Identifier: Apache-2.0
#include "userspace/record/recorder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/file_limit.h"
#include "collwire/loss_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/calibrate/trap_costs.h"
#include "userspace/capture/writer.h"
#include "userspace/foreign/foreign.h"
#include "userspace/record/budget_watch.h"
#include "userspace/record/child.h"
#include "userspace/record/cost_printer.h"
#include "userspace/record/injections.h"
#include "userspace/record/preamble.h"
#include "userspace/record/probe_list_printer.h"
#include "userspace/record/say.h"
#include "userspace/record/session.h"
#include "userspace/record/signals.h"
#include "userspace/source/probe_record.h"
#include "userspace/source/record_buffer.h"

namespace collwire::record {
namespace {

constexpr std::uint64_t CLOCK_INTERVAL_NS = 60'000'000'000;
constexpr std::uint64_t CALIBRATION_NS = 1'000'000'000;
constexpr std::uint64_t FIRST_EVENTS_NS = 1'000'000'000;
constexpr std::uint64_t FINISH_NS = 1'500'000'000;
constexpr int FINISH_AGAIN_MS = 10;
constexpr std::uint64_t NS_PER_MS = 1'000'000;

int fail(const Error &failure) {
    say("{}", failure.message);
    return exit_status_of(failure);
}

// Closes itself.
class Fd {
public:
    explicit Fd(int fd) : fd_(fd) {}
    Fd(const Fd &) = delete;
    Fd &operator=(const Fd &) = delete;
    ~Fd() {
        if (fd_ >= 0)
            close(fd_);
    }
    [[nodiscard]] int get() const { return fd_; }

private:
    int fd_;
};

void arm(int timer_fd, std::uint64_t first_ns, std::uint64_t interval_ns) {
    const auto split = [](std::uint64_t ns) {
        return timespec{static_cast<time_t>(ns / 1'000'000'000),
                        static_cast<long>(ns % 1'000'000'000)};
    };
    const itimerspec when{split(interval_ns), split(first_ns)};
    timerfd_settime(timer_fd, 0, &when, nullptr);
}

void drain(int timer_fd) {
    std::uint64_t expirations = 0;
    const ssize_t ignored = read(timer_fd, &expirations, sizeof expirations);
    static_cast<void>(ignored);
}

enum class EndReason : std::uint32_t { Over = 0, Signal = 1 };

// Sources are sampled into this buffer before a write: a write may start a new segment, and its
// preamble samples every source again.
class Recorder {
public:
    explicit Recorder(const RecordOptions &options)
        : options_(options), node_(options.interval_ns), gaps_(options.interval_ns) {}
    int run();

private:
    int print_plan();
    Result<void> open_writer();
    Result<void> begin();
    void check_budget();
    void loop();
    void on_signal(const signalfd_siginfo &info);
    void on_tick();
    void preamble(source::RecordSink &sink, std::uint32_t segment);
    void sample(source::RecordSink &sink, bool everything);
    void sample_again(source::RecordSink &sink);
    [[nodiscard]] std::vector<source::LossCount> losses() const;
    void flush();
    [[nodiscard]] int wait_ms(bool more_events) const;
    void let_sources_finish();
    int finish();
    void wait_for_command();

    const RecordOptions &options_;
    Child child_;
    Signals signals_;
    RecordSession session_;
    std::unique_ptr<BudgetWatch> budget_; // null: without one
    std::unique_ptr<capture::CaptureWriter> writer_;
    NodeIdentity node_;
    SampleGaps gaps_;
    LossTable losses_;
    StateTable states_;
    std::uint64_t last_clock_ns_ = 0;
    bool stop_ = false;
    bool abandon_ = false; // a second signal: do not wait for the command
    EndReason reason_ = EndReason::Over;
};

Result<void> Recorder::open_writer() {
    capture::WriterOptions writer_options;
    writer_options.directory = options_.directory;
    writer_options.host = node_.hostname();
    writer_options.keep_ns = options_.keep_ns;
    writer_options.max_bytes = options_.max_bytes;
    writer_options.tick_ns = options_.interval_ns;
    auto opened = capture::CaptureWriter::create(
        std::move(writer_options),
        [this](source::RecordSink &sink, std::uint32_t segment) { preamble(sink, segment); });
    if (!opened)
        return std::move(opened).failure();
    writer_ = std::move(opened).value();
    return {};
}

// A capture, and each later segment, starts with the records that its other records refer to.
void Recorder::preamble(source::RecordSink &sink, std::uint32_t segment) {
    node_.append(sink, segment, session_.node_flags());
    append_clock(sink);
    append_probes(sink, session_.sources());
    states_.append(sink, session_.sources(), true);
    sample(sink, true);
}

void Recorder::sample(source::RecordSink &sink, bool everything) {
    for (const auto &source : session_.sources())
        source->sample(sink, everything);
    // Sampling may change a source's state.
    states_.append(sink, session_.sources(), false);
    losses_.append(sink, losses(), everything);
}

void Recorder::sample_again(source::RecordSink &sink) {
    const std::uint64_t begin_ns = monotonic_ns();
    sample(sink, false);
    gaps_.append(sink, session_.sources(), begin_ns, monotonic_ns());
}

std::vector<source::LossCount> Recorder::losses() const {
    auto all = session_.losses();
    all.push_back({CW_LOSS_RECORD_WRITE, CW_CPU_USERSPACE, writer_->lost_records()});
    return all;
}

void Recorder::flush() {
    writer_->flush(monotonic_ns());
    if (const auto failure = writer_->take_failure())
        say("{}", failure->message);
    for (const std::string &line : states_.take_news())
        say("{}", line);
    if (const std::uint64_t ns = session_.take_standstill_ns(); ns != 0)
        say("stood still for {:.1f} s: nothing was sampled. It was stopped, or had no CPU",
            static_cast<double>(ns) / 1e9);
    for (const std::string &line : foreign::take_news())
        say("{}", line);
}

Result<void> Recorder::begin() {
    if (options_.budget > 0) {
        auto budget = BudgetWatch::start(options_.budget);
        if (!budget)
            return std::move(budget).failure();
        budget_ = std::move(*budget);
        budget_->begin(monotonic_ns());
    }
    // Probes take their traps before anything counts.
    const auto check = [this] {
        if (budget_)
            budget_->check(session_.sources(), monotonic_ns());
    };
    if (auto attached = session_.attach(check); !attached)
        return attached;
    const auto begun = session_.begin();
    if (!begun)
        return begun.failure();
    node_.set_record_start(*begun);
    last_clock_ns_ = monotonic_ns();
    gaps_.start(last_clock_ns_);
    // The pre-existing queue pairs, before other records fill the buffer.
    while (session_.consume_some() && monotonic_ns() - last_clock_ns_ < FIRST_EVENTS_NS)
        flush(); // the writer holds one block before the preamble
    flush();
    say_line("recording");
    return {};
}

// The moment and the reason are in the capture: nothing of later is missing from a count without
// it.
void Recorder::check_budget() {
    const std::uint64_t now_ns = monotonic_ns();
    if (!budget_ || now_ns < budget_->due_ns())
        return;
    const auto changed = budget_->check(session_.sources(), now_ns);
    if (changed.empty())
        return;
    source::RecordBuffer buffer;
    for (const source::Source *source : changed)
        for (const source::PlannedProbe &probe : source->probe_list())
            if (probe.taken_off)
                buffer.append(source::probe_record(probe, now_ns).header);
    states_.append(buffer, session_.sources(), false);
    buffer.hand_over([this](const cw_header &record) { writer_->append(record); });
    flush();
}

void Recorder::on_signal(const signalfd_siginfo &info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) {
        if (child_.started() && child_.reap())
            stop_ = true;
        return;
    }
    if (signal == SIGUSR1 && options_.gpu == GpuMode::OnSignal) {
        session_.on_request();
        return;
    }
    if (signal == SIGUSR1 || signal == SIGUSR2) {
        child_.forward(signal);
        return;
    }
    if (child_.started() && !child_.over() && reason_ != EndReason::Signal) {
        // The terminal has sent it to the command already.
        if (info.ssi_code != SI_KERNEL)
            child_.forward(signal);
        reason_ = EndReason::Signal;
        return;
    }
    reason_ = EndReason::Signal;
    abandon_ = true;
    stop_ = true;
}

void Recorder::on_tick() {
    source::RecordBuffer buffer;
    sample_again(buffer);
    const std::uint64_t now_ns = monotonic_ns();
    if (now_ns - last_clock_ns_ >= CLOCK_INTERVAL_NS) {
        append_clock(buffer);
        last_clock_ns_ = now_ns;
    }
    buffer.hand_over([this](const cw_header &record) { writer_->append(record); });
    flush();
}

void Recorder::loop() {
    const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
    const Fd tick(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    const Fd deadline(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    arm(tick.get(), options_.interval_ns, options_.interval_ns);
    if (options_.duration_ns != 0)
        arm(deadline.get(), options_.duration_ns, 0);
    for (const int fd : {session_.ring_fd(), signals_.fd(), tick.get(), deadline.get()}) {
        if (fd < 0)
            continue;
        epoll_event event{};
        event.events = EPOLLIN;
        // A ring buffer with an unfinished next record is readable all the time.
        if (fd == session_.ring_fd())
            event.events |= EPOLLET;
        event.data.fd = fd;
        epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event);
    }
    if (child_.started() && child_.reap())
        stop_ = true;
    bool more_events = true;
    while (!stop_) {
        std::array<epoll_event, 4> events{};
        const int n = epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()),
                                 wait_ms(more_events));
        if (n < 0 && errno != EINTR) {
            say("epoll failed: {}", strerror(errno));
            break;
        }
        for (int i = 0; i < n; ++i) {
            const int fd = events[static_cast<std::size_t>(i)].data.fd;
            if (fd == signals_.fd()) {
                while (const auto info = signals_.next())
                    on_signal(*info);
            } else if (fd == tick.get()) {
                drain(fd);
                more_events = true; // those without a wake-up
                on_tick();
            } else if (fd == deadline.get()) {
                stop_ = true;
            } else {
                more_events = true;
            }
        }
        session_.on_due();
        check_budget();
        if (more_events) {
            more_events = session_.consume_some();
            // Between ticks, too: a ring that never empties must not outgrow --max.
            writer_->rotate_if_due(monotonic_ns());
        }
    }
}

// How long epoll may wait: until an event, or until a source is due.
int Recorder::wait_ms(bool more_events) const {
    if (more_events)
        return 0;
    std::uint64_t due_ns = session_.due_ns();
    if (budget_)
        due_ns = due_ns == 0 ? budget_->due_ns() : std::min(due_ns, budget_->due_ns());
    if (due_ns == 0)
        return -1;
    const std::uint64_t now_ns = monotonic_ns();
    if (due_ns <= now_ns)
        return 0;
    return static_cast<int>(std::min<std::uint64_t>((due_ns - now_ns) / NS_PER_MS + 1, INT_MAX));
}

// The processes that a source has stopped may still emit what they have.
void Recorder::let_sources_finish() {
    const std::uint64_t since_ns = monotonic_ns();
    std::uint64_t next_tick_ns = since_ns + options_.interval_ns;
    while (!session_.finish()) {
        while (session_.consume_some() && monotonic_ns() - since_ns < FINISH_NS)
            ;
        const std::uint64_t now_ns = monotonic_ns();
        if (now_ns - since_ns >= FINISH_NS)
            return;
        if (now_ns >= next_tick_ns) {
            on_tick();
            next_tick_ns = now_ns + options_.interval_ns;
        }
        // Records of the second ring buffer wake nobody.
        pollfd events{session_.ring_fd(), POLLIN, 0};
        poll(&events, 1, FINISH_AGAIN_MS);
    }
}

int Recorder::finish() {
    writer_->stop_rotating();
    let_sources_finish();
    const std::uint64_t ended_ns = session_.end();
    if (budget_)
        budget_->check(session_.sources(), monotonic_ns());
    session_.detach();
    session_.consume_last();
    source::RecordBuffer buffer;
    sample_again(buffer);
    buffer.end_at(ended_ns); // counts stopped then
    append_clock(buffer);
    buffer.hand_over([this](const cw_header &record) { writer_->append(record); });
    flush();
    // The losses of that write are reported, too, if there is room; also losses that an earlier
    // failed write contained.
    source::RecordBuffer loss;
    losses_.append(loss, losses(), true);
    loss.end_at(ended_ns);
    loss.hand_over([this](const cw_header &record) { writer_->append(record); });
    const auto closed = writer_->close(
        monotonic_ns(), static_cast<std::uint32_t>(reason_),
        static_cast<std::uint32_t>(losses_.total() == 0 ? EXIT_DONE : EXIT_LOSS), ended_ns);
    if (!closed)
        say("{}", closed.failure().message);
    if (const auto failure = writer_->take_failure())
        say("{}", failure->message);
    source::RecordBuffer unwritten;
    losses_.append(unwritten, losses(), false);
    const int status = losses_.total() == 0 ? EXIT_DONE : EXIT_LOSS;
    if (status == EXIT_LOSS)
        say("lost: {}", losses_.describe());
    if (budget_)
        say("{}", budget_->summary());
    if (writer_->bytes_on_disk() == 0)
        say("no capture: could not write to {}", writer_->path());
    else
        say("wrote {} bytes to {}{}", writer_->bytes_on_disk(), writer_->path(),
            writer_->segment() == 0 ? "" : " and earlier segments");
    return closed ? status : EXIT_FAILED;
}

// The recording has ended, the command has not: signals still go to it.
void Recorder::wait_for_command() {
    while (!child_.over() && !abandon_) {
        pollfd ready{signals_.fd(), POLLIN, 0};
        if (poll(&ready, 1, -1) < 0 && errno != EINTR)
            return;
        while (const auto info = signals_.next())
            on_signal(*info);
    }
}

int Recorder::print_plan() {
    std::optional<calibrate::TrapCosts> costs;
    if (options_.calibrate) {
        auto measured = calibrate::measure_traps(CALIBRATION_NS);
        if (!measured)
            return fail(measured.failure());
        costs = *measured;
    }
    print_probe_list(stdout, session_.sources(), costs ? &*costs : nullptr);
    if (costs)
        print_costs(stdout, *costs, options_);
    if (std::fflush(stdout) != 0)
        return fail(error(ErrorKind::Failed,
                          "cannot write to standard output. Fix: check its disk or pipe"));
    return EXIT_DONE;
}

int Recorder::run() {
    foreign::start(); // before there are probes, and memory that a reader would keep
    if (!options_.command.empty() && !options_.dry_run) {
        if (auto forked = child_.prepare(options_.command); !forked)
            return fail(forked.failure());
    }
    raise_file_limit();
    if (auto opened = signals_.open(); !opened)
        return fail(opened.failure());
    foreign::hurry_while_readable(signals_.fd());
    session_.on_record([this](const cw_header &record) {
        if (record.kind < CW_KIND_RECORDER)
            writer_->append(record);
    });
    if (auto prepared = session_.prepare(options_); !prepared)
        return fail(prepared.failure());
    // After the sources were prepared, which may fail, and before they search for the library.
    if (auto injected = inject_guests(options_); !injected)
        return fail(injected.failure());
    if (options_.dry_run)
        return print_plan();
    if (auto opened = open_writer(); !opened)
        return fail(opened.failure());
    if (auto begun = begin(); !begun) {
        session_.detach();
        return fail(begun.failure());
    }
    if (child_.started())
        if (auto released = child_.release(); !released) {
            finish();
            return fail(released.failure());
        }
    loop();
    const int status = finish();
    if (!child_.started())
        return status;
    wait_for_command();
    // The greater status is the worse one: a loss overrides a command that failed with 1, too.
    return child_.over() ? std::max(child_.exit_status(), status) : status;
}

} // namespace

int run_record(const RecordOptions &options) {
    return Recorder(options).run();
}

} // namespace collwire::record
