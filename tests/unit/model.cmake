# SPDX-License-Identifier: Apache-2.0
collwire_test(model_test LABEL unit
  SOURCES model_bytes_test.cpp model_pairing_test.cpp model_ports_test.cpp model_posted_test.cpp model_recordings_test.cpp
  LIBS collwire_model collwire_zstd)
collwire_test(report_test LABEL unit
  SOURCES report_golden_test.cpp report_nccl_test.cpp report_overview_test.cpp report_sockets_test.cpp report_units_test.cpp
  LIBS collwire_report collwire_zstd nlohmann_json::nlohmann_json)
if(TARGET report_test)
  target_compile_definitions(report_test PRIVATE COLLWIRE_GOLDEN_DIR="${CMAKE_SOURCE_DIR}/tests/golden")
endif()
collwire_test(call_list_test LABEL unit SOURCES call_list_test.cpp LIBS collwire_model)
collwire_test(model_nvlink_test LABEL unit SOURCES model_nvlink_test.cpp LIBS collwire_report collwire_zstd nlohmann_json::nlohmann_json)
collwire_test(model_nccl_gpu_test LABEL unit SOURCES model_nccl_gpu_test.cpp LIBS collwire_report collwire_zstd)
collwire_test(port_incidents_test LABEL unit SOURCES port_incidents_test.cpp LIBS collwire_report collwire_zstd nlohmann_json::nlohmann_json)
collwire_test(shared_incidents_test LABEL unit SOURCES shared_incidents_test.cpp LIBS collwire_model collwire_zstd)
collwire_test(model_clocks_test LABEL unit SOURCES model_clocks_test.cpp LIBS collwire_report collwire_zstd)
collwire_test(model_nccl_errors_test LABEL unit SOURCES model_nccl_errors_test.cpp LIBS collwire_report collwire_zstd)
collwire_test(report_cli_test LABEL unit
  SOURCES report_cli_test.cpp bad_input_cli_test.cpp permission_cli_test.cpp record_cli_test.cpp
          topology_cli_test.cpp
  LIBS collwire_model collwire_zstd nlohmann_json::nlohmann_json)
if(TARGET report_cli_test)
  target_compile_definitions(report_cli_test PRIVATE COLLWIRE_BINARY="$<TARGET_FILE:collwire>")
  add_dependencies(report_cli_test collwire)
endif()
collwire_test(model_nccl_test LABEL unit
  SOURCES model_nccl_operations_test.cpp model_nccl_communicators_test.cpp model_nccl_late_ranks_test.cpp model_nccl_late_test.cpp model_nccl_waiting_test.cpp model_nccl_bytes_test.cpp model_nccl_messages_test.cpp model_nccl_calls_only_test.cpp nccl_bytes_by_kind_test.cpp
          model_nccl_meter_test.cpp model_nccl_findings_test.cpp model_nccl_far_nics_test.cpp model_nccl_graphs_test.cpp model_nccl_older_test.cpp
          model_nccl_loss_test.cpp model_nccl_open_groups_test.cpp model_nccl_plugins_test.cpp model_nccl_pxn_test.cpp
          model_nccl_local_test.cpp model_nccl_queue_pairs_test.cpp model_nccl_sockets_test.cpp
          model_nccl_transports_test.cpp owner_ranks_test.cpp model_nccl_verify_posts_test.cpp
          model_nccl_times_test.cpp nccl_connection_times_test.cpp nccl_neighbours_test.cpp
  LIBS collwire_model collwire_zstd)
collwire_test(roles_test LABEL unit SOURCES roles_test.cpp roles_layouts.cpp LIBS collwire_roles)
collwire_test(against_test LABEL unit SOURCES against_test.cpp against_statistics_test.cpp LIBS collwire_against nlohmann_json::nlohmann_json)
