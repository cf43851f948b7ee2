# Libraries from the distribution. Required ones stop the configure step with the fix; optional ones are named in its summary.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

function(require_file variable what)
  if(NOT ${variable})
    message(FATAL_ERROR "${what} not found. Fix: tools/install-deps")
  endif()
endfunction()

# A static library if one is asked for and there; the shared one otherwise.
function(find_link_library variable name)
  if(COLLWIRE_STATIC)
    find_library(${variable} NAMES lib${name}.a)
  endif()
  find_library(${variable} NAMES ${name})
  require_file(${variable} "lib${name}")
endfunction()

find_link_library(LIBBPF bpf)
find_link_library(LIBELF elf)
find_link_library(LIBZ z)
find_link_library(LIBZSTD zstd)
find_link_library(LIBNL nl-3)
find_link_library(LIBCAPSTONE capstone)
find_path(NL_INCLUDE netlink/netlink.h PATH_SUFFIXES libnl3)
require_file(NL_INCLUDE "libnl-3 headers")

# libelf must follow libbpf, and zstd and z follow libelf: static archives resolve left to right.
add_library(collwire_bpf_libs INTERFACE)
target_link_libraries(collwire_bpf_libs INTERFACE ${LIBBPF} ${LIBELF} ${LIBZ} ${LIBZSTD})
add_library(collwire_elf INTERFACE)
target_link_libraries(collwire_elf INTERFACE ${LIBELF} ${LIBZ} ${LIBZSTD})
add_library(collwire_zstd INTERFACE)
target_link_libraries(collwire_zstd INTERFACE ${LIBZSTD})
add_library(collwire_nl INTERFACE)
target_include_directories(collwire_nl SYSTEM INTERFACE ${NL_INCLUDE})
target_link_libraries(collwire_nl INTERFACE ${LIBNL})
add_library(collwire_capstone INTERFACE)
target_link_libraries(collwire_capstone INTERFACE ${LIBCAPSTONE})

find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_path(FMT_INCLUDE fmt/format.h)
require_file(FMT_INCLUDE "fmt headers")
add_library(collwire_fmt INTERFACE)
target_compile_definitions(collwire_fmt INTERFACE FMT_HEADER_ONLY)
target_include_directories(collwire_fmt SYSTEM INTERFACE ${FMT_INCLUDE})

find_package(GTest)

# Only the test programs that drive RDMA need these; the collwire binary never links them.
pkg_check_modules(IBVERBS IMPORTED_TARGET libibverbs)
pkg_check_modules(RDMACM IMPORTED_TARGET librdmacm)
if(NOT IBVERBS_FOUND OR NOT RDMACM_FOUND)
  message(STATUS "rdma-core development files not found: the RDMA test programs are not built (fix: tools/install-deps)")
endif()
