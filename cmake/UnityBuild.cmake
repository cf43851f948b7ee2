# SPDX-License-Identifier: Apache-2.0
# COLLWIRE_UNITY: several sources of a library below correlate/, or of a unit test, are compiled as one, for a build from scratch. Included last, before
# PrecompiledHeaders. Sources that have a name of their own file (static, or in an unnamed namespace) in common are compiled apart: shared_names.py
# finds them. Tests replace single sources of other libraries, so those stay as they are.
find_package(Python3 REQUIRED COMPONENTS Interpreter)

function(collwire_targets_below directory result)
  get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(below DIRECTORY ${directory} PROPERTY SUBDIRECTORIES)
  foreach(each IN LISTS below)
    collwire_targets_below(${each} more)
    list(APPEND targets ${more})
  endforeach()
  set(${result} ${targets} PARENT_SCOPE)
endfunction()

collwire_targets_below(${CMAKE_SOURCE_DIR}/correlate all_targets)
collwire_targets_below(${CMAKE_SOURCE_DIR}/tests/unit test_targets)
list(APPEND all_targets ${test_targets})
set(unity_targets "")
set(unity_lines "")
foreach(target IN LISTS all_targets)
  get_target_property(type ${target} TYPE)
  get_target_property(visibility ${target} CXX_VISIBILITY_PRESET)
  get_target_property(sources ${target} SOURCES)
  get_target_property(directory ${target} SOURCE_DIR)
  list(FILTER sources INCLUDE REGEX "[.]cpp$")
  list(LENGTH sources n_sources)
  if(NOT type MATCHES "^(STATIC_LIBRARY|OBJECT_LIBRARY|EXECUTABLE)$" OR n_sources LESS 2 OR visibility)
    continue()
  endif()
  list(APPEND unity_targets ${target})
  list(JOIN sources " " line)
  string(APPEND unity_lines "${target} ${directory} ${line}\n")
endforeach()
file(WRITE ${CMAKE_BINARY_DIR}/unity_targets "${unity_lines}")
execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/shared_names.py ${CMAKE_BINARY_DIR}/unity_targets
  OUTPUT_VARIABLE apart COMMAND_ERROR_IS_FATAL ANY OUTPUT_STRIP_TRAILING_WHITESPACE)
foreach(target IN LISTS unity_targets)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
endforeach()
string(REPLACE "\n" ";" apart "${apart}")
foreach(line IN LISTS apart)
  string(REPLACE " " ";" line "${line}")
  list(POP_FRONT line target)
  set_source_files_properties(${line} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endforeach()
# Names that they have in common with a header, or through a using-declaration.
foreach(source cupti_received.cpp capture_rotation_test.cpp capture_storage_test.cpp capture_writer_test.cpp model_nccl_queue_pairs_test.cpp
    nccl_reader_test.cpp record_machine_test.cpp)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/unit/${source} DIRECTORY ${CMAKE_SOURCE_DIR}/tests/unit
    PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endforeach()
