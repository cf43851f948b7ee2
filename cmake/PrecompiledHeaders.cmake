# SPDX-License-Identifier: Apache-2.0
# COLLWIRE_PCH: the compiler reads the standard headers, fmt and GoogleTest once for all sources that have the same compile options. Included last.
# clang-tidy does without: there each source has to include what it uses.
add_library(collwire_headers OBJECT ${CMAKE_SOURCE_DIR}/cmake/no_source.cpp)
target_link_libraries(collwire_headers PRIVATE collwire_options collwire_fmt)
target_precompile_headers(collwire_headers PRIVATE
  <algorithm> <array> <cerrno> <cstddef> <cstdint> <cstring> <functional> <map> <memory> <optional> <set> <span> <string> <string_view> <tuple>
  <unordered_map> <utility> <vector> <fmt/format.h>)
if(GTest_FOUND)
  # As collwire_test.
  add_library(collwire_test_headers OBJECT ${CMAKE_SOURCE_DIR}/cmake/no_source.cpp)
  target_link_libraries(collwire_test_headers PRIVATE collwire_options collwire_fmt GTest::gtest)
  target_compile_options(collwire_test_headers PRIVATE ${COLLWIRE_TEST_OPTIONS})
  target_precompile_headers(collwire_test_headers PRIVATE
    <algorithm> <array> <cstdint> <cstring> <fstream> <map> <memory> <optional> <set> <span> <string> <string_view> <utility> <vector> <gtest/gtest.h>)
endif()

# Sources of equal kinds can share headers.
function(collwire_kind_of result target)
  set(kind "kind")
  foreach(property COMPILE_OPTIONS POSITION_INDEPENDENT_CODE)
    get_target_property(value ${target} ${property})
    if(value)
      string(APPEND kind " ${value}")
    endif()
  endforeach()
  set(${result} ${kind} PARENT_SCOPE)
endfunction()

function(collwire_precompile directory)
  get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    collwire_kind_of(kind ${target})
    get_target_property(visibility ${target} CXX_VISIBILITY_PRESET)
    get_target_property(sources ${target} SOURCES)
    if(NOT type MATCHES "^(STATIC_LIBRARY|OBJECT_LIBRARY|EXECUTABLE)$" OR NOT sources MATCHES "[.]cpp(;|$)" OR visibility)
      continue()
    endif()
    foreach(headers collwire_headers collwire_test_headers)
      if(TARGET ${headers} AND NOT target STREQUAL headers)
        collwire_kind_of(kind_of_headers ${headers})
        if(kind STREQUAL kind_of_headers)
          target_precompile_headers(${target} REUSE_FROM ${headers})
        endif()
      endif()
    endforeach()
  endforeach()
  get_property(below DIRECTORY ${directory} PROPERTY SUBDIRECTORIES)
  foreach(each IN LISTS below)
    collwire_precompile(${each})
  endforeach()
endfunction()
collwire_precompile(${CMAKE_SOURCE_DIR})
