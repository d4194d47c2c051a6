# DDPTRAIN_SANITIZE: address,undefined (or one of them), thread or empty; set by the presets asan, ubsan and tsan.
set(DDPTRAIN_SANITIZE "" CACHE STRING "sanitizer: address, undefined, thread or empty")
if(DDPTRAIN_SANITIZE)
  add_compile_options(-fsanitize=${DDPTRAIN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${DDPTRAIN_SANITIZE})
  # clang's runtime for `vptr` comes with programs that are linked as C++; ours is C and opens C++ at run time.
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fno-sanitize=vptr>)
  # Loops that are marked for vectors stay without them here, and clang warns of each.
  add_compile_options($<$<OR:$<COMPILE_LANG_AND_ID:C,Clang>,$<COMPILE_LANG_AND_ID:CXX,Clang>>:-Wno-pass-failed>)
  # Gloo is C++ and is opened at run time, but the sanitizers look for the functions that throw when the program starts.
  add_link_options(-Wl,--push-state,--no-as-needed -lstdc++ -Wl,--pop-state)
endif()
