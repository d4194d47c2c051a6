# With a sanitizer's checks in its loops -O3 takes the compiler twice the time of -O2, and winograd.c five times; the tests are no faster.
# The marks of each variable's scope take it another third of the time, for blocks whose variables have no pointers to them.
set(kernel_optimization -O3)
if(DDPTRAIN_SANITIZE)
  set(kernel_optimization -O2)
  if(DDPTRAIN_SANITIZE MATCHES "address")
    list(APPEND kernel_optimization -fno-sanitize-address-use-after-scope)
  endif()
endif()

# src/device/cpu/sets: every file there is compiled once per instruction set and the set is chosen at start. Loops write their fused
# multiply-adds out (fmaf, sets/lanes.h), so each set and each compiler gives the same bits.
file(GLOB cpu_sources CONFIGURE_DEPENDS src/device/cpu/*.c)
file(GLOB set_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/device/cpu/sets/*.c)
target_sources(device PRIVATE ${cpu_sources})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  # It would load all factors of a step before the first product, for which a tile leaves no registers.
  foreach(product gemm direct winograd depthwise unit_stride)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/device/cpu/sets/${product}.c PROPERTIES COMPILE_OPTIONS -fno-schedule-insns)
  endforeach()
endif()

# A store of zeros in a loop would be a call of memset after it.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/device/cpu/sets/optimizers.c PROPERTIES COMPILE_OPTIONS -fno-tree-loop-distribute-patterns)
endif()

# With traps in mind the compiler would make a branch of a choice between two results (tanh), and would not vectorise the loop. Numbers
# do not change.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/device/cpu/sets/recurrent.c ${CMAKE_SOURCE_DIR}/src/device/cpu/sets/elementwise.c
                            ${CMAKE_SOURCE_DIR}/src/device/cpu/sets/expression.c ${CMAKE_SOURCE_DIR}/src/device/cpu/sets/image.c
                            PROPERTIES COMPILE_OPTIONS -fno-trapping-math)
# A relu in a product, too: a branch for each number, whose sign processors cannot foresee, took 6 % of a product of 256 rows.
foreach(product sets/gemm bf16/avx512 bf16/amx bf16/amx_unit_stride)
  set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/device/cpu/${product}.c APPEND PROPERTY COMPILE_OPTIONS -fno-trapping-math)
endforeach()

# A packed panel and a strip lie on the stack: half of what src/base/system/machine.h makes sure of.
set(kernel_frames)
if(NOT DDPTRAIN_SANITIZE)
  # Kernels see only sizes that were checked before. Checked copies (_FORTIFY_SOURCE) would make calls of the short copies
  # that the compiler writes in line otherwise: 7 % of the instructions of a small model.
  set(kernel_frames -Wframe-larger-than=524288 -fno-stack-protector "SHELL:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=0")
endif()

function(kernel_set name lanes registers)
  add_library(kernels_${name} OBJECT ${set_sources})
  target_compile_definitions(kernels_${name} PRIVATE KERNELS_SET=${name} KERNELS_LANES=${lanes} KERNELS_REGISTERS=${registers})
  target_compile_options(kernels_${name} PRIVATE ${kernel_optimization} ${kernel_frames} -fopenmp-simd ${ARGN})
  target_sources(device PRIVATE $<TARGET_OBJECTS:kernels_${name}>)
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  kernel_set(baseline 4 32) # NEON, which every 64-bit ARM processor has
else()
  kernel_set(baseline 4 16)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # Where the loop that copies columns does not begin at a multiple of 32 bytes, a step of a CNN takes 5 % longer.
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/device/cpu/sets/winograd.c PROPERTIES COMPILE_OPTIONS -falign-functions=32)
  kernel_set(avx2 8 16 -mavx2 -mfma)
  kernel_set(avx512 16 32 -mavx512f -mavx512vl -mavx512dq -mavx512bw -mfma -mprefer-vector-width=512)
  target_compile_definitions(device PRIVATE DDPTRAIN_X86_KERNELS)
  # Products and attention in bfloat16: for processors with its instructions only, chosen by train.precision.
  function(bf16_set name sources)
    list(TRANSFORM sources PREPEND ${CMAKE_SOURCE_DIR}/src/device/cpu/bf16/)
    add_library(kernels_${name} OBJECT ${sources} ${CMAKE_SOURCE_DIR}/src/device/cpu/sets/attention.c)
    target_compile_definitions(kernels_${name} PRIVATE KERNELS_SET=${name} KERNELS_LANES=16 KERNELS_REGISTERS=32)
    target_compile_options(kernels_${name} PRIVATE ${kernel_optimization} ${kernel_frames} -fopenmp-simd -mavx512f -mavx512vl -mavx512dq
                                                   -mavx512bw -mavx512bf16 -mfma -mprefer-vector-width=512 ${ARGN})
    target_sources(device PRIVATE $<TARGET_OBJECTS:kernels_${name}>)
  endfunction()
  bf16_set(avx512_bf16 avx512.c)
  bf16_set(amx "amx.c;amx_convolution.c;amx_unit_stride.c" -mamx-tile -mamx-bf16)
endif()

# src/base/numbers/sets: random numbers, whose bits are the same in each set.
function(draws_set name)
  add_library(draws_${name} OBJECT ${CMAKE_SOURCE_DIR}/src/base/numbers/sets/draws.c)
  target_compile_definitions(draws_${name} PRIVATE DRAWS_SET=draws_${name})
  # not -ftrapping-math, with which a choice between two floats is a branch
  target_compile_options(draws_${name} PRIVATE ${kernel_optimization} -fopenmp-simd -fno-trapping-math ${ARGN})
  target_sources(base PRIVATE $<TARGET_OBJECTS:draws_${name}>)
endfunction()

draws_set(baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  draws_set(avx2 -mavx2 -mfma)
  draws_set(avx512 -mavx512f -mavx512vl -mavx512dq -mavx512bw -mfma -mprefer-vector-width=512)
  target_compile_definitions(base PRIVATE DDPTRAIN_X86_DRAWS)
endif()
