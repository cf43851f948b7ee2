# SPDX-License-Identifier: Apache-2.0
# The GPU source against a test double of the guest library.
set(fake_gpu_folder ${CMAKE_SOURCE_DIR}/tests/support/fake_gpu_guest)
add_library(fake_gpu_guest SHARED ${fake_gpu_folder}/fake_gpu_guest.c)
target_include_directories(fake_gpu_guest PRIVATE ${CMAKE_SOURCE_DIR}/bpf/include)
# As the library itself: no instrumentation before the probes' instructions.
target_compile_options(fake_gpu_guest PRIVATE -O2 -fno-sanitize=all -Wall -Wextra)
target_link_options(fake_gpu_guest PRIVATE -fno-sanitize=all)
target_link_libraries(fake_gpu_guest PRIVATE Threads::Threads)
set_target_properties(fake_gpu_guest PROPERTIES
  OUTPUT_NAME collwire_cupti
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_gpu_guest)
add_executable(fake_gpu_process ${fake_gpu_folder}/fake_gpu_process.c)
target_include_directories(fake_gpu_process PRIVATE ${CMAKE_SOURCE_DIR}/bpf/include)
target_link_libraries(fake_gpu_process PRIVATE ${CMAKE_DL_LIBS})
set_target_properties(fake_gpu_process PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_gpu_guest)
add_dependencies(fake_gpu_process fake_gpu_guest)
collwire_test(gpu_source_test LABEL root SOURCES gpu_source_test.cpp LIBS collwire_sources ${CMAKE_DL_LIBS})
if(TARGET gpu_source_test)
  target_compile_definitions(gpu_source_test PRIVATE
    FAKE_GPU_GUEST="$<TARGET_FILE:fake_gpu_guest>"
    FAKE_GPU_PROCESS="$<TARGET_FILE:fake_gpu_process>")
  add_dependencies(gpu_source_test fake_gpu_process)
endif()
if(NOT COLLWIRE_SANITIZE)
  add_test(NAME record_gpu COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/record_gpu_test.py
           $<TARGET_FILE:collwire> $<TARGET_FILE:fake_gpu_process> $<TARGET_FILE:fake_gpu_guest>)
  set_tests_properties(record_gpu PROPERTIES LABELS root RUN_SERIAL ON TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()
