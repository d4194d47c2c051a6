# DDPTRAIN_SANITIZE: address,undefined (or one of them), thread or empty; set by the presets asan, ubsan and tsan.
set(DDPTRAIN_SANITIZE "" CACHE STRING "sanitizer: address, undefined, thread or empty")
if(DDPTRAIN_SANITIZE)
  add_compile_options(-fsanitize=${DDPTRAIN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${DDPTRAIN_SANITIZE})
  # Gloo is C++ and is opened at run time, but the sanitizers look for the functions that throw when the program starts.
  add_link_options(-Wl,--push-state,--no-as-needed -lstdc++ -Wl,--pop-state)
endif()
