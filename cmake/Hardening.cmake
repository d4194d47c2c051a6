# What makes a memory error harder to use: position-independent code, checked buffers of the C library, a value behind each array on
# the stack that is compared before a return, tables of addresses that are read-only once the program is loaded, and no executable stack.
# tests/program/test_hardening.py reads it back from the files. Sanitizers have checks of their own.
if(NOT DDPTRAIN_SANITIZE)
  add_compile_options(-fstack-protector-strong)
  if(CMAKE_BUILD_TYPE MATCHES "Rel") # needs optimization
    add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
  endif()
endif()
include(CheckPIESupported)
check_pie_supported(LANGUAGES C CXX)
add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
