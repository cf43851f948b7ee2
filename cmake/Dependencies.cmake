# SPDX-License-Identifier: Apache-2.0
# Libraries from the distribution. Required ones stop the configure step with the fix; optional ones are named in its summary.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

function(require_file variable what)
  if(NOT ${variable})
    message(FATAL_ERROR "${what} not found. Fix: tools/install-deps")
  endif()
endfunction()

# find_link_library(VARIABLE NAME PACKAGE): the static archive under COLLWIRE_STATIC, else whatever the linker would take.
function(find_link_library variable name package)
  if(COLLWIRE_STATIC)
    if(${variable} AND NOT ${variable} MATCHES "\\.a$")
      unset(${variable} CACHE) # found while COLLWIRE_STATIC was off
    endif()
    find_library(${variable} NAMES lib${name}.a)
    if(NOT ${variable})
      message(FATAL_ERROR "lib${name}.a not found: the binary is to need no library but libc. "
                          "Fix: apt-get install ${package} (or tools/install-deps build), or -DCOLLWIRE_STATIC=OFF to link the shared ones")
    endif()
  else()
    find_library(${variable} NAMES ${name})
    require_file(${variable} "lib${name}")
  endif()
endfunction()

find_link_library(LIBBPF bpf libbpf-dev)
find_link_library(LIBELF elf libelf-dev)
find_link_library(LIBZ z zlib1g-dev)
find_link_library(LIBZSTD zstd libzstd-dev)
find_link_library(LIBNL nl-3 libnl-3-dev)
find_link_library(LIBCAPSTONE capstone libcapstone-dev)
find_link_library(LIBDW dw libdw-dev)
find_link_library(LIBSQLITE3 sqlite3 libsqlite3-dev)
if(COLLWIRE_STATIC) # libdw.a reads compressed files with these
  find_link_library(LIBLZMA lzma liblzma-dev)
  find_link_library(LIBBZ2 bz2 libbz2-dev)
endif()
find_path(NL_INCLUDE netlink/netlink.h PATH_SUFFIXES libnl3)
require_file(NL_INCLUDE "libnl-3 headers")
find_path(SQLITE3_INCLUDE sqlite3.h)
require_file(SQLITE3_INCLUDE "sqlite3.h")

# libelf must follow libbpf, and zstd and z follow libelf: static archives resolve left to right.
add_library(collwire_bpf_libs INTERFACE)
target_link_libraries(collwire_bpf_libs INTERFACE ${LIBBPF} ${LIBELF} ${LIBZ} ${LIBZSTD})
add_library(collwire_libelf INTERFACE)
target_link_libraries(collwire_libelf INTERFACE ${LIBELF} ${LIBZ} ${LIBZSTD})
add_library(collwire_dw INTERFACE)
target_link_libraries(collwire_dw INTERFACE ${LIBDW} ${LIBELF} ${LIBLZMA} ${LIBBZ2} ${LIBZ} ${LIBZSTD})
add_library(collwire_zstd INTERFACE)
target_link_libraries(collwire_zstd INTERFACE ${LIBZSTD})
add_library(collwire_nl INTERFACE)
target_include_directories(collwire_nl SYSTEM INTERFACE ${NL_INCLUDE})
target_link_libraries(collwire_nl INTERFACE ${LIBNL})
add_library(collwire_capstone INTERFACE)
target_link_libraries(collwire_capstone INTERFACE ${LIBCAPSTONE})

add_library(collwire_sqlite3 INTERFACE)
target_include_directories(collwire_sqlite3 SYSTEM INTERFACE ${SQLITE3_INCLUDE})
target_link_libraries(collwire_sqlite3 INTERFACE ${LIBSQLITE3} Threads::Threads ${CMAKE_DL_LIBS} m)

find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_path(FMT_INCLUDE fmt/format.h)
require_file(FMT_INCLUDE "fmt headers")

find_package(GTest)
if(NOT GTest_FOUND)
  message(STATUS "GoogleTest not found: optional, the unit and root tests are not built (fix: tools/install-deps test)")
endif()

# Only the test programs that drive RDMA need it; the collwire binary never links them.
pkg_check_modules(IBVERBS IMPORTED_TARGET libibverbs)
if(NOT IBVERBS_FOUND)
  message(STATUS "rdma-core's development files not found: optional, the RDMA test programs are not built (fix: tools/install-deps build)")
endif()

# The guest library has declarations of its own (cupti/abi.h). With NVIDIA's headers the build compares them.
find_path(CUPTI_INCLUDE cupti.h HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include extras/CUPTI/include)
find_path(CUDA_INCLUDE cuda.h HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
if(NOT CUPTI_INCLUDE OR NOT CUDA_INCLUDE)
  message(STATUS "CUDA's CUPTI headers not found: optional, only a check of the guest library's declarations needs them "
                 "(fix: install NVIDIA's CUDA toolkit, or set CUDA_HOME)")
endif()
# As above: userspace/nvidia/nvml_abi.h.
find_path(NVML_INCLUDE nvml.h HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
if(NOT NVML_INCLUDE)
  message(STATUS "NVML's header not found: optional, only a check of collwire's declarations needs it "
                 "(fix: install NVIDIA's CUDA toolkit, or set CUDA_HOME)")
endif()
# Nothing is built from these yet.
find_path(NCCL_INCLUDE nccl.h HINTS ENV NCCL_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
if(NOT NCCL_INCLUDE)
  message(STATUS "NCCL's headers not found: optional, nothing needs them yet (fix: install NVIDIA's libnccl-dev, or set NCCL_HOME)")
endif()
mark_as_advanced(CUPTI_INCLUDE CUDA_INCLUDE NCCL_INCLUDE NVML_INCLUDE)
