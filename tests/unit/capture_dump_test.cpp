// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string_view>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "collwire/socket_records.h"
#include "collwire/wire_records.h"
#include "correlate/capture/fields.h"
#include "correlate/capture/kinds.h"
#include "tests/support/capture_builder.h"
#include "tools/cli/read_file.h"
#include "tools/cli/record_json.h"

namespace collwire::cli {
namespace {

using test::make_record;
using test::set_text;

template <typename T> std::span<const std::byte> bytes_of(const T &record) {
    return std::as_bytes(std::span(&record, 1)).first(record.header.length_bytes);
}

TEST(RecordJson, QueuePairWithNamesForItsNumbers) {
    auto qp = make_record<cw_qp_event>(CW_KIND_QP_STATE, 123, 4);
    qp.key = {.dev_index = 1, .qpn = 0xabcdef, .generation_ns = 0xffff'ffff'ffff'ffff};
    qp.qp_type = 2;
    qp.old_state = 2;
    qp.new_state = 3;
    qp.result = -22;
    qp.flags = CW_QP_ADDRESS | CW_QP_DEST;
    qp.udp_sport = 0xc123;
    qp.dgid[10] = qp.dgid[11] = 0xff;
    qp.dgid[15] = 7;
    qp.dmac[0] = 0x52;
    qp.dmac[5] = 9;
    set_text(qp.device, "rxe0");
    const auto json = record_json(qp.header, bytes_of(qp));
    EXPECT_EQ(json.at("kind"), "qp_state");
    EXPECT_EQ(json.at("time_ns"), 123);
    EXPECT_EQ(json.at("cpu"), 4);
    EXPECT_EQ(json.at("key").at("qpn"), 0xabcdef);
    EXPECT_EQ(json.at("key").at("generation_ns"), 0xffff'ffff'ffff'ffff);
    EXPECT_EQ(json.at("qp_type_name"), "RC");
    EXPECT_EQ(json.at("old_state_name"), "RTR");
    EXPECT_EQ(json.at("new_state_name"), "RTS");
    EXPECT_EQ(json.at("result"), -22);
    EXPECT_EQ(json.at("flags_names"), (nlohmann::ordered_json{"address", "dest"}));
    EXPECT_EQ(json.at("udp_sport"), 0xc123);
    EXPECT_EQ(json.at("dgid"), "0000:0000:0000:0000:0000:ffff:0000:0007");
    EXPECT_EQ(json.at("dmac"), "52:00:00:00:00:09");
    EXPECT_EQ(json.at("device"), "rxe0");
    EXPECT_FALSE(json.contains("event_name"));
}

TEST(RecordJson, SocketThatNcclCloses) {
    auto socket = make_record<cw_nccl_socket>(CW_KIND_NCCL_SOCKET, 123, 4);
    socket.tgid = 100;
    socket.inode = 4711;
    socket.tx_payload_bytes = 1ULL << 40U;
    socket.rx_payload_bytes = 12;
    socket.retransmitted_bytes = 3;
    socket.type = CW_NCCL_SOCKET_NETWORK_SETUP;
    const auto json = record_json(socket.header, bytes_of(socket));
    EXPECT_EQ(json.at("kind"), "nccl_socket");
    EXPECT_EQ(json.at("tgid"), 100);
    EXPECT_EQ(json.at("inode"), 4711);
    EXPECT_EQ(json.at("tx_payload_bytes"), 1ULL << 40U);
    EXPECT_EQ(json.at("rx_payload_bytes"), 12);
    EXPECT_EQ(json.at("retransmitted_bytes"), 3);
    EXPECT_EQ(json.at("type_name"), "network_setup");
}

TEST(RecordJson, ArraysBecomeObjectsByClass) {
    auto wire = make_record<cw_qp_wire>(CW_KIND_QP_WIRE, 5);
    wire.counters.tx.wire_bytes[CW_WIRE_RETRANSMIT] = 1082;
    wire.counters.rx.frames[CW_WIRE_ACK] = 3;
    const auto json = record_json(wire.header, bytes_of(wire));
    EXPECT_TRUE(json.at("cpu").is_null());
    EXPECT_EQ(json.at("counters").at("tx").at("wire_bytes").at("retransmit"), 1082);
    EXPECT_EQ(json.at("counters").at("rx").at("frames").at("ack"), 3);

    auto post = make_record<cw_qp_post>(CW_KIND_QP_POST, 5);
    post.counters.classes[CW_POST_READ].packets[4] = 6;
    EXPECT_EQ(record_json(post.header, bytes_of(post))
                  .at("counters")
                  .at("classes")
                  .at("read")
                  .at("packets")
                  .at("4096"),
              6);
}

TEST(RecordJson, LeavesOutWhatAShortRecordDoesNotHave) {
    auto end = make_record<cw_end>(CW_KIND_END, 5);
    end.header.length_bytes = sizeof(cw_header);
    const auto json = record_json(end.header, bytes_of(end));
    EXPECT_EQ(json.size(), 3U);
}

TEST(RecordJson, SamplesOfCounters) {
    struct {
        cw_counter_samples head;
        cw_counter_sample samples[2];
    } record{
        .head = make_record<cw_counter_samples>(CW_KIND_COUNTER_SAMPLES, 5),
        .samples = {{.id = 3, .reserved = 0, .value = 33}, {.id = 4, .reserved = 0, .value = 44}}};
    record.head.n = 2;
    record.head.header.length_bytes = sizeof(record);
    const auto json = record_json(record.head.header, std::as_bytes(std::span(&record, 1)));
    EXPECT_EQ(json.at("samples"),
              nlohmann::ordered_json::parse(R"([{"id":3,"value":33},{"id":4,"value":44}])"));
}

TEST(RecordJson, OrderOfAChannel) {
    struct {
        cw_nccl_channel head;
        std::int32_t order[4];
    } record{.head = make_record<cw_nccl_channel>(CW_KIND_NCCL_CHANNEL, 5), .order = {2, 0, 1, 0}};
    record.head.n_order = 3;
    record.head.tree_down[0] = -1;
    record.head.header.length_bytes = sizeof(record);
    const auto bytes = std::as_bytes(std::span(&record, 1));
    const auto json = record_json(record.head.header, bytes);
    EXPECT_EQ(json.at("order"), (nlohmann::ordered_json{2, 0, 1}));
    EXPECT_EQ(json.at("tree_down"), (nlohmann::ordered_json{-1, 0, 0}));
    // No more than there is room for.
    record.head.n_order = 1000;
    EXPECT_EQ(record_json(record.head.header, bytes).at("order").size(), 4U);
    EXPECT_TRUE(record_json(record.head.header, bytes.first(24)).at("order").empty());
}

TEST(RecordJson, OnlyTheUsedPartOfAnArray) {
    auto launch = make_record<cw_nccl_launch>(CW_KIND_NCCL_LAUNCH, 5);
    launch.n_tasks = 2;
    launch.tasks[1] = {.arguments_hash = 7, .task = 8};
    launch.flags = CW_NCCL_LAUNCH_GRAPH;
    const auto json = record_json(launch.header, bytes_of(launch));
    ASSERT_EQ(json.at("tasks").size(), 2U);
    EXPECT_EQ(json.at("tasks").at(1).at("arguments_hash"), 7);
    EXPECT_EQ(json.at("flags_names"), (nlohmann::ordered_json{"graph"}));
    // One that says more than it holds.
    launch.n_tasks = 40;
    EXPECT_EQ(record_json(launch.header, bytes_of(launch)).at("tasks").size(),
              std::size_t{CW_NCCL_LAUNCH_TASKS});
}

TEST(RecordJson, NumbersOfNcclHaveItsNames) {
    auto task = make_record<cw_nccl_shape_task>(CW_KIND_NCCL_SHAPE_TASK, 5);
    task.func = CW_NCCL_ALL_REDUCE;
    task.datatype = 7;
    task.algorithm = CW_NCCL_RING;
    task.protocol = CW_NCCL_SIMPLE;
    const auto json = record_json(task.header, bytes_of(task));
    EXPECT_EQ(json.at("func_name"), "AllReduce");
    EXPECT_EQ(json.at("datatype_name"), "ncclFloat32");
    EXPECT_EQ(json.at("algorithm_name"), "RING");
    EXPECT_EQ(json.at("protocol_name"), "SIMPLE");
    auto image = make_record<cw_nccl_image>(CW_KIND_NCCL_IMAGE, 5);
    image.rungs[CW_NCCL_BYTES] = CW_RUNG_INFERRED;
    const auto rungs = record_json(image.header, bytes_of(image)).at("rungs");
    EXPECT_EQ(rungs.at("bytes"), 1);
    EXPECT_EQ(rungs.size(), 8U);
}

TEST(RecordJson, PlaceOfAFunction) {
    auto function = make_record<cw_pci_function>(CW_KIND_PCI_FUNCTION, 5);
    function.vendor = 0x10de;
    function.class_code = 0x030200;
    function.numa_node = -1;
    set_text(function.pci_address, "0000:01:00.0");
    std::memset(function.path, 'x', sizeof(function.path)); // no zero after it
    const auto json = record_json(function.header, bytes_of(function));
    EXPECT_EQ(json.at("kind"), "pci_function");
    EXPECT_EQ(json.at("vendor"), 0x10de);
    EXPECT_EQ(json.at("class_code"), 0x030200);
    EXPECT_EQ(json.at("numa_node"), -1);
    EXPECT_EQ(json.at("pci_address"), "0000:01:00.0");
    EXPECT_EQ(json.at("path"), std::string(256, 'x'));
}

TEST(RecordJson, TextThatIsNotUtf8IsPrinted) {
    auto node = make_record<cw_node>(CW_KIND_NODE, 5);
    node.hostname[0] = '\xff';
    const auto text = record_json(node.header, bytes_of(node))
                          .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    EXPECT_NE(text.find("\xef\xbf\xbd"), std::string::npos);
}

TEST(Kinds, EveryKindHasANameAndALayout) {
    std::set<std::string_view> names;
    for (const auto &kind : capture::kind_names()) {
        EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
        ASSERT_NE(capture::layout_of(kind.number), nullptr) << kind.name;
    }
    EXPECT_EQ(capture::layout_of(0), nullptr);
    EXPECT_FALSE(capture::is_known_kind(0));
    EXPECT_EQ(capture::path_mtu_bytes(5), 4096U);
    EXPECT_EQ(capture::path_mtu_bytes(1), 256U);
    EXPECT_EQ(capture::path_mtu_bytes(0), 0U);
    EXPECT_EQ(capture::path_mtu_bytes(6), 0U);
}

class ReadFile : public testing::Test {
protected:
    void SetUp() override {
        std::string pattern =
            (std::filesystem::temp_directory_path() / "read-file-test-XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        directory = pattern;
    }
    void TearDown() override { std::filesystem::remove_all(directory); }
    std::string make(const std::string &name, std::string_view content = "x") {
        const auto path = directory / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << content;
        return path.string();
    }
    std::filesystem::path directory;
};

TEST_F(ReadFile, GivesTheBytes) {
    const auto bytes = read_file(make("a", "hello"));
    ASSERT_TRUE(bytes);
    EXPECT_EQ(bytes->size(), 5U);
    EXPECT_EQ(bytes->front(), std::byte{'h'});
    EXPECT_TRUE(read_file(make("empty", ""))->empty());
    EXPECT_EQ(read_file(make("a", "hello"), 2)->size(), 2U);
}

// Hops forward, near and far, back, and over the end; the buffer is read ahead.
TEST_F(ReadFile, InPartsGivesEachPart) {
    std::string content(400'000, '\0');
    for (std::size_t i = 0; i < content.size(); ++i)
        content[i] = static_cast<char>(i * 7 + i / 251);
    auto file = FileInParts::open(make("large", content));
    ASSERT_TRUE(file);
    std::minstd_rand random(1);
    std::uint64_t at = 0;
    for (int i = 0; i < 20'000; ++i) {
        constexpr std::array<std::uint64_t, 4> LENGTHS = {32, 3'000, 70'000, 200'000};
        constexpr std::array<std::uint64_t, 4> HOPS = {0, 40, 5'000, 100'000};
        at = random() % 8 == 0 ? random() % (content.size() + 100) : at + HOPS[random() % 4];
        if (at > content.size() + 100)
            at = 0;
        const std::uint64_t length = LENGTHS[random() % 4] + random() % 7;
        const auto part = file->read(at, length);
        const std::string_view expected =
            std::string_view(content).substr(std::min<std::uint64_t>(at, content.size()), length);
        ASSERT_EQ(std::string_view(reinterpret_cast<const char *>(part.data()), part.size()),
                  expected)
            << at << " " << length;
    }
}

TEST_F(ReadFile, RejectsPathsThatAreNotFiles) {
    const std::string fifo = (directory / "fifo").string();
    ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    for (const std::string &path : {directory.string(), fifo, std::string("/dev/null")}) {
        const auto bytes = read_file(path);
        ASSERT_FALSE(bytes) << path;
        EXPECT_EQ(bytes.failure().kind, ErrorKind::BadInput);
        EXPECT_NE(bytes.failure().message.find(path + ": is a "), std::string::npos)
            << bytes.failure().message;
    }
    EXPECT_NE(read_file(directory / "none").failure().message.find("No such file"),
              std::string::npos);
}

TEST_F(ReadFile, WrongPathErrorSaysToCheckThePath) {
    const std::filesystem::path loop = directory / "loop";
    std::filesystem::create_symlink("loop", loop);
    for (const std::string &path : {(directory / "none").string(), make("file") + "/below",
                                    loop.string(), (directory / std::string(300, 'n')).string()}) {
        const std::string fix = ". Fix: check the path";
        EXPECT_TRUE(read_file(path).failure().message.ends_with(fix)) << path;
        const NamedCaptures named = expand_captures({path});
        ASSERT_EQ(named.refused.size(), 1U) << path;
        EXPECT_TRUE(named.refused[0].failure.message.ends_with(fix)) << path;
    }
}

TEST_F(ReadFile, ADirectoryStandsForItsCapturesAndNothingIsReadTwice) {
    const std::string b = make("d/b.cwc");
    const std::string a = make("d/a.cwc");
    make("d/notes.txt");
    make("d/sub.cwc/c.cwc");
    const std::string other = make("other");
    const NamedCaptures named =
        expand_captures({other, (directory / "d").string(), b, directory / "d/../d/a.cwc"});
    EXPECT_TRUE(named.refused.empty());
    EXPECT_EQ(named.files, (std::vector<std::string>{other, a, b}));
}

TEST_F(ReadFile, SaysWhichPathHoldsNoCaptureAndTakesTheOthers) {
    make("d/notes.txt");
    const std::string other = make("other");
    const NamedCaptures named = expand_captures({directory / "d", directory / "none", other});
    EXPECT_EQ(named.files, std::vector<std::string>{other});
    ASSERT_EQ(named.refused.size(), 2U);
    for (const auto &refused : named.refused)
        EXPECT_TRUE(refused.failure.message.starts_with(refused.path + ": "))
            << refused.failure.message;
    EXPECT_NE(named.refused[0].failure.message.find("no capture (*.cwc)"), std::string::npos);
    EXPECT_TRUE(named.refused[0].failure.message.ends_with("Fix: give them by name (" +
                                                           (directory / "d").string() + "/*/)"))
        << named.refused[0].failure.message;
    EXPECT_NE(named.refused[1].failure.message.find("No such file"), std::string::npos);
}

} // namespace
} // namespace collwire::cli
