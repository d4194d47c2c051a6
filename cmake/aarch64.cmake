# Builds for 64-bit ARM (AWS Graviton, NVIDIA Grace, Ampere) on another machine, with Debian's cross compiler and the libraries of a
# system root, which tests/proof/test-aarch64.sh makes: the preset aarch64. On an ARM machine itself no toolchain file is needed.
#
#     DDPTRAIN_SYSROOT: a folder with Debian's arm64 packages (environment or -D)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

if(NOT DDPTRAIN_SYSROOT)
  set(DDPTRAIN_SYSROOT $ENV{DDPTRAIN_SYSROOT})
endif()
if(NOT IS_DIRECTORY "${DDPTRAIN_SYSROOT}/usr/include")
  message(FATAL_ERROR "DDPTRAIN_SYSROOT: '${DDPTRAIN_SYSROOT}' is not a system root with headers; tests/proof/test-aarch64.sh makes one")
endif()
set(DDPTRAIN_SYSROOT ${DDPTRAIN_SYSROOT} CACHE PATH "system root with the arm64 libraries")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DDPTRAIN_SYSROOT)
set(CMAKE_SYSROOT ${DDPTRAIN_SYSROOT})
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)

# ctest runs the programs through it.
find_program(DDPTRAIN_QEMU qemu-aarch64-static qemu-aarch64)
if(DDPTRAIN_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${DDPTRAIN_QEMU} -L ${CMAKE_SYSROOT})
endif()
