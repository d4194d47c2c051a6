/* Replaces NVIDIA's driver library, libcuda.so.1, which the program opens before it loads the CUDA module. */
int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}
