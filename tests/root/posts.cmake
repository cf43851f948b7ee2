# SPDX-License-Identifier: Apache-2.0
# The posts source against drivers that are test doubles.
add_library(posts_fake_ibverbs SHARED posts_fake_ibverbs.c)
target_include_directories(posts_fake_ibverbs PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
set(posts_definitions FAKE_PROVIDER_FOLDER="${CMAKE_CURRENT_BINARY_DIR}/posts_providers")
foreach(entry RANGE 1 5)
  set(provider posts_fake_provider_${entry})
  add_library(${provider} SHARED posts_fake_provider.c)
  target_compile_definitions(${provider} PRIVATE FAKE_ENTRY=${entry})
  # As drivers are built; folding would make one function of several.
  target_compile_options(${provider} PRIVATE -O2 $<$<C_COMPILER_ID:GNU>:-fno-ipa-icf> -fno-sanitize=all -Wall -Wextra)
  target_link_libraries(${provider} PRIVATE posts_fake_ibverbs)
  target_link_options(${provider} PRIVATE -fno-sanitize=all)
  set_target_properties(${provider} PROPERTIES
    OUTPUT_NAME fake${entry}-rdmav34
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/posts_providers)
  list(APPEND posts_definitions FAKE_PROVIDER_${entry}="$<TARGET_FILE:${provider}>")
  list(APPEND posts_providers ${provider})
endforeach()
collwire_test(posts_source_test LABEL root SOURCES posts_source_test.cpp posts_containers_test.cpp posts_slices_test.cpp posts_times_test.cpp
              posts_wr_calls_test.cpp LIBS collwire_sources)
if(TARGET posts_source_test)
  target_compile_definitions(posts_source_test PRIVATE ${posts_definitions})
  add_dependencies(posts_source_test ${posts_providers})
endif()
