# Run by cmake -P: writes OUT, one row {"linear", "its code"}, for each C file of FOLDER: the functions that the C files of
# `ddptrain export --format c` are made of (src/export/c_code.h).
file(GLOB files ${FOLDER}/*.c)
list(SORT files)
set(rows "")
foreach(file IN LISTS files)
  file(READ "${file}" code)
  get_filename_component(name ${file} NAME_WE)
  string(REPLACE "\\" "\\\\" code "${code}")
  string(REPLACE "\"" "\\\"" code "${code}")
  string(REPLACE "\n" "\\n\"\n     \"" code "${code}")
  string(APPEND rows "    {\"${name}\",\n     \"${code}\"},\n")
endforeach()
file(WRITE ${OUT} "${rows}")
