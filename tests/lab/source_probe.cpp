// SPDX-License-Identifier: Apache-2.0
// Runs the kernel sources for some seconds and prints what they recorded as lines of JSON: the
// bench of the BPF programs, below the recorder. Usage: source_probe SECONDS [OUT]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "collwire/records.h"
#include "userspace/loader/event_ring.h"
#include "userspace/loader/shared_maps.h"
#include "userspace/sources/mlx5_source.h"
#include "userspace/sources/port_event_source.h"
#include "userspace/sources/qp_source.h"
#include "userspace/sources/rxe_wire_source.h"

namespace {

using namespace collwire;

FILE *out = stdout;

std::string gid_text(const unsigned char *gid) {
    char text[48];
    char *at = text;
    for (int i = 0; i < 16; i += 2)
        at += std::sprintf(at, "%s%02x%02x", i == 0 ? "" : ":", gid[i], gid[i + 1]);
    return text;
}

void print_qp(const cw_qp_event &e) {
    static const char *const names[] = {"create", "state", "existing", "destroy", "error"};
    std::fprintf(out,
                 "{\"kind\":\"qp_%s\",\"time_ns\":%llu,\"dev\":%u,\"device\":\"%s\",\"qpn\":%u,"
                 "\"gen\":%llu,\"tgid\":%u,\"comm\":\"%s\",\"type\":%u,\"old\":%u,\"new\":%u,"
                 "\"result\":%d,\"flags\":%u,\"mask\":%u,\"dest_qpn\":%u,\"dgid\":\"%s\","
                 "\"sgid\":\"%s\",\"gid_type\":%u,\"mtu\":%u,\"rq_psn\":%u,\"sq_psn\":%u,"
                 "\"sport\":%u,\"user_handle\":%llu,\"port\":%u,\"pdn\":%u,\"event\":%u}\n",
                 names[e.header.kind - CW_KIND_QP_CREATE],
                 static_cast<unsigned long long>(e.header.time_ns), e.key.dev_index, e.device,
                 e.key.qpn, static_cast<unsigned long long>(e.key.generation_ns), e.tgid, e.comm,
                 e.qp_type, e.old_state, e.new_state, e.result, e.flags, e.attr_mask, e.dest_qpn,
                 gid_text(e.dgid).c_str(), gid_text(e.sgid).c_str(), e.gid_type, e.path_mtu,
                 e.rq_psn, e.sq_psn, e.udp_sport, static_cast<unsigned long long>(e.user_handle),
                 e.port, e.pdn, e.event);
}

void print_direction(const char *name, const cw_wire_direction &d) {
    std::fprintf(out, ",\"%s\":{", name);
    const auto list = [](const char *field, const __u64 *values) {
        std::fprintf(out, "\"%s\":[%llu,%llu,%llu,%llu],", field, values[0], values[1], values[2],
                     values[3]);
    };
    list("frames", d.frames);
    list("wire_bytes", d.wire_bytes);
    list("payload_bytes", d.payload_bytes);
    std::fprintf(out, "\"first_psn\":%u,\"first_opcode\":%u,\"first_ns\":%llu}", d.first_psn,
                 d.first_opcode, d.first_ns);
}

class Printer : public RecordSink {
public:
    void append(const cw_header &header) override {
        if (header.kind >= CW_KIND_QP_CREATE && header.kind <= CW_KIND_QP_ERROR) {
            print_qp(reinterpret_cast<const cw_qp_event &>(header));
        } else if (header.kind == CW_KIND_QP_WIRE) {
            const auto &w = reinterpret_cast<const cw_qp_wire &>(header);
            std::fprintf(out, "{\"kind\":\"qp_wire\",\"dev\":%u,\"qpn\":%u,\"gen\":%llu",
                         w.key.dev_index, w.key.qpn, w.key.generation_ns);
            print_direction("tx", w.counters.tx);
            print_direction("rx", w.counters.rx);
            std::fprintf(out, ",\"tx_failed\":%llu}\n", w.counters.tx_failed_frames);
        } else if (header.kind == CW_KIND_UD_PEER) {
            const auto &p = reinterpret_cast<const cw_ud_peer &>(header);
            std::fprintf(
                out,
                "{\"kind\":\"ud_peer\",\"dev\":%u,\"qpn\":%u,\"dgid\":\"%s\",\"dest_qpn\":%u,"
                "\"frames\":%llu,\"wire_bytes\":%llu,\"payload_bytes\":%llu}\n",
                p.key.dev_index, p.key.qpn, gid_text(p.dgid).c_str(), p.dest_qpn, p.tx_frames,
                p.tx_wire_bytes, p.tx_payload_bytes);
        } else if (header.kind == CW_KIND_CARRIER) {
            const auto &c = reinterpret_cast<const cw_carrier &>(header);
            std::fprintf(out, "{\"kind\":\"carrier\",\"netdev\":\"%s\",\"ifindex\":%u,\"up\":%u}\n",
                         c.netdev, c.ifindex, c.up);
        } else if (header.kind == CW_KIND_ASYNC_EVENT) {
            const auto &a = reinterpret_cast<const cw_async_event &>(header);
            std::fprintf(
                out, "{\"kind\":\"async\",\"device\":\"%s\",\"event\":%u,\"port\":%u,\"qpn\":%u}\n",
                a.device, a.event, a.port, a.qpn);
        } else if (header.kind == CW_KIND_DEVICE_GONE) {
            const auto &g = reinterpret_cast<const cw_device_gone &>(header);
            std::fprintf(out, "{\"kind\":\"device_gone\",\"device\":\"%s\"}\n", g.device);
        } else {
            std::fprintf(out, "{\"kind\":%u}\n", header.kind);
        }
    }
};

int fail(const Error &error) {
    std::fprintf(stderr, "source_probe: %s\n", error.message.c_str());
    return 1;
}

} // namespace

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    const auto seconds = std::atoi(argv[1]);
    if (argc > 2 && (out = std::fopen(argv[2], "w")) == nullptr)
        return 2;
    const auto begin = std::chrono::steady_clock::now();
    auto maps = SharedMaps::create({});
    if (!maps)
        return fail(maps.failure());
    std::vector<std::unique_ptr<Source>> sources;
    sources.push_back(std::make_unique<QpSource>(**maps, QpSourceOptions{}));
    sources.push_back(std::make_unique<RxeWireSource>(**maps, RxeWireOptions{}));
    sources.push_back(std::make_unique<PortEventSource>(**maps));
    sources.push_back(std::make_unique<Mlx5Source>(**maps, Mlx5SourceOptions{}));
    Printer printer;
    auto ring = EventRing::create(**maps, [&](const cw_header &record) {
        for (auto &source : sources)
            source->on_record(record);
        printer.append(record);
    });
    if (!ring)
        return fail(ring.failure());
    auto step = [last = begin](std::string_view source, const char *what) mutable {
        const auto now = std::chrono::steady_clock::now();
        std::fprintf(
            stderr, "%s %s: %lld ms\n", std::string(source).c_str(), what,
            static_cast<long long>(
                std::chrono::duration_cast<std::chrono::milliseconds>(now - last).count()));
        last = now;
    };
    step("shared maps", "create");
    for (auto &source : sources) {
        if (auto prepared = source->prepare(); !prepared)
            return fail(prepared.failure());
        step(source->name(), "prepare");
    }
    for (auto &source : sources) {
        if (auto attached = source->attach(); !attached)
            return fail(attached.failure());
        step(source->name(), "attach");
    }
    const auto ready = std::chrono::steady_clock::now();
    for (auto &source : sources) {
        for (const auto &state : source->states())
            std::fprintf(stderr, "%s: state %d %s\n", std::string(source->name()).c_str(),
                         static_cast<int>(state.state), state.reason.c_str());
        for (const auto &probe : source->plan())
            std::fprintf(stderr, "  %d %s %s placed %d\n", static_cast<int>(probe.kind),
                         probe.function.c_str(), probe.module_or_file.c_str(), probe.placed);
    }
    std::fprintf(stderr, "recording after %lld ms\n",
                 static_cast<long long>(
                     std::chrono::duration_cast<std::chrono::milliseconds>(ready - begin).count()));
    std::fflush(stderr);
    auto next = ready;
    for (int tick = 0; tick < seconds; ++tick) {
        next += std::chrono::seconds(1);
        for (;;) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                next - std::chrono::steady_clock::now());
            if (left.count() <= 0)
                break;
            if (auto polled = (*ring)->poll(left); !polled)
                return fail(polled.failure());
        }
        for (auto &source : sources)
            source->sample(printer, false);
    }
    for (auto &source : sources)
        source->detach();
    (void)(*ring)->consume();
    for (auto &source : sources) {
        source->sample(printer, true);
        for (const auto &loss : source->losses())
            std::fprintf(out, "{\"kind\":\"loss\",\"class\":%d,\"cpu\":%u,\"records\":%llu}\n",
                         static_cast<int>(loss.loss_class), loss.cpu,
                         static_cast<unsigned long long>(loss.records));
        for (const auto &state : source->states())
            std::fprintf(stderr, "%s: state %d %s\n", std::string(source->name()).c_str(),
                         static_cast<int>(state.state), state.reason.c_str());
    }
    for (const auto &loss : (*maps)->losses())
        std::fprintf(out, "{\"kind\":\"loss\",\"class\":%d,\"cpu\":%u,\"records\":%llu}\n",
                     static_cast<int>(loss.loss_class), loss.cpu,
                     static_cast<unsigned long long>(loss.records));
    std::fclose(out);
    return 0;
}
