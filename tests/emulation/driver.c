/* Stands for NVIDIA's driver, libcuda.so.1, which the program looks for before it loads the module of the GPU. */
int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}
