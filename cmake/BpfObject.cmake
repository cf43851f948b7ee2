# SPDX-License-Identifier: Apache-2.0
# bpf_object(NAME SOURCE): compiles SOURCE for BPF and generates NAME.skel.h from it.
# Makes an INTERFACE target bpf_NAME that a C++ target links to see the skeleton. clang lists the headers that the object
# depends on: an edit to one of them rebuilds it.
find_program(BPF_CLANG NAMES clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14)
find_program(LLVM_STRIP NAMES llvm-strip llvm-strip-19 llvm-strip-18 llvm-strip-17 llvm-strip-16 llvm-strip-15 llvm-strip-14)
# Ubuntu's /usr/sbin/bpftool is a wrapper that insists on the running kernel's build; the real one is below linux-tools.
file(GLOB BPFTOOL_KERNEL_BUILDS /usr/lib/linux-tools/*/bpftool /usr/lib/linux-tools-*/bpftool)
foreach(candidate IN LISTS BPFTOOL_KERNEL_BUILDS ITEMS /usr/sbin/bpftool)
  if(NOT BPFTOOL)
    execute_process(COMMAND ${candidate} version RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    if(status EQUAL 0)
      set(BPFTOOL ${candidate} CACHE FILEPATH "bpftool, generates the BPF skeletons")
    endif()
  endif()
endforeach()

if(NOT BPF_CLANG)
  message(FATAL_ERROR "clang not found: it compiles the BPF programs. Fix: tools/install-deps")
endif()
if(NOT LLVM_STRIP)
  message(FATAL_ERROR "llvm-strip not found: it takes DWARF out of the BPF objects. Fix: tools/install-deps")
endif()
if(NOT BPFTOOL)
  message(FATAL_ERROR "no working bpftool: it generates the BPF skeletons. Fix: tools/install-deps")
endif()

set(BPF_COMPILE_FLAGS -g -O2 -target bpf -mcpu=v2 -D__TARGET_ARCH_x86 -Wall -Wextra -Werror
  -I${CMAKE_SOURCE_DIR}/bpf/include -I${CMAKE_SOURCE_DIR}/bpf -idirafter /usr/include/${CMAKE_LIBRARY_ARCHITECTURE})

function(bpf_object name source)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/bpf/${name}.bpf.o)
  set(skeleton ${CMAKE_CURRENT_BINARY_DIR}/bpf/${name}.skel.h)
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/bpf)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${BPF_CLANG} ${BPF_COMPILE_FLAGS} -MD -MF ${object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
    COMMAND ${LLVM_STRIP} -g ${object}
    DEPENDS ${source}
    DEPFILE ${object}.d
    COMMENT "BPF ${name}"
    VERBATIM)
  add_custom_command(
    OUTPUT ${skeleton}
    COMMAND sh -c "'${BPFTOOL}' gen skeleton '${object}' name ${name} > '${skeleton}.tmp' && mv '${skeleton}.tmp' '${skeleton}'"
    DEPENDS ${object}
    COMMENT "skeleton ${name}"
    VERBATIM)
  add_custom_target(bpf_${name}_skeleton DEPENDS ${skeleton})
  add_library(bpf_${name} INTERFACE)
  add_dependencies(bpf_${name} bpf_${name}_skeleton)
  target_include_directories(bpf_${name} SYSTEM INTERFACE ${CMAKE_CURRENT_BINARY_DIR}/bpf)
  target_include_directories(bpf_${name} INTERFACE ${CMAKE_SOURCE_DIR}/bpf/include)
endfunction()
