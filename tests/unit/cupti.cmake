# SPDX-License-Identifier: Apache-2.0
# The guest library's parts (cupti/). The recorder and CUPTI are test doubles.
collwire_test(cupti_test LABEL unit SOURCES cupti_buffers_test.cpp cupti_clock_test.cpp cupti_control_lock_test.cpp cupti_fake_cupti.cpp
              cupti_guest_refusals_test.cpp cupti_guest_test.cpp cupti_kernels_test.cpp cupti_received.cpp cupti_windows_test.cpp
              nccl_profiler_clock_test.cpp nccl_profiler_mask_test.cpp nccl_profiler_test.cpp LIBS collwire_cupti_parts)
# Programs of their own: they map a libcupti, and replace imports of the process.
collwire_test(cupti_imports_test LABEL unit SOURCES cupti_imports_test.cpp LIBS collwire_cupti_parts)
collwire_test(cupti_neighbours_test LABEL unit SOURCES cupti_neighbours_test.cpp LIBS collwire_cupti_parts)

if(TARGET cupti_test)
  # Their imports are what is tested, so each has its own way of the linker, and no sanitizer.
  function(fake_cupti_library name)
    cmake_parse_arguments(F "" "SOURCE" "COMPILE;LINK" ${ARGN})
    add_library(${name} SHARED fake_cupti/${F_SOURCE})
    target_link_libraries(${name} PRIVATE collwire_options)
    target_compile_options(${name} PRIVATE -O2 -fno-sanitize=all ${F_COMPILE})
    target_link_options(${name} PRIVATE -fno-sanitize=all ${F_LINK})
  endfunction()
  fake_cupti_library(fake_libcupti SOURCE libcupti.cpp)
  fake_cupti_library(fake_libcupti_copy SOURCE libcupti.cpp)
  set_target_properties(fake_libcupti PROPERTIES
    OUTPUT_NAME cupti VERSION 13 SOVERSION 13 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_cupti)
  set_target_properties(fake_libcupti_copy PROPERTIES
    OUTPUT_NAME cupti VERSION 12 SOVERSION 12 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_cupti/copy)
  fake_cupti_library(fake_tool_lazy SOURCE tool.cpp LINK LINKER:-z,lazy,-z,norelro)
  fake_cupti_library(fake_tool_relro SOURCE tool.cpp LINK LINKER:-z,lazy,-z,relro)
  fake_cupti_library(fake_tool_relro_now SOURCE tool.cpp LINK LINKER:-z,now,-z,relro)
  fake_cupti_library(fake_tool_no_plt SOURCE tool.cpp COMPILE -fno-plt LINK LINKER:-z,now,-z,relro)
  foreach(tool fake_tool_lazy fake_tool_relro fake_tool_relro_now fake_tool_no_plt)
    target_link_libraries(${tool} PRIVATE fake_libcupti)
    string(TOUPPER ${tool} variable)
    list(APPEND definitions ${variable}="$<TARGET_FILE:${tool}>")
  endforeach()
  foreach(test cupti_test cupti_imports_test cupti_neighbours_test)
    add_dependencies(${test} fake_libcupti fake_libcupti_copy fake_tool_lazy fake_tool_relro fake_tool_relro_now fake_tool_no_plt)
    target_compile_definitions(${test} PRIVATE ${definitions}
      FAKE_LIBCUPTI="$<TARGET_FILE:fake_libcupti>" FAKE_LIBCUPTI_COPY="$<TARGET_FILE:fake_libcupti_copy>")
  endforeach()
endif()
