# The modules ddptrain_cuda.so and ddptrain_nccl.so: src/device/cuda and src/dist/nccl by nvcc, linked with CUDA's static runtime (so that it needs no CUDA but cuBLASLt
# where it is opened) and, the second one, with NCCL. nvcc is called directly: CMake's own support would try it in every configuration, for seconds.
set(DDPTRAIN_CUDA AUTO CACHE STRING "the module for GPUs: AUTO (where the CUDA toolkit is found), ON or OFF")
set_property(CACHE DDPTRAIN_CUDA PROPERTY STRINGS AUTO ON OFF)
set(CUDA_KIND "off (DDPTRAIN_CUDA)")
if(NOT DDPTRAIN_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "DDPTRAIN_CUDA: expected AUTO, ON or OFF, got '${DDPTRAIN_CUDA}'")
endif()
if(DDPTRAIN_SANITIZE)
  set(CUDA_KIND "not with a sanitizer")
  if(DDPTRAIN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "DDPTRAIN_CUDA=ON: the module is not built with a sanitizer; use another preset or leave it out")
  endif()
elseif(NOT DDPTRAIN_CUDA STREQUAL "OFF")
  set(cuda_nvcc ${CMAKE_CUDA_COMPILER})
  if(NOT cuda_nvcc)
    find_program(DDPTRAIN_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin PATHS /usr/local/cuda)
    set(cuda_nvcc ${DDPTRAIN_NVCC})
  endif()
  if(cuda_nvcc AND NOT EXISTS ${cuda_nvcc})
    message(FATAL_ERROR "CMAKE_CUDA_COMPILER: ${cuda_nvcc} is not there")
  endif()
  if(cuda_nvcc)
    get_filename_component(cuda_root ${cuda_nvcc} DIRECTORY)
    get_filename_component(cuda_root ${cuda_root} DIRECTORY)
    find_library(CUDA_RUNTIME_LIBRARY libcudart_static.a HINTS ${cuda_root} /usr/local/cuda PATH_SUFFIXES lib64 lib)
    find_library(CUDA_CUBLASLT_LIBRARY cublasLt HINTS ${cuda_root} /usr/local/cuda PATH_SUFFIXES lib64 lib)
    find_library(CUDA_CUDNN_LIBRARY cudnn HINTS ENV CUDNN_PATH ENV CUDNN_HOME ${cuda_root} /usr/local/cuda PATH_SUFFIXES lib64 lib)
    find_path(CUDA_CUDNN_INCLUDE cudnn.h HINTS ENV CUDNN_PATH ENV CUDNN_HOME ${cuda_root} /usr/local/cuda PATH_SUFFIXES include)
    find_path(CUDA_INCLUDE cuda_runtime_api.h HINTS ${cuda_root} /usr/local/cuda PATH_SUFFIXES include)
  endif()
  set(CUDA_KIND "nvcc not found: CPU only")
  if(cuda_nvcc AND NOT (CUDA_RUNTIME_LIBRARY AND CUDA_CUBLASLT_LIBRARY))
    set(CUDA_KIND "${cuda_nvcc} without libcudart_static.a or libcublasLt.so: CPU only")
  elseif(cuda_nvcc)
    set(CUDA_KIND ${cuda_nvcc})
    set(CUDA_FOUND TRUE)
    if(CUDA_CUDNN_LIBRARY AND CUDA_CUDNN_INCLUDE AND CUDA_INCLUDE)
      set(CUDNN_FOUND TRUE)
    endif()
    find_path(NCCL_INCLUDE nccl.h HINTS ENV NCCL_HOME ${cuda_root} /usr/local/cuda PATH_SUFFIXES include)
    find_library(NCCL_LIBRARY nccl HINTS ENV NCCL_HOME ${cuda_root} /usr/local/cuda PATH_SUFFIXES lib64 lib)
    if(NCCL_INCLUDE AND NCCL_LIBRARY)
      set(NCCL_FOUND TRUE)
    endif()
  endif()
  if(DDPTRAIN_CUDA STREQUAL "ON" AND NOT CUDA_FOUND)
    message(FATAL_ERROR "DDPTRAIN_CUDA=ON: ${CUDA_KIND}. Install the CUDA toolkit (13 or later), or name its nvcc: "
                        "-DCMAKE_CUDA_COMPILER=/path/bin/nvcc")
  endif()
endif()

# --fmad=false: a fused multiply-add only where the code says fmaf, as on the CPU. Machine code for A100 and H100/H200, and PTX
# that a driver compiles for newer ones.
function(nvcc_objects result)
  set(objects)
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${cuda_nvcc} -c ${source} -o ${object} -MD -MF ${object}.d -MT cuda/${name}.o -I ${CMAKE_SOURCE_DIR}/src -std=c++20 -O3
              --fmad=false --extended-lambda -D_GNU_SOURCE --threads 2 -Werror all-warnings -Xcompiler=-fPIC,-Wall,-Wextra,-Werror,-Wno-missing-field-initializers,-fvisibility=default
              -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]
              $<$<BOOL:${NCCL_INCLUDE}>:-isystem=${NCCL_INCLUDE}>
      DEPENDS ${source}
      DEPFILE ${object}.d
      COMMENT "nvcc ${name}.cu"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
  set(${result} ${objects} PARENT_SCOPE)
endfunction()

function(gpu_module name)
  cmake_parse_arguments(GPU "" "" "SOURCES;LINKS" ${ARGN})
  nvcc_objects(objects ${GPU_SOURCES})
  runtime_module(${name} ${objects})
  set_target_properties(ddptrain_${name} PROPERTIES LINKER_LANGUAGE CXX INSTALL_RPATH_USE_LINK_PATH TRUE)
  target_link_libraries(ddptrain_${name} PRIVATE ${GPU_LINKS} ${CUDA_RUNTIME_LIBRARY} rt Threads::Threads ${CMAKE_DL_LIBS})
endfunction()

# The module ddptrain_cudnn.so: C, since plans are made on the host. Opened by ddptrain_cuda.so at the first convolution.
function(cudnn_module)
  if(CUDNN_FOUND)
    runtime_module(cudnn src/device/cuda/cudnn/plans.c)
    target_include_directories(ddptrain_cudnn SYSTEM PRIVATE ${CUDA_CUDNN_INCLUDE} ${CUDA_INCLUDE})
    set_target_properties(ddptrain_cudnn PROPERTIES INSTALL_RPATH_USE_LINK_PATH TRUE)
    target_link_libraries(ddptrain_cudnn PRIVATE ${CUDA_CUDNN_LIBRARY})
  endif()
endfunction()
