# SPDX-License-Identifier: Apache-2.0
# Layouts of NCCL files. The double is built as NVIDIA builds NCCL, with GCC and flags of its own: its code and DWARF are what is tested.
find_program(GXX g++)
require_file(GXX g++)
set(fake_nccl ${CMAKE_CURRENT_BINARY_DIR}/libfake_nccl.so)
file(GLOB_RECURSE fake_nccl_sources CONFIGURE_DEPENDS fake_nccl/*.cc fake_nccl/*.h)
add_custom_command(OUTPUT ${fake_nccl}
  COMMAND ${GXX} -std=c++20 -fPIC -shared -O2 -g -fvisibility=hidden -fcf-protection=none -I${CMAKE_SOURCE_DIR} -Wl,--build-id=sha1
    init.cc enqueue.cc proxy.cc transport/net.cc -o ${fake_nccl}
  COMMAND ${CMAKE_OBJCOPY} --strip-debug ${fake_nccl} ${fake_nccl}.no-debug
  COMMAND ${CMAKE_OBJCOPY} --strip-all ${fake_nccl} ${fake_nccl}.stripped
  COMMAND ${CMAKE_OBJCOPY} --only-keep-debug ${fake_nccl} ${fake_nccl}.debug
  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/fake_nccl
  DEPENDS ${fake_nccl_sources}
  VERBATIM)
add_custom_target(fake_nccl DEPENDS ${fake_nccl})
# One double, linked several times: as it is, with another build-id, at other addresses, and each time with one other thing in it.
set(same_code_double ${CMAKE_CURRENT_BINARY_DIR}/libsame_code_double.so)
set(same_code_build ${GXX} -std=c++20 -fPIC -shared -O2 -g -fvisibility=hidden -fcf-protection=none)
add_custom_command(OUTPUT ${same_code_double}
  COMMAND ${same_code_build} -Wl,--build-id=sha1 init.cc -o ${same_code_double}
  COMMAND ${same_code_build} -Wl,--build-id=0x0102030405060708090a0b0c0d0e0f1011121314 init.cc -o ${same_code_double}.other-id
  COMMAND ${same_code_build} -Wl,--build-id=sha1 padding.s init.cc -o ${same_code_double}.moved
  COMMAND ${same_code_build} -Wl,--build-id=sha1 -DOTHER_FIELD init.cc -o ${same_code_double}.field
  COMMAND ${same_code_build} -Wl,--build-id=sha1 -DOTHER_CASES init.cc -o ${same_code_double}.cases
  COMMAND ${same_code_build} -Wl,--build-id=sha1 -DOTHER_VARIABLE init.cc -o ${same_code_double}.variable
  COMMAND ${CMAKE_OBJCOPY} --strip-all ${same_code_double}.other-id ${same_code_double}.other-id.stripped
  COMMAND ${CMAKE_OBJCOPY} --strip-all ${same_code_double}.moved ${same_code_double}.moved.stripped
  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/same_code_double
  DEPENDS same_code_double/init.cc same_code_double/padding.s
  VERBATIM)
add_custom_target(same_code_doubles DEPENDS ${same_code_double})
add_library(fake_logging SHARED fake_nccl/logging.cc)
target_compile_options(fake_logging PRIVATE -O2 -g0 -fvisibility=hidden -fno-sanitize=all)
target_link_options(fake_logging PRIVATE -fno-sanitize=all -Wl,--build-id=sha1 -s)
add_library(fake_exported SHARED fake_nccl/exported.cc)
target_compile_options(fake_exported PRIVATE -O2 -g0 -fvisibility=hidden -fno-sanitize=all)
target_link_options(fake_exported PRIVATE -fno-sanitize=all -Wl,--build-id=sha1 -s)
collwire_test(nccl_test LABEL unit SOURCES nccl_debug_file_test.cpp nccl_exported_layout_test.cpp nccl_bpf_layout_test.cpp nccl_library_test.cpp nccl_live_comms_test.cpp nccl_local_connections_test.cpp nccl_nvls_test.cpp nccl_logged_names_test.cpp nccl_parameters_test.cpp nccl_file_layout_test.cpp nccl_plugin_memory_test.cpp nccl_proxies_test.cpp nccl_queue_pair_paths_test.cpp nccl_reader_test.cpp nccl_same_code_test.cpp nccl_scan_test.cpp nccl_step_counters_test.cpp LIBS collwire_nccl_memory ${CMAKE_DL_LIBS})
if(TARGET nccl_test)
  add_dependencies(nccl_test fake_nccl same_code_doubles fake_logging fake_exported)
  target_compile_definitions(nccl_test PRIVATE
    FAKE_NCCL="${fake_nccl}"
    SAME_CODE_DOUBLE="${same_code_double}"
    FAKE_NCCL_DEBUG="${fake_nccl}.debug"
    FAKE_NCCL_NO_DEBUG="${fake_nccl}.no-debug"
    FAKE_EXPORTED="$<TARGET_FILE:fake_exported>"
    FAKE_LOGGING_STRIPPED="$<TARGET_FILE:fake_logging>"
    NCCL_LAYOUTS="${CMAKE_SOURCE_DIR}/nccl-layouts"
    FAKE_NCCL_STRIPPED="${fake_nccl}.stripped")
endif()
collwire_test(nccl_shapes_test LABEL unit SOURCES nccl_plugins_test.cpp nccl_queue_pairs_test.cpp nccl_shapes_test.cpp LIBS collwire_sources)
