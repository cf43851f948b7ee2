# SPDX-License-Identifier: Apache-2.0
# Plans of NCCL files. The double keeps its own compiler flags: its code and DWARF are what is tested.
add_library(fake_nccl SHARED fake_nccl/init.cc fake_nccl/enqueue.cc fake_nccl/proxy.cc fake_nccl/transport/net.cc)
target_include_directories(fake_nccl PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_options(fake_nccl PRIVATE -O2 -g -fvisibility=hidden -fcf-protection=none -fno-sanitize=all)
target_link_options(fake_nccl PRIVATE -fno-sanitize=all -Wl,--build-id=sha1)
add_custom_command(TARGET fake_nccl POST_BUILD
  COMMAND ${CMAKE_OBJCOPY} --strip-debug $<TARGET_FILE:fake_nccl> $<TARGET_FILE:fake_nccl>.no-debug
  COMMAND ${CMAKE_OBJCOPY} --strip-all $<TARGET_FILE:fake_nccl> $<TARGET_FILE:fake_nccl>.stripped
  COMMAND ${CMAKE_OBJCOPY} --only-keep-debug $<TARGET_FILE:fake_nccl> $<TARGET_FILE:fake_nccl>.debug
  VERBATIM)
add_library(fake_logging SHARED fake_nccl/logging.cc)
target_compile_options(fake_logging PRIVATE -O2 -g0 -fvisibility=hidden -fno-sanitize=all)
target_link_options(fake_logging PRIVATE -fno-sanitize=all -Wl,--build-id=sha1 -s)
collwire_test(nccl_test LABEL unit SOURCES nccl_debug_file_test.cpp nccl_layout_test.cpp nccl_library_test.cpp nccl_live_comms_test.cpp nccl_logged_names_test.cpp nccl_parameters_test.cpp nccl_plan_test.cpp nccl_proxies_test.cpp nccl_reader_test.cpp nccl_scan_test.cpp nccl_step_counters_test.cpp LIBS collwire_nccl ${CMAKE_DL_LIBS})
if(TARGET nccl_test)
  add_dependencies(nccl_test fake_nccl fake_logging)
  target_compile_definitions(nccl_test PRIVATE
    FAKE_NCCL="$<TARGET_FILE:fake_nccl>"
    FAKE_NCCL_DEBUG="$<TARGET_FILE:fake_nccl>.debug"
    FAKE_NCCL_NO_DEBUG="$<TARGET_FILE:fake_nccl>.no-debug"
    FAKE_LOGGING_STRIPPED="$<TARGET_FILE:fake_logging>"
    FAKE_NCCL_STRIPPED="$<TARGET_FILE:fake_nccl>.stripped")
endif()
collwire_test(nccl_shapes_test LABEL unit SOURCES nccl_shapes_test.cpp LIBS collwire_sources)
